"""The write-ahead log (WAL) beside the database file: its paths, and the limit of its size."""

from pathlib import Path

# Bytes above which a write truncates the WAL, and to which SQLite cuts it when it restarts it.
# Without long reads it stays at 16 MB; see wal_autocheckpoint in sqlite.py.
WAL_LIMIT = 32 * 1024 * 1024


def wal_path(path: Path) -> Path:
    """Return the path of the WAL of the database at the path."""
    return path.with_name(f"{path.name}-wal")


def shm_path(path: Path) -> Path:
    """Return the path of the WAL index, the memory that all connections share."""
    return path.with_name(f"{path.name}-shm")


def remove_wal(path: Path) -> None:
    """Remove the WAL of a file that is gone, before another file takes its place."""
    wal_path(path).unlink(missing_ok=True)
    shm_path(path).unlink(missing_ok=True)
