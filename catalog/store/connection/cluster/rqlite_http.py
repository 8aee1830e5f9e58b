"""HTTP requests to the rqlite node on this machine, and what their errors mean for a write.

A write that was certainly not carried out raises NotDoneError and may be sent again. A write with
an unknown outcome raises OutcomeUnknownError and must not be sent again: an install would be
counted twice. A failed read changes nothing, so it always raises NotDoneError.
"""

import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from ....system.http_client import HttpClient, Response
from ....system.http_connections import TransferError
from ...schema.derived import raise_if_too_large
from ...schema.schema import Statement
from ..revision import SELECT_REVISION, Revision
from ..sqlite import DatabaseError, OutcomeUnknownError

CONNECT_TIMEOUT = 1.0  # seconds
QUERY_TIMEOUT = 1.0  # seconds

# Errors from rqlite and its Raft library for a request that did not reach the leader's log. A node
# that forwards a request to the leader prepends text to the leader's error.
NOT_DONE = re.compile(
    r"leader not found|not (the )?leader|leader address:|store not (ready|open)|\bdial tcp\b"
    r"|timed out enqueuing operation|leadership transfer in progress"
    # After these errors, the leader cannot have received the whole request.
    r"|write length:|write protobuf bytes:"
)


class NotDoneError(DatabaseError):
    """The request was certainly not carried out; it may be sent again."""


# A no-op update: only a statement with RETURNING can return a row through /db/execute.
RETURN_REVISION = "UPDATE revision SET id = id RETURNING content, downloads"
SELECT_SETTINGS = """
SELECT foreign_keys, file FROM pragma_foreign_keys, pragma_database_list WHERE name = 'main'
"""


class Node:
    """The rqlite node on this machine, which forwards writes to the leader of the cluster."""

    def __init__(self, url: str, user: str = "", ca: str = "") -> None:
        """Log in as the user, given as USER:PASSWORD; if it is empty, send no credentials."""
        self.url = url.rstrip("/")
        self._headers = {}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        self._client = HttpClient(
            self.url, ca or None, seconds=2 * QUERY_TIMEOUT, connect_seconds=CONNECT_TIMEOUT
        )

    def close(self) -> None:
        """Close the idle connections to the node; the next request opens new ones."""
        self._client.close()

    def execute(
        self, statements: Sequence[Statement], timeout: float
    ) -> tuple[list[int], Revision]:
        """Run the statements in one transaction; return their row counts and the revision."""
        body = json.dumps([*statements, (RETURN_REVISION, {})]).encode()
        # No statement calls RANDOM() or reads the clock, so rqlite need not rewrite any of them.
        path = f"/db/execute?transaction&norwrandom&norwtime&timeout={timeout:.3f}s"
        with self._expecting_rqlite(OutcomeUnknownError):
            results = self._read(self._request(path, body, seconds=timeout))["results"]
            for result in results:
                if "error" in result:
                    raise statement_error(result["error"])
            *changes, revision = results
            counts = [result.get("rows_affected", 0) for result in changes]
            return counts, Revision(*map(int, revision["values"][0]))

    def load(self, database: bytes, timeout: float) -> None:
        """Replace the content of the whole cluster with an SQLite file."""
        path = f"/db/load?timeout={timeout:.3f}s"
        with self._expecting_rqlite(OutcomeUnknownError):
            self._read(self._request(path, database, "octet-stream", seconds=timeout))

    def leader_revision(self) -> Revision | None:
        """Return the leader's revision, or None if it has no catalog.

        Raise NotDoneError if there is no leader.
        """
        with self._expecting_rqlite():
            (result,) = self._query(SELECT_REVISION, "weak")
            return Revision(*map(int, result["values"][0])) if "values" in result else None

    def read_settings(self) -> tuple[bool, str]:
        """Return whether the node checks foreign keys, and the path of its file."""
        with self._expecting_rqlite():
            (result,) = self._query(SELECT_SETTINGS, "none")
            foreign_keys, file = result["values"][0]
            return bool(foreign_keys), str(file)

    def list_nodes(self) -> list[dict[str, Any]]:
        """Return each node in the cluster in the form that cluster status --json prints."""
        with self._expecting_rqlite():
            return [*map(describe_node, self._get("/nodes?nonvoters&ver=2&timeout=1s")["nodes"])]

    def check_ready(self) -> None:
        """If the node is not ready, raise NotDoneError with the state of each of its parts."""
        response = self._request("/readyz?sync&timeout=1s")
        if response.status != 200:
            # rqlite sends one line for each part, such as "[+]node ok". Another server may send a
            # whole page.
            parts = response.body[:500].decode("utf-8", "replace").replace("[+]", "").split("\n")
            raise NotDoneError(f"{self.url} is not ready: {', '.join(filter(None, parts))}.")

    def _query(self, sql: str, level: str) -> list[Any]:
        query = urlencode({"level": level, "q": sql, "timeout": "1s"})
        results: list[Any] = self._get(f"/db/query?{query}")["results"]
        return results

    def _get(self, path: str) -> Any:
        """Send a GET request and return the JSON response; raise NotDoneError if it fails."""
        try:
            return self._read(self._request(path))
        except OutcomeUnknownError as error:
            raise NotDoneError(str(error)) from error

    def _request(
        self, path: str, body: bytes | None = None, kind: str = "json", *, seconds: float = 0
    ) -> Response:
        """Send a POST if there is a body, else a GET; 0 seconds means the default timeout."""
        method = "GET" if body is None else "POST"
        headers = {**self._headers, "Content-Type": f"application/{kind}"}
        try:
            response = self._client.request(method, path, headers, body, seconds=seconds)
        except TransferError as error:
            if error.is_unsent:
                raise NotDoneError(f"{self.url} cannot be reached.") from error
            raise OutcomeUnknownError(f"{self.url} did not respond.") from error
        if response.status == 401:
            raise DatabaseError(
                f"{self.url} rejected the user name or password in CATALOG_RQLITE_AUTH."
            )
        return response

    def _read(self, response: Response) -> Any:
        """Return a response's JSON; raise NotDoneError or OutcomeUnknownError for an error."""
        message = response.body.decode("utf-8", "replace").strip()
        if response.status == 200:
            content = json.loads(message)
            message = content.get("error")
            if message is None:
                return content
        kind = NotDoneError if NOT_DONE.search(message) else OutcomeUnknownError
        raise kind(f"{self.url} responded: {message[:500]}.")

    @contextmanager
    def _expecting_rqlite(self, kind: type[DatabaseError] = NotDoneError) -> Iterator[None]:
        """Raise this kind of error if the block gets a response that rqlite would not send."""
        try:
            yield
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            message = "did not respond like an rqlite node; set CATALOG_RQLITE to the URL of a node"
            raise kind(f"{self.url} {message}.") from error


def describe_node(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what `cluster status` prints about a node, from its entry in rqlite's response."""
    role = "leader" if entry["leader"] else "follower" if entry["voter"] else "non-voter"
    # Show the Raft address, which other nodes use: the HTTP API may listen on a loopback address.
    return {
        "id": entry["id"],
        "address": entry["addr"],
        "role": role,
        "reachable": entry["reachable"],
    }


def statement_error(message: str) -> Exception:
    """Return the error for a statement that failed; its transaction was rolled back."""
    raise_if_too_large(message)
    if "constraint failed" in message:
        return sqlite3.IntegrityError(message)
    return DatabaseError(f"The cluster refused the write: {message}.")
