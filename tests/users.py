"""Processes of a user who may not do everything, as a service ought to be."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
# Root may do everything: only as somebody else can it be refused anything.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
UNPRIVILEGED = AS_NOBODY if IS_ROOT else []


@contextmanager
def home_of_nobody() -> Iterator[Path]:
    """A directory of the user that UNPRIVILEGED runs as; pytest's own is for its owner alone."""
    directory = Path(tempfile.mkdtemp())
    try:
        give_to_nobody(directory)
        can = [*UNPRIVILEGED, sys.executable, "-c", "import flask"]
        if shutil.which(can[0]) is None or subprocess.run(can, cwd=ROOT, check=False).returncode:
            pytest.skip("nobody cannot run the service here")
        yield directory
    finally:
        shutil.rmtree(directory)


def give_to_nobody(path: Path) -> None:
    """Make the user that UNPRIVILEGED runs as the owner."""
    if IS_ROOT:
        os.chown(path, NOBODY, NOBODY)
