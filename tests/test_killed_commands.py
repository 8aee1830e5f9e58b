"""What a killed command leaves behind, and what happens to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, create_demo

from app import create_app
from catalog.atomic_files import atomic_replace, scratch_directory

# Runs a command up to the moment at which what it wrote is complete, but not in its place.
KILLED = """
import os, signal, sys
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["flask", *sys.argv[1:]]
import runpy
runpy.run_module("flask", run_name="__main__")
"""
# Is in the middle of replacing a file until its standard input ends.
WORKING = """
import sys
from pathlib import Path
from catalog.atomic_files import atomic_replace
with atomic_replace(Path(sys.argv[1])) as new:
    new.write_text("complete")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "service").mkdir()
    return create_demo(tmp_path / "service" / "catalog.db")


@pytest.fixture
def kept(catalog: Path, tmp_path: Path) -> Path:
    """A folder with a backup and a pack of the catalog."""
    (tmp_path / "kept").mkdir()
    flask(catalog, "backup", tmp_path / "kept" / "monday.db")
    flask(catalog, "pack", tmp_path / "kept" / "monday.pack")
    return tmp_path / "kept"


def flask(database: Path, *command: object) -> None:
    app = create_app({"DATABASE": database})
    result = app.test_cli_runner().invoke(args=[*map(str, command)])
    app.extensions["database"].close()
    assert result.exit_code == 0, result.stderr


def contents(folder: Path) -> set[str]:
    """The names of what is in the folder, without the files of SQLite's own."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


COMMANDS = {
    "backup": ("kept", ["backup", "monday.db"]),
    "restore": ("service", ["restore", "--yes", "monday.db"]),
    "unpack": ("service", ["unpack", "--yes", "monday.pack"]),
}


@pytest.mark.parametrize(("where", "line"), COMMANDS.values(), ids=COMMANDS)
def test_what_a_killed_command_left_is_removed_by_the_next(
    catalog: Path, kept: Path, where: str, line: list[str]
) -> None:
    folder = {"kept": kept, "service": catalog.parent}[where]
    command = [*line[:-1], str(kept / line[-1])]
    flask(catalog, *command)
    before = contents(folder)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *command],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(catalog)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert contents(folder) > before
    flask(catalog, *command)
    assert contents(folder) == before


@contextmanager
def working(target: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that is replacing the target, and completes it when its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKING, str(target)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def test_what_a_live_command_writes_is_not_removed(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with working(target) as process:
        with atomic_replace(target) as new:
            new.write_text("other")
        assert target.read_text() == "other"
        process.communicate()
        assert process.returncode == 0
    assert target.read_text() == "complete"
    assert list(tmp_path.iterdir()) == [target]


def test_only_what_looks_and_is_owned_like_a_scratch_directory_is_removed(tmp_path: Path) -> None:
    others = [tmp_path / ".widget-catalog-mine", tmp_path / ".widget-catalog-abcdefgh.bak"]
    for each in others:
        each.mkdir()
    link = tmp_path / ".widget-catalog-abcdefgh"
    link.symlink_to(others[0])
    with scratch_directory(tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([*others, link])


def test_replaced_file_keeps_the_mode_of_the_one_before(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.touch()
    target.chmod(0o640)
    with atomic_replace(target) as new:
        new.write_text("new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o640)


def test_file_that_fails_leaves_nothing_but_the_one_before(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_replace(target) as new:
        new.rename(tmp_path / "away")
    assert target.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "away", target]
