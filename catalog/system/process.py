"""Prepares a server process: its output streams, its memory, and its limit on open files."""

import ctypes
import os
import resource
import sys
from contextlib import suppress

# A constant from glibc's malloc.h.
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 1024 * 1024  # bytes


def open_closed_outputs() -> None:
    """Discard output to streams that were closed when the process was started.

    Otherwise the next file or socket would get the stream's descriptor.
    """
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def release_large_blocks() -> None:
    """Make malloc return large blocks to the system when they are freed.

    By default, glibc keeps freed blocks for each thread: after 20 registries of 20 MB, the process
    took 960 MB instead of 180 MB.
    """
    # Other C libraries do not have mallopt.
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def allow_open_files(count: int) -> None:
    """Allow the process to open this many files; raise ValueError if the system allows fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        except ValueError:
            raise ValueError(f"this system allows {hard}") from None
