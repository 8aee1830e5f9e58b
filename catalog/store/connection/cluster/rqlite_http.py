"""HTTP requests to the nodes of an rqlite cluster, and what their errors mean for a write.

A failed write is either surely not done (NotDoneError), so it may be sent again, or its outcome is
unknown (OutcomeUnknownError), so it must not be: an install would be counted twice.
"""

import json
import re
import sqlite3
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlencode

from urllib3 import BaseHTTPResponse, PoolManager, Timeout, make_headers
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError
from urllib3.util import parse_url

from ...schema.derived import raise_if_too_large
from ...schema.schema import APPLICATION_ID
from ..sqlite import DatabaseError, Statement

CONNECT_TIMEOUT = 1.0  # seconds
QUERY_TIMEOUT = 1.0  # seconds
# For the last of several nodes.
MIN_TIMEOUT = 0.1  # seconds
# A node that did not respond is asked after the others for this long.
AVOID_TIME = 5.0  # seconds
# Connections to each node that are kept for the next requests.
IDLE_CONNECTIONS = 32

# Errors of rqlite and of its Raft library for a request that did not reach the log of a leader. A
# node that forwards a request to the leader puts other text before them.
NOT_DONE = re.compile(
    r"leader not found|not (the )?leader|leader address:|store not (ready|open)|\bdial tcp\b"
    r"|timed out enqueuing operation|leadership transfer in progress"
    # The leader cannot have received the whole request.
    r"|write length:|write protobuf bytes:"
)

T = TypeVar("T")


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


READ_REVISION = "SELECT content, downloads FROM revision"


def read_revision(connection: sqlite3.Connection) -> Revision | None:
    """Return the revision of a catalog; None if the database is not a catalog."""
    try:
        return Revision(*connection.execute(READ_REVISION).fetchone())
    except sqlite3.Error:
        return None


# It changes nothing. Only a statement with RETURNING can return a row to /db/execute.
RETURN_REVISION = "UPDATE revision SET id = id RETURNING content, downloads"
READ_PRAGMAS = """
SELECT foreign_keys, application_id, user_version, file
FROM pragma_foreign_keys, pragma_application_id, pragma_user_version, pragma_database_list
WHERE name = 'main'
"""


class NodeState(NamedTuple):
    """What one node reports about its file."""

    foreign_keys: bool
    is_catalog: bool
    schema_version: int
    # Its path on the machine of the node.
    file: str
    # None if the file is not a catalog.
    revision: Revision | None
    # The release of rqlite.
    version: str


class Member(NamedTuple):
    """A member of the cluster; the state is None if it does not respond."""

    id: str
    address: str
    is_leader: bool
    is_voter: bool
    state: NodeState | None


class Node:
    """One node: its URL, without user name and password, and the headers that contain them."""

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self.headers: Mapping[str, str] = (
            make_headers(basic_auth=unquote(parsed.auth)) if parsed.auth else {}
        )
        self.url = parsed._replace(auth=None, path=None).url
        self.failed_at = -AVOID_TIME


