"""The catalog on a cluster of rqlite nodes.

Cluster has the methods of Database, so other code does not know which of the two it uses. A service
uses only the node on its machine: it reads the node's file, and sends each write to the node. The
node forwards the write to the leader, which acknowledges it once a majority of the nodes have it on
disk. The service then waits until its node has applied the write, so that the next read shows it.

- `rqlite_http` sends requests to the node, and decides after which errors a write may be repeated.
- `node_file` opens connections to the node's file.
"""

import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from ....system.atomic_files import scratch_directory
from ....system.paths import path_text
from ...schema.migrations import rebuild_tables
from ...schema.schema import SCHEMA_VERSION, Statement
from ..lifecycle import check_schema, create_catalog, replace_content
from ..revision import Revision, read_revision
from ..sqlite import (
    DatabaseError,
    DeadlineExceeded,
    OutcomeUnknownError,
    ReplicaBehindError,
    WouldBlock,
    connect,
    temporary_copy,
)
from ..transaction import Actor, Transaction, Values
from .collected import CollectedTransaction
from .node_file import READ_ONLY, NodeFile
from .rqlite_http import Node, NotDoneError

# The maximum number of attempts for a transaction while other writers change the catalog.
MAX_ATTEMPTS = 10
# How long to retry a write that certainly failed: a new leader may be elected in the meantime.
RETRY_TIME = 5.0  # seconds
RETRY_INTERVAL = 0.05  # seconds
# The maximum time that a request waits for the outcome of its write, including retries. A command
# may wait longer, separately for each of its writes.
REQUEST_TIMEOUT = 5.5  # seconds
COMMAND_TIMEOUT = 60.0  # seconds
# The maximum time that a write waits for the local node to apply it.
APPLY_TIMEOUT = 2.0  # seconds
APPLY_INTERVAL = 0.002  # seconds
# The maximum time that a health check waits for the leader's revision.
CHECK_TIMEOUT = 1.0  # seconds
# The maximum time that the service waits for its node when it starts.
START_TIMEOUT = 60.0  # seconds
# The maximum size of a loaded file, which rqlite replicates as a single log entry.
MAX_LOADED = 64 * 1024 * 1024  # bytes

