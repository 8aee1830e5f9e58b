"""The catalog on a cluster of rqlite nodes.

Cluster has the methods of Database, so nothing else knows which of the two it uses. A read is
from the file of the node on this machine. A write is sent to the nearest node, which forwards it to
the leader; the leader acknowledges it when a majority of the nodes has it on disk. Then the write
waits until the local node has applied it too, so that the next read shows it.

- `rqlite_http`: requests to the nodes, and which errors allow to send a write again.
- `node_file`: connections to the file of a node.
"""

import secrets
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from catalog.store.connection.cluster.node_file import READ_ONLY, NodePool
from catalog.store.connection.cluster.rqlite_http import (
    READ_REVISION,
    Nodes,
    NotDoneError,
    OutcomeUnknownError,
    Revision,
    read_revision,
)
from catalog.store.connection.database import Database, is_single
from catalog.store.connection.sqlite import (
    DatabaseError,
    ReplicaBehindError,
    Statement,
    WouldBlock,
    connect,
    execute_all,
)
from catalog.store.schema.migrations import rebuild_tables
from catalog.store.schema.schema import (
    SCHEMA_VERSION,
    SET_SUPPORTS,
    check_schema,
    schema_statements,
)

# Statements of one request, which is one transaction and one entry of the log. The 1,000th returns
# the revision.
PART_SIZE = 999
# How long a write that was surely not done is sent again: a new leader may be elected meanwhile.
# After that has failed once, the next writes do not wait that long.
RETRY_TIME = 5.0  # seconds
RETRY_TIME_AFTER_FAILURE = 0.2  # seconds
RETRY_INTERVAL = 0.05  # seconds
# How long a request waits for the outcome of its write, retries included; a command, of each part.
REQUEST_TIMEOUT = 5.5  # seconds
COMMAND_TIMEOUT = 60.0  # seconds
# How long a write waits until the local node has applied it; also when a node counts as behind.
APPLY_TIMEOUT = 2.0  # seconds
APPLY_TIMEOUT_AFTER_FAILURE = 0.2  # seconds
APPLY_INTERVAL = 0.002  # seconds
# How long a health check waits for the same.
CHECK_TIMEOUT = 0.2  # seconds
# A write that was acknowledged and applied takes no longer.
WRITE_TIMEOUT = 6.0  # seconds
# rqlite replicates a loaded file as one entry of its log.
MAX_LOADED = 64 * 1024 * 1024  # bytes
LOAD_TIMEOUT = 60.0  # seconds
# Before on_wait is called.
WAIT_NOTICE = 1.0  # seconds

UNREACHED = Revision(sys.maxsize, sys.maxsize)

# The schema fills it with a random text, which would differ between the nodes.
SET_HISTORY = "UPDATE revision SET history = :history"
# Readers keep to a file until its successor has a higher revision.
RAISE_REVISION = """
UPDATE revision SET content = max(content, :content + 1), downloads = max(downloads, :downloads + 1)
"""

T = TypeVar("T")


