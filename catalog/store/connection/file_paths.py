"""The paths of a database file and its WAL, and whether these files are in place and writable."""

import os
from contextlib import suppress
from pathlib import Path

# The device number and the inode number.
FileId = tuple[int, int]


def wal_path(path: Path) -> Path:
    """Return the path of the database's WAL."""
    return path.with_name(f"{path.name}-wal")


def shm_path(path: Path) -> Path:
    """Return the path of the WAL index, which is memory shared by all connections."""
    return path.with_name(f"{path.name}-shm")


def remove_wal(path: Path) -> None:
    """Remove the WAL of a missing file: SQLite would apply it to a new file at the same path."""
    wal_path(path).unlink(missing_ok=True)
    shm_path(path).unlink(missing_ok=True)


def entry_id(path: Path, *, follow_symlinks: bool = False) -> FileId | None:
    """Return the identity of the file or link at the path; None if nothing is there."""
    try:
        status = os.stat(path, follow_symlinks=follow_symlinks)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_in_wal_mode(path: Path) -> bool:
    """Return whether the file's header says that the database is in WAL mode."""
    with path.open("rb") as file:
        return file.read(20)[18:19] == b"\2"


def is_deleted(opened: FileId | None) -> bool:
    """Return whether a file that this process has open was deleted."""
    for name in os.listdir("/dev/fd"):
        # The list includes the descriptor that listdir() used, which is already closed.
        with suppress(OSError):
            status = os.fstat(int(name))
            if (status.st_dev, status.st_ino) == opened:
                return status.st_nlink == 0
    return False


def missing_permission(path: Path) -> str | None:
    """Return why this user cannot write to the file, or None; SQLite does not report the reason."""
    for file in (path, wal_path(path), shm_path(path)):
        if file.exists() and not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
            return _read_only(file) or f"this user cannot read and write {file.name}"
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        return (
            _read_only(path.parent)
            or "this user cannot write to its directory, where SQLite creates the WAL"
        )
    return None


def _read_only(path: Path) -> str | None:
    """Return a message if the file system is read-only, for example because of ProtectSystem=."""
    if not os.statvfs(path).f_flag & os.ST_RDONLY:
        return None
    return (
        "its file system is read-only (EROFS). In a systemd unit, add the directory to"
        " ReadWritePaths="
    )