# This statement violates the id column's CHECK if the catalog has changed since it was read.
GUARD = "UPDATE revision SET id = 0 WHERE content <> :content"
GUARD_ERROR = "CHECK constraint failed: id = 1"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Cluster(NodeFile):
    """A cluster's catalog, accessed through the node on this machine."""

    is_cluster = True
    # With one thread, a follower acknowledged 13 installs per second; with 16 threads, over 300.
    writer_threads = 16

    def __init__(self, path: str | Path, node: Node) -> None:
        super().__init__(path)
        self.node = node

    @property
    def scratch_parent(self) -> Path:
        """The directory for temporary files; only the node may write beside its file."""
        return Path(tempfile.gettempdir())

    def close(self) -> None:
        """Close the connections to the file and to the node; the next use opens new ones."""
        super().close()
        self.node.close()

    def transact(
        self,
        function: Callable[[Transaction], T],
        actor: Actor | None = None,
        *,
        dry_run: bool = False,
    ) -> T:
        """Run the function on the local file, and send its writes as one request.

        The request fails if the catalog has changed since the function read it. The function then
        runs again, once the local file has caught up.
        """
        for _ in range(MAX_ATTEMPTS):
            with self.read() as connection:
                content = read_revision(connection).content
                transaction = CollectedTransaction(connection, actor)
                result = function(transaction)
                transaction.finish()
            if dry_run or not transaction.statements:
                return result
            try:
                with self.write_counts.count():
                    self._send([(GUARD, {"content": content}), *transaction.statements])
                return result
            except sqlite3.IntegrityError as error:
                if GUARD_ERROR not in str(error):
                    raise
                self._wait_for(self.node.leader_revision(), APPLY_TIMEOUT)
        raise DatabaseError("Other writers keep changing the catalog; try again later.")

    def execute(self, sql: str, values: Values) -> int:
        """Run and commit one statement that writes; return the number of rows that it changed."""
        with self.write_counts.count():
            count, *_ = self._send([(sql, values)])
        return count

    def _send(self, statements: Sequence[Statement]) -> list[int]:
        """Run the statements as one transaction; return the number of rows that each one changed.

        Then wait until the local file shows the changes.
        """
        timeout = COMMAND_TIMEOUT if self.on_wait else REQUEST_TIMEOUT
        counts, revision = self._retry(timeout, partial(self.node.execute, statements))
        self._wait_for(revision, COMMAND_TIMEOUT if self.on_wait else APPLY_TIMEOUT)
        return counts

    def _retry(self, timeout: float, send: Callable[[float], T]) -> T:
        """Return the result of send(); retry for up to RETRY_TIME while it raises NotDoneError."""
        started = time.monotonic()
        # If the last write found no leader, this one is not retried.
        last_retry = started + (RETRY_TIME if self.is_writable else 0) - RETRY_INTERVAL
        while True:
            try:
                result = send(started + timeout - time.monotonic())
            except NotDoneError as error:
                if time.monotonic() > last_retry:
                    self.is_writable = False
                    raise NotDoneError(f"Cannot write to the cluster: {error}") from error
                time.sleep(RETRY_INTERVAL)
            except OutcomeUnknownError as error:
                message = f"The outcome of the write is unknown: {error}"
                raise OutcomeUnknownError(message) from error
            else:
                self.is_writable = True
                return result

    def _wait_for(self, revision: Revision | None, timeout: float) -> bool:
        """Wait until the local file has reached the revision; return False after the timeout."""
        started = time.monotonic()
        while revision and not self._has_reached(revision):
            if time.monotonic() - started >= timeout:
                return False
            time.sleep(APPLY_INTERVAL)
        return True

    def _has_reached(self, revision: Revision) -> bool:
        # Acknowledge a completed write even if this thread has no time left to read.
        try:
            return read_revision(self.reader()).has_reached(revision)
        except (DatabaseError, DeadlineExceeded, sqlite3.Error):
            return False

    def exists(self) -> bool:
        """Return whether the node's file contains a table; a new node creates an empty file."""
        if not super().exists():
            raise self.missing_error()
        with self._open_local() as connection:
            return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None

    def _open_local(self) -> "closing[sqlite3.Connection]":
        try:
            return closing(connect(self.path, READ_ONLY))
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error

    def open_for_serving(self) -> None:
        """Wait until the node is ready; raise DatabaseError if this release cannot use it."""
        self._wait_for_node()
        checks_keys, file = self.node.read_settings()
        url = self.node.url
        if not checks_keys:
            raise DatabaseError(
                f"{url} does not check foreign keys. Start rqlite with the -fk option."
            )
        # The path does not exist on this machine if the node runs in its own container.
        if os.path.exists(file) and not os.path.samefile(file, self.path):
            raise DatabaseError(
                f"{self.name} is not the file of {url}. Set CATALOG_DATABASE to"
                f" {path_text(Path(file))}."
            )
        if not self.exists():
            raise DatabaseError(f"{url} has no catalog. Create it with: widget-catalog init")
        self.check()

    def _wait_for_node(self) -> None:
        """Wait until the node has loaded its file and found a leader; log the reason for the wait.

        Give up after START_TIMEOUT: without a leader, the service can still serve reads.
        """
        end, reason = time.monotonic() + START_TIMEOUT, ""
        while time.monotonic() < end:
            try:
                self.node.check_ready()
                return
            except (NotDoneError, OutcomeUnknownError) as error:
                if str(error) != reason:
                    reason = str(error)
                    logger.warning("Waiting for the rqlite node: %s", reason)
            time.sleep(RETRY_INTERVAL)

    def check_writes(self) -> None:
        """Raise DatabaseError if there is no leader, ReplicaBehindError if the file is behind."""
        # Without a leader, the node takes seconds to respond.
        if not self.deadline.may_wait:
            raise WouldBlock
        if not self._wait_for(self.node.leader_revision(), CHECK_TIMEOUT):
            raise ReplicaBehindError(f"{self.name} is behind the leader.")

    def create(self, fill: Callable[[Transaction], None] | None = None) -> None:
        """Create the catalog in the empty cluster, with the content that the function adds."""
        if self.exists():
            raise DatabaseError(f"{self.name} already exists.")
        with scratch_directory(self.scratch_parent) as directory:
            new = directory / "catalog.db"
            create_catalog(new, fill)
            with closing(connect(new, "mode=rw")) as source:
                self.load(source)

    def migrate(self) -> None:
        """Migrate the whole cluster to this release's schema; stop all services first."""
        with self._open_local() as local, temporary_copy(local) as copy:
            if check_schema(copy, self.name) == SCHEMA_VERSION:
                return
            if read_revision(copy) != self.node.leader_revision():
                raise DatabaseError(
                    f"{self.name} lacks recent writes. Run the command on another node."
                )
            with copy:
                copy.execute("BEGIN")
                rebuild_tables(copy)
            self.load(copy)

    def replace_content(
        self, source: Path, actor: Actor, action: str, *, keeps_history: bool
    ) -> None:
        """Replace the catalog with the content of another file; see lifecycle.py."""
        revision = self.node.leader_revision()
        # Wait for the leader's writes: the local file may not yet show that a token was revoked.
        self.check_writes()
        with self._open_local() as local, temporary_copy(local) as copy:
            replace_content(copy, source, actor, action, keeps_history=keeps_history)
            if revision != self.node.leader_revision():
                raise DatabaseError("Another writer changed the catalog; nothing was done. Retry.")
            self.load(copy)

    def load(self, source: sqlite3.Connection) -> None:
        """Replace the cluster's entire content with the content of another database."""
        # Without a WAL, the serialized content is the whole file.
        source.execute("PRAGMA journal_mode = DELETE")
        content = source.serialize()
        if len(content) > MAX_LOADED:
            raise DatabaseError(
                f"The catalog has {len(content)} bytes, but a cluster loads at most {MAX_LOADED}. "
                "Start one new node, load the file with /boot, and let the others join it: see "
                "docs/operate/cluster.md."
            )
        self._retry(COMMAND_TIMEOUT, partial(self.node.load, content))
        if not self._wait_for(read_revision(source), COMMAND_TIMEOUT):
            raise DatabaseError(f"The cluster has loaded the catalog, but {self.name} is behind.")