class Cluster(Database):
    """The catalog of a cluster, and the file of the node on this machine, which is only read."""

    pool_class = NodePool
    _connections: NodePool
    is_cluster = True
    # With one thread, a follower acknowledged 13 installs per second; with 16 it is over 300.
    writer_threads = 16

    def __init__(self, path: Path, urls: Sequence[str], ca: str = "", **options: Any) -> None:
        super().__init__(path, **options)
        self.nodes = Nodes(urls, ca)
        self._program = options.get("program", "flask")
        self._retry_time = RETRY_TIME
        # Whether the local node did not apply the last write in time.
        self._is_behind = False
        # A revision that the local file lacks, and since when. At first it counts as behind.
        self._missing: tuple[Revision, float] | None = UNREACHED, -APPLY_TIMEOUT

    @property
    def scratch_parent(self) -> Path:
        """The directory for temporary files: only the node writes beside its file."""
        return Path(tempfile.gettempdir())

    def _commit(self, statements: Iterable[Statement]) -> list[int]:
        """Run the statements in transactions of up to PART_SIZE; return the rows each changed."""
        deadline = time.monotonic() + WRITE_TIMEOUT
        timeout = COMMAND_TIMEOUT if self.on_wait else REQUEST_TIMEOUT
        counts: list[int] = []
        revision = None
        has_supports = not is_single(statements)
        for part in in_parts(chain(statements, [SET_SUPPORTS] if has_supports else [])):
            try:
                part_counts, revision = self._retry(timeout, partial(self.nodes.execute, part))
            except DatabaseError as error:
                if not counts:
                    raise
                done = f"Only the first {len(counts)} statements were surely written; run it again."
                raise DatabaseError(f"{error} {done}") from error
            counts += part_counts
        if revision:
            timeout = APPLY_TIMEOUT_AFTER_FAILURE if self._is_behind else APPLY_TIMEOUT
            if not self.on_wait:
                timeout = min(timeout, deadline - time.monotonic())
            self._is_behind = not self._wait_for(revision, timeout)
        return counts[:-1] if has_supports else counts

    def _retry(self, timeout: float, send: Callable[[float], T]) -> T:
        """Return what send() returns; repeat it while it was not done, up to RETRY_TIME."""
        started = time.monotonic()
        is_waiting = False
        while True:
            waited = time.monotonic() - started
            try:
                result = send(timeout - waited)
            except NotDoneError as error:
                if waited + RETRY_INTERVAL > self._retry_time:
                    self._retry_time = RETRY_TIME_AFTER_FAILURE
                    raise NotDoneError(f"The cluster cannot be written now: {error}") from error
                if self.on_wait and waited > WAIT_NOTICE and not is_waiting:
                    is_waiting = True
                    self.on_wait()
                time.sleep(RETRY_INTERVAL)
            except OutcomeUnknownError as error:
                message = f"It is not known whether the write was done: {error}"
                raise OutcomeUnknownError(message) from error
            else:
                self._retry_time = RETRY_TIME
                return result

    def _wait_for(self, revision: Revision, timeout: float) -> bool:
        """Wait until the local file has reached the revision; return whether it has."""
        started = time.monotonic()
        while not self._has_reached(revision):
            if time.monotonic() - started >= timeout:
                if self._missing is None or self._has_reached(self._missing[0]):
                    self._missing = revision, started
                return False
            time.sleep(APPLY_INTERVAL)
        return True

    def _has_reached(self, revision: Revision) -> bool:
        try:
            local = self._connections.revision()
        except DatabaseError:
            return False
        return local is not None and local.has_reached(revision)

    def dry_run(self, statements: Iterable[Statement]) -> list[int]:
        """Return what write() would return, from a copy of the local file in memory."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with self.read() as connection:
                connection.backup(copy)
            copy.execute("PRAGMA foreign_keys = ON")
            copy.execute("BEGIN")
            return execute_all(copy, statements, "ROLLBACK")

    def exists(self) -> bool:
        """Return whether the file of the node has any table; a new node creates an empty file."""
        if self._connections.status() is None:
            raise DatabaseError(
                f"{self.name} does not exist. Start the rqlite node whose file it is."
            )
        with self._open_copy() as connection:
            return connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None

    def _open_copy(self) -> "closing[sqlite3.Connection]":
        try:
            return closing(connect(self.path, READ_ONLY))
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.name} cannot be opened: {error}.") from error

    def check_start(self) -> None:
        """Raise DatabaseError unless every node that responds can be used by this release."""
        for node in self.nodes.all:
            try:
                state = self.nodes.state(node)
            except (NotDoneError, OutcomeUnknownError):
                continue
            if not state.foreign_keys:
                raise DatabaseError(
                    f"{node.url} does not check foreign keys. Start rqlite with the option -fk."
                )
            if not state.is_catalog:
                raise DatabaseError(
                    f"{node.url} has no catalog. Create it with: {self._program} init"
                )
            if state.schema_version != SCHEMA_VERSION:
                raise DatabaseError(
                    f"{node.url} has schema version {state.schema_version}, and this release needs "
                    f"{SCHEMA_VERSION}. Stop all services of the cluster, run the command migrate "
                    "once, and start them again."
                )
        self.check()

    def is_writable(self) -> bool:
        """Return whether the last write found a leader."""
        return self._retry_time == RETRY_TIME

    def check_writes(self) -> None:
        """Raise DatabaseError without a leader, ReplicaBehindError if the file is behind."""
        if self.deadline.on_io_thread:
            raise WouldBlock
        latest = self.nodes.leader_revision()
        if self._wait_for(latest, CHECK_TIMEOUT):
            self._missing = None
        elif self._missing and time.monotonic() - self._missing[1] >= APPLY_TIMEOUT:
            raise ReplicaBehindError(f"{self.name} lacks writes that the leader has.")

    def create(self, statements: Iterable[Statement] = ()) -> None:
        """Create the catalog in the empty cluster, with the content that the statements add."""
        if self.exists():
            raise DatabaseError(f"{self.name} exists already.")
        set_history = SET_HISTORY, {"history": secrets.token_hex(8)}
        self.write([*schema_statements(), set_history, *statements])

    def migrate(self) -> None:
        """Migrate the whole cluster to the schema of this release; no service may be running."""
        with self._open_copy() as connection, closing(sqlite3.connect("")) as copy:
            if check_schema(connection, self.name) == SCHEMA_VERSION:
                return
            copy.isolation_level = None
            connection.backup(copy)
            local = Revision(*copy.execute(READ_REVISION).fetchone())
            if local != self.nodes.leader_revision():
                raise DatabaseError(f"{self.name} lacks recent writes. Run it on another node.")
            with copy:
                copy.execute("BEGIN")
                rebuild_tables(copy)
            self.replace_content(copy)

    def replace_content(self, source: sqlite3.Connection) -> None:
        """Replace the whole content of the cluster by that of another database."""
        with self._open_copy() as connection:
            if (row := read_revision(connection)) is not None:
                source.execute(RAISE_REVISION, row._asdict())
        # Without a WAL, the serialized content is the whole file.
        source.execute("PRAGMA journal_mode = DELETE")
        content = source.serialize()
        if len(content) > MAX_LOADED:
            raise DatabaseError(
                f"The catalog has {len(content)} bytes, and a cluster loads at most {MAX_LOADED}. "
                "Start one new node, load the file with /boot, and let the others join it: see "
                "docs/scaling.md."
            )
        revision = read_revision(source)
        self._retry(LOAD_TIMEOUT, partial(self.nodes.load, content))
        if revision and not self._wait_for(revision, LOAD_TIMEOUT):
            raise DatabaseError(f"The cluster has loaded it, but {self.name} is behind.")


def in_parts(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    """Yield the statements in lists of up to PART_SIZE."""
    iterator = iter(statements)
    while part := list(islice(iterator, PART_SIZE)):
        yield part
