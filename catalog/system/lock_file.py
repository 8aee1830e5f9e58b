"""A lock file, which lets only one process at a time run a long operation."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .atomic_files import is_at_path


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock during the with block; raise BlockingIOError if another process holds it.

    The kernel releases the lock when the process ends or is killed. Some network file systems
    cannot lock a file; there, nothing is locked.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                yield
                return
            # The previous holder of the lock may have removed the file before this process locked
            # it.
            if is_at_path(path, descriptor):
                try:
                    yield
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                return
        finally:
            os.close(descriptor)
