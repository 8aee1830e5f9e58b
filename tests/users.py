"""Processes that run as a user without privileges."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
# Root ignores permissions, so the tests run processes as another user.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
UNPRIVILEGED = AS_NOBODY if IS_ROOT else []


@cache
def nobody_can_run_python() -> bool:
    """Return whether the user of UNPRIVILEGED can import the packages that the service needs."""
    command = [*UNPRIVILEGED, sys.executable, "-c", "import flask"]
    is_found = shutil.which(command[0]) is not None
    return is_found and subprocess.run(command, cwd=ROOT, check=False).returncode == 0


@contextmanager
def home_of_nobody() -> Iterator[Path]:
    """Create a directory that belongs to the user of UNPRIVILEGED."""
    directory = Path(tempfile.mkdtemp())
    try:
        give_to_nobody(directory)
        if not nobody_can_run_python():
            pytest.skip("the user nobody cannot run the service here")
        yield directory
    finally:
        shutil.rmtree(directory)


def give_to_nobody(path: Path) -> None:
    """Make the user of UNPRIVILEGED the owner."""
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
