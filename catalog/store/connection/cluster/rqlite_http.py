"""HTTP requests to the rqlite node on this machine, and what their errors mean for a write.

A failed write is either surely not done (NotDoneError), so it may be sent again, or its outcome is
unknown (OutcomeUnknownError), so it must not be: an install would be counted twice.
"""

import json
import re
import sqlite3
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from ...schema.derived import raise_if_too_large
from ...schema.schema import Statement
from ..sqlite import DatabaseError

CONNECT_TIMEOUT = 1.0  # seconds
QUERY_TIMEOUT = 1.0  # seconds
# Connections that are kept for the next requests.
IDLE_CONNECTIONS = 32

# Errors of rqlite and of its Raft library for a request that did not reach the log of a leader. A
# node that forwards a request to the leader puts other text before them.
NOT_DONE = re.compile(
    r"leader not found|not (the )?leader|leader address:|store not (ready|open)|\bdial tcp\b"
    r"|timed out enqueuing operation|leadership transfer in progress"
    # The leader cannot have received the whole request.
    r"|write length:|write protobuf bytes:"
)


class NotDoneError(DatabaseError):
    """The request was surely not carried out; it may be sent again."""


class OutcomeUnknownError(DatabaseError):
    """The request may have been carried out, so it must not be sent again."""


class Revision(NamedTuple):
    """The revision of the catalog, as in the table revision; both numbers only grow."""

    content: int
    downloads: int

    def has_reached(self, other: "Revision") -> bool:
        """Return whether the other revision is not newer than this one."""
        return self.content >= other.content and self.downloads >= other.downloads


SELECT_REVISION = "SELECT content, downloads FROM revision"
# It changes nothing. Only a statement with RETURNING can return a row to /db/execute.
RETURN_REVISION = "UPDATE revision SET id = id RETURNING content, downloads"
SELECT_SETTINGS = """
SELECT foreign_keys, file FROM pragma_foreign_keys, pragma_database_list WHERE name = 'main'
"""


def select_revision(connection: sqlite3.Connection) -> Revision | None:
    """Return the revision of a catalog; None if the database is not a catalog."""
    try:
        return Revision(*connection.execute(SELECT_REVISION).fetchone())
    except sqlite3.Error:
        return None


class Node:
    """The rqlite node on this machine, which forwards writes to the leader of the cluster."""

    def __init__(self, url: str, user: str = "", ca: str = "") -> None:
        """The user is USER:PASSWORD, if the node needs one."""
        self.url = url.rstrip("/")
        self._headers = {}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        self._pool = PoolManager(maxsize=IDLE_CONNECTIONS, ca_certs=ca or None, retries=False)

    def execute(
        self, statements: Sequence[Statement], timeout: float
    ) -> tuple[list[int], Revision]:
        """Run the statements in one transaction; return the rows each changed, and the revision."""
        body = json.dumps([*statements, (RETURN_REVISION, {})]).encode()
        # No statement calls RANDOM() or asks for the time, so none needs to be rewritten.
        path = f"/db/execute?transaction&norwrandom&norwtime&timeout={timeout:.3f}s"
        with self._expecting_rqlite():
            results = self._read(self._request(path, body, timeout))["results"]
            for result in results:
                if "error" in result:
                    raise statement_error(result["error"])
            *changes, revision = results
            counts = [result.get("rows_affected", 0) for result in changes]
            return counts, Revision(*map(int, revision["values"][0]))

    def load(self, database: bytes, timeout: float) -> None:
        """Replace the content of the whole cluster by an SQLite file."""
        path = f"/db/load?timeout={timeout:.3f}s"
        with self._expecting_rqlite():
            self._read(self._request(path, database, timeout, "octet-stream"))

    def leader_revision(self) -> Revision | None:
        """Return the revision of the leader, None without a catalog; raise without a leader."""
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
        """Return each node of the cluster, as cluster status --json prints it."""
        with self._expecting_rqlite():
            return [*map(describe_node, self._get("/nodes?nonvoters&ver=2&timeout=1s")["nodes"])]

    def check_ready(self) -> None:
        """Raise NotDoneError, with what is missing, until the node has applied what was written."""
        response = self._request("/readyz?sync&timeout=1s", None, 2 * QUERY_TIMEOUT)
        if response.status != 200:
            # One line for each part, such as "[+]node ok"; another server may send a page.
            parts = response.data[:500].decode("utf-8", "replace").replace("[+]", "").split("\n")
            raise NotDoneError(f"{self.url} is not ready: {', '.join(filter(None, parts))}.")

    def _query(self, sql: str, level: str) -> list[Any]:
        query = urlencode({"level": level, "q": sql, "timeout": "1s"})
        results: list[Any] = self._get(f"/db/query?{query}")["results"]
        return results

    def _get(self, path: str) -> Any:
        """Return the JSON of a GET request."""
        return self._read(self._request(path, None, 2 * QUERY_TIMEOUT))

    def _request(
        self, path: str, body: bytes | None, timeout: float, kind: str = "json"
    ) -> BaseHTTPResponse:
        try:
            response = self._pool.request(
                "GET" if body is None else "POST",
                self.url + path,
                body=body,
                headers={**self._headers, "Content-Type": f"application/{kind}"},
                timeout=Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout),
                redirect=False,
            )
        except HTTPError as error:
            if is_unsent(error):
                raise NotDoneError(f"{self.url} cannot be reached.") from error
            raise OutcomeUnknownError(f"{self.url} did not respond.") from error
        if response.status == 401:
            raise DatabaseError(
                f"{self.url} refuses the user name or password in CATALOG_RQLITE_AUTH."
            )
        return response

    def _read(self, response: BaseHTTPResponse) -> Any:
        """Return the JSON of a response; raise if the node did not carry out the request."""
        message = response.data.decode("utf-8", "replace").strip()
        if response.status == 200:
            content = json.loads(message)
            message = content.get("error")
            if message is None:
                return content
        kind = NotDoneError if NOT_DONE.search(message) else OutcomeUnknownError
        raise kind(f"{self.url} responded: {message[:500]}.")

    @contextmanager
    def _expecting_rqlite(self) -> Iterator[None]:
        """Raise OutcomeUnknownError if the response that is read in the block is not of rqlite."""
        try:
            yield
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            message = "did not respond as rqlite does; CATALOG_RQLITE must be the URL of a node"
            raise OutcomeUnknownError(f"{self.url} {message}.") from error


def describe_node(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed of a node, from what rqlite says about it."""
    role = "leader" if entry["leader"] else "follower" if entry["voter"] else "non-voter"
    # A node that cannot be reached has only the address for Raft.
    address = entry.get("api_addr") or entry["addr"]
    return {"id": entry["id"], "address": address, "role": role, "reachable": entry["reachable"]}


def is_unsent(error: HTTPError) -> bool:
    """Return whether the error happened before the request was sent."""
    if isinstance(error, SSLError):
        # Other errors of TLS can also happen while the response is read.
        return isinstance(error.args[0], ssl.SSLCertVerificationError)
    return isinstance(error, (ConnectTimeoutError, NewConnectionError))


def statement_error(message: str) -> Exception:
    """Return the error for a statement that failed; its transaction was rolled back."""
    raise_if_too_large(message)
    if "constraint failed" in message:
        return sqlite3.IntegrityError(message)
    return DatabaseError(f"The cluster refused the write: {message}.")
