"""Files that appear complete or not at all."""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = ".widget-catalog-"
SCRATCH = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new file that takes the target's place, and mode, if nothing goes wrong.

    Where there is no target yet, the file is for its owner alone.
    """
    target = Path(os.path.realpath(target))
    with scratch_directory(target.parent) as directory:
        new = directory / "new"
        new.touch(mode=0o600)
        yield new
        with open(new, "rb") as file:
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
        os.replace(new, target)
        sync_directory(target.parent)


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A directory for files that are not complete yet, removed at the end with all in it.

    A process that is killed leaves its own behind; the next one that needs one in the same place
    removes it. A process holds a lock on its directory, so that none is removed that is in use.
    """
    _remove_abandoned(parent)
    directory, descriptor = _make_locked(parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        directory = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
        # Another process may take it for abandoned before it is locked. Then another is made.
        with suppress(FileNotFoundError):
            descriptor = _open_directory(directory)
            if _lock(descriptor) is not False and _is_at(directory, descriptor):
                return directory, descriptor
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in filter(SCRATCH.fullmatch, names):
        # What cannot be opened is no directory, or that of another user.
        with suppress(OSError):
            descriptor = _open_directory(parent / name)
            try:
                is_own = os.fstat(descriptor).st_uid == os.geteuid()
                if is_own and _lock(descriptor):
                    shutil.rmtree(parent / name, ignore_errors=True)
            finally:
                os.close(descriptor)


def _open_directory(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(descriptor: int) -> bool | None:
    """Whether the lock is ours now; None on a file system that has none for directories."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def sync_directory(directory: Path) -> None:
    """Let what was renamed into the directory last through a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
