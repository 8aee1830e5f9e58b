"""Files that appear complete or not at all."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new file that takes the target's place, and mode, if nothing goes wrong.

    Where there is no target yet, the file is for its owner alone.
    """
    target = Path(os.path.realpath(target))
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}."[:100])
    try:
        if target.exists():
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
        yield Path(name)
        os.fsync(descriptor)
        os.replace(name, target)
        sync_directory(target.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Let what was renamed into the directory last through a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
