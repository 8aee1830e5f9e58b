"""Files that are replaced completely or not at all, even if the process is killed."""

import errno
import fcntl
import itertools
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

SCRATCH_PREFIX = ".widget-catalog-"
SCRATCH_NAMES = f"{SCRATCH_PREFIX}????????"
# A directory for incomplete files is abandoned if no file was created in it for this long.
ABANDONED_AFTER = 86_400  # seconds
# How long a process that is waiting for a lock pauses between attempts.
LOCK_INTERVAL = 0.05  # seconds


@contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """Yield a new file for the block to write; it replaces the target if the block succeeds.

    Only the owner may read and write the new file, regardless of the file that it replaces. If the
    target is a link, the link itself is replaced: another user may have created it.
    """
    with scratch_directory(target.parent) as directory:
        new = directory / "new"
        new.touch(mode=0o600)
        yield new
        replace_file(new, target)


def replace_file(new: Path, target: Path) -> None:
    """Replace the target with a new file, in one step that survives a crash."""
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    os.replace(new, target)
    sync_directory(target.parent)


def is_special(path: Path) -> bool:
    """Return whether the path is a device, a pipe or the like, which must not be replaced.

    /dev/stdout is a link, possibly to a regular file, and must not be replaced either.
    """
    if path.exists() and not path.is_file():
        return True
    top, *rest = Path(os.path.abspath(path)).parts[1:] or [""]
    # Unlike the rest of /dev, the shared memory in /dev/shm contains regular files.
    return top in ("dev", "proc") and rest[:1] != ["shm"]


@contextmanager
def locked_new_file(target: Path) -> Iterator[None]:
    """Prevent other callers from creating the target file while the block writes it.

    The target is empty until the block replaces it. Raise FileExistsError if it has content.
    """
    with open(target, "ab", opener=partial(os.open, mode=0o600)) as file:
        # Some network file systems cannot lock a file; there, the file is not locked.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size > 0 or not is_at_path(target, file.fileno()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        yield


def find_unused(path: Path) -> Path:
    """Return the path if it is unused, else the path with the first unused suffix: .2, .3 etc."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not os.path.lexists(each))


def keep_file(path: Path, name: Path) -> None:
    """Give the file a second name, which must be unused; it also keeps its first name."""
    try:
        os.link(path, name)
    except OSError:
        # The file system does not support hard links.
        shutil.copy2(path, name)


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Create a directory for incomplete files, and remove it with its content after the block.

    A process that is killed leaves its directory behind. The first call with the same parent after
    a day removes that directory.
    """
    for path in parent.glob(SCRATCH_NAMES):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(path, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(dir=parent, prefix=SCRATCH_PREFIX))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def is_at_path(path: Path, descriptor: int) -> bool:
    """Return whether the path still refers to the open file or directory."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextmanager
def locked_directory(
    directory: Path, timeout: float = math.inf, on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Prevent other callers from changing the directory while the block runs.

    If another caller holds the lock, call on_wait and wait; raise TimeoutError after the timeout in
    seconds. Some network file systems cannot lock a directory; there, the directory is not locked.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + timeout
        is_waiting = False
        while not _try_lock(descriptor):
            if not is_waiting and on_wait:
                on_wait()
            is_waiting = True
            if time.monotonic() >= end:
                reason = f"another command has locked it for {timeout:.0f} seconds; try again"
                raise TimeoutError(errno.ETIMEDOUT, reason, str(directory))
            time.sleep(LOCK_INTERVAL)
        yield
    finally:
        # Closing the descriptor releases the lock. The kernel does the same when the process ends.
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock the directory; return False if another caller holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def sync_directory(directory: Path) -> None:
    """Make renames in the directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if the file is missing or inaccessible."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def drop_from_memory(file: BinaryIO) -> None:
    """Write the file to disk, and drop it from the page cache: the next read uses the disk."""
    os.fsync(file.fileno())
    # Some systems lack posix_fadvise(), and some file systems ignore it.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
