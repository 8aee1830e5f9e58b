"""The database file of an rqlite node, which the service only reads.

The node owns the file: it writes, checkpoints and replaces it. The service opens connections with
mode=ro, so that not even closing the last connection checkpoints the file.

When a node starts or loads a file, it recreates its own file. Each thread then opens a connection
to the new file, which may lack recent writes for some seconds after the node has started.
"""

from ..database import Database
from ..file_paths import FileId, entry_id, wal_path
from ..sqlite import Connection, DatabaseError

READ_ONLY = "mode=ro"


class NodeFile(Database):
    """The catalog in a node's file, which each thread reads through its own connection."""

    migration_advice = (
        "Stop all services in the cluster, run widget-catalog migrate once, and start them again."
    )

    def reader(self) -> Connection:
        """Return this thread's connection; open a new one if the file has been replaced."""
        self.deadline.check()
        connection, at_path = self._thread.connection, self._find_files()
        if connection and (at_path in (connection.file, None) or connection.in_transaction):
            return connection
        if at_path is None:
            raise self.missing_error()
        try:
            new = self._open_unchanged(READ_ONLY)
        except DatabaseError:
            if connection is None:
                raise
            # The node has not yet completed the new file.
            return connection
        if connection:
            connection.close()
        # If the file has been replaced in the meantime, the next read opens the new one.
        new.file = at_path
        return new

    def check_in_place(self) -> None:
        """Do nothing: unlike a local file, a node's file may be replaced."""

    def missing_error(self) -> DatabaseError:
        """Return the error for a file that no node has created."""
        return DatabaseError(f"{self.name} does not exist. Start the rqlite node that owns it.")

    def _find_files(self) -> tuple[FileId, FileId | None] | None:
        """Return the identity of the file and of its WAL; None if there is no file.

        The node replaces the two files one after the other. A connection opened in between would
        keep reading an old WAL.
        """
        file = entry_id(self.path, follow_symlinks=True)
        return file and (file, entry_id(wal_path(self.path), follow_symlinks=True))
