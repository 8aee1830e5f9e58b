"""Optional programs that tests run."""

import os
import shutil
import sys
from pathlib import Path

import pytest

# A user other than root often lacks the directories of nginx and systemd.
SEARCH_PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


def find_program(name: str, package: str = "") -> str:
    """Return the path of a program; without it, skip the test, or fail with REQUIRE_<PACKAGE>.

    The package has the name of the program unless stated.
    """
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        is_required = os.environ.get(f"REQUIRE_{(package or name).upper()}")
        leave = pytest.fail if is_required else pytest.skip
        leave(f"{name} is not installed.")
    return path