class Nodes:
    """The nodes of a cluster, nearest first. Any of them forwards a write to the leader."""

    def __init__(self, urls: Sequence[str], ca: str = "") -> None:
        self.all = [Node(url) for url in urls]
        self._pool = PoolManager(
            num_pools=2 * len(self.all),
            maxsize=IDLE_CONNECTIONS,
            ca_certs=ca or None,
            retries=False,
        )

    def execute(
        self, statements: Sequence[Statement], timeout: float
    ) -> tuple[list[int], Revision]:
        """Run the statements in one transaction; return the rows each changed, and the revision."""
        body = json.dumps([*statements, (RETURN_REVISION, {})]).encode()
        # No statement calls RANDOM() or asks for the time, so none needs to be rewritten.
        parameters = f"transaction&norwrandom&norwtime&timeout={timeout:.3f}s"
        results = self._send(f"/db/execute?{parameters}", body, timeout)["results"]
        for result in results:
            if "error" in result:
                raise statement_error(result["error"])
        *changes, revision = results
        counts = [result.get("rows_affected", 0) for result in changes]
        return counts, Revision(*revision["values"][0])

    def load(self, database: bytes, timeout: float) -> None:
        """Replace the content of the whole cluster by an SQLite file."""
        self._send(f"/db/load?timeout={timeout:.3f}s", database, timeout, "octet-stream")

    def leader_revision(self) -> Revision | None:
        """Return the revision of the leader, None without a catalog; raise without a leader."""
        path = f"/db/query?{urlencode({'level': 'weak', 'q': READ_REVISION})}"
        path += f"&timeout={QUERY_TIMEOUT:.0f}s"
        (result,) = self._try_all(lambda node: self.get(node, path))["results"]
        return Revision(*result["values"][0]) if "values" in result else None

    def state(self, node: Node) -> NodeState:
        """Return the state of one node's own file."""
        body = json.dumps([READ_PRAGMAS, READ_REVISION]).encode()
        response = self._request(node, "/db/query?level=none", body, QUERY_TIMEOUT)
        pragmas, revision = check_response(node, response)["results"]
        foreign_keys, application_id, schema_version, file = pragmas["values"][0]
        return NodeState(
            bool(foreign_keys),
            application_id == APPLICATION_ID,
            schema_version,
            file,
            Revision(*revision["values"][0]) if "values" in revision else None,
            response.headers.get("X-RQLITE-VERSION", "unknown"),
        )

    def members(self) -> list[Member]:
        """Return the members of the cluster, as a node that responds lists them."""
        path = f"/nodes?nonvoters&ver=2&timeout={QUERY_TIMEOUT:.0f}s"
        listed = self._try_all(lambda node: self.get(node, path))["nodes"]
        return [self._member(entry) for entry in listed]

    def _member(self, entry: Mapping[str, Any]) -> Member:
        # A member that cannot be reached has only the address for Raft.
        url, state = entry.get("api_addr"), None
        if url:
            node = Node(url)
            node.headers = self.all[0].headers
            with suppress(DatabaseError):
                state = self.state(node)
        return Member(entry["id"], url or entry["addr"], entry["leader"], entry["voter"], state)

    def get(self, node: Node, path: str) -> Any:
        """Return the JSON of a GET request to a node."""
        try:
            return check_response(node, self._request(node, path, None, 2 * QUERY_TIMEOUT))
        except OutcomeUnknownError as error:
            # A read may be repeated.
            raise NotDoneError(str(error)) from error

    def _send(self, path: str, body: bytes, timeout: float, kind: str = "json") -> Any:
        deadline = time.monotonic() + timeout

        def send(node: Node) -> Any:
            left = max(deadline - time.monotonic(), MIN_TIMEOUT)
            return check_response(node, self._request(node, path, body, left, kind))

        return self._try_all(send)

    def _try_all(self, send: Callable[[Node], T]) -> T:
        """Return the first result; raise the last NotDoneError if every node raises one."""
        now = time.monotonic()
        error = NotDoneError("There is no node.")
        for node in sorted(self.all, key=lambda node: now - node.failed_at < AVOID_TIME):
            try:
                return send(node)
            except NotDoneError as refusal:
                error = refusal
        raise error

    def _request(
        self, node: Node, path: str, body: bytes | None, timeout: float, kind: str = "json"
    ) -> BaseHTTPResponse:
        headers = {**node.headers, "Content-Type": f"application/{kind}"}
        try:
            return self._pool.request(
                "GET" if body is None else "POST",
                node.url + path,
                body=body,
                headers=headers,
                timeout=Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout),
                redirect=False,
            )
        except HTTPError as error:
            node.failed_at = time.monotonic()
            if is_unsent(error):
                raise NotDoneError(f"{node.url} cannot be reached.") from error
            raise OutcomeUnknownError(f"{node.url} did not respond.") from error


def is_unsent(error: HTTPError) -> bool:
    """Return whether the error happened before the request was sent."""
    if isinstance(error, SSLError):
        # Other errors of TLS can also happen while the response is read.
        return isinstance(error.args[0], ssl.SSLCertVerificationError)
    return isinstance(error, (ConnectTimeoutError, NewConnectionError))


def check_response(node: Node, response: BaseHTTPResponse) -> Any:
    """Return the JSON of a response; raise if the node did not carry out the request."""
    if response.status == 401:
        raise DatabaseError(f"{node.url} refuses the user name or password in CATALOG_RQLITE.")
    message = response.data.decode("utf-8", "replace").strip()
    if response.status == 200:
        try:
            content = json.loads(message)
        except ValueError:
            content = {"error": "The response is not JSON"}
        message = content.get("error")
        if message is None:
            return content
    kind = NotDoneError if NOT_DONE.search(message) else OutcomeUnknownError
    raise kind(f"{node.url} responded: {message[:500]}.")


def statement_error(message: str) -> Exception:
    """Return the error for a statement that failed; its transaction was rolled back."""
    raise_if_too_large(message)
    if "constraint failed" in message:
        return sqlite3.IntegrityError(message)
    return DatabaseError(f"The cluster refused the write: {message}.")
