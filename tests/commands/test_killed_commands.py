"""Files that a killed command leaves: a command removes them a day later."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, import_demo

from app import create_app
from catalog.system.atomic_files import atomic_replace, scratch_directory

# Runs a command until its file is complete, but not yet renamed.
KILLED = """
import os, signal, sys
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["flask", *sys.argv[1:]]
import runpy
runpy.run_module("flask", run_name="__main__")
"""
# Replaces a file, and is not done before its standard input ends.
REPLACE_SLOWLY = """
import sys
from pathlib import Path
from catalog.system.atomic_files import atomic_replace
with atomic_replace(Path(sys.argv[1])) as new:
    new.write_text("complete")
    print("begun", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    (tmp_path / "service").mkdir()
    return import_demo(tmp_path / "service" / "catalog.db")


@pytest.fixture
def backups(catalog: Path, tmp_path: Path) -> Path:
    """Return a folder with a backup and a pack of the catalog."""
    (tmp_path / "backups").mkdir()
    flask(catalog, "backup", tmp_path / "backups" / "monday.db")
    flask(catalog, "pack", tmp_path / "backups" / "monday.pack")
    return tmp_path / "backups"


def flask(database: Path, *command: object) -> None:
    app = create_app({"DATABASE": database})
    result = app.test_cli_runner().invoke(args=[*map(str, command)])
    app.extensions["database"].close()
    assert result.exit_code == 0, result.stderr


def contents(folder: Path) -> set[str]:
    """Return the names in the folder, without WAL files."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


COMMANDS = {
    "backup": ("backups", ["backup", "monday.db"]),
    "unpack": ("service", ["unpack", "--yes", "monday.pack"]),
}


@pytest.mark.parametrize(("where", "line"), COMMANDS.values(), ids=COMMANDS)
def test_files_of_a_killed_command_are_removed_after_a_day(
    catalog: Path, backups: Path, where: str, line: list[str]
) -> None:
    folder = {"backups": backups, "service": catalog.parent}[where]
    command = [*line[:-1], str(backups / line[-1])]
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
    (left,) = contents(folder) - before
    set_age(folder / left, hours=25)
    flask(catalog, *command)
    assert contents(folder) == before


def set_age(directory: Path, *, hours: float) -> None:
    changed = time.time() - hours * 3600
    os.utime(directory, (changed, changed), follow_symlinks=False)


@contextmanager
def replacing_process(target: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that replaces the target once its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", REPLACE_SLOWLY, str(target)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


def test_files_of_a_running_command_are_not_removed(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with replacing_process(target) as process:
        with atomic_replace(target) as new:
            new.write_text("other")
        assert target.read_text() == "other"
        process.communicate()
        assert process.returncode == 0
    assert target.read_text() == "complete"
    assert list(tmp_path.iterdir()) == [target]


def test_only_scratch_directories_are_removed(tmp_path: Path) -> None:
    others = [tmp_path / ".widget-catalog-mine", tmp_path / ".widget-catalog-abcdefgh.bak"]
    for each in others:
        each.mkdir()
    link = tmp_path / ".widget-catalog-abcdefgh"
    link.symlink_to(others[0])
    for each in (*others, link):
        set_age(each, hours=25)
    with scratch_directory(tmp_path):
        pass
    assert sorted(tmp_path.iterdir()) == sorted([*others, link])


def test_only_the_owner_may_read_the_new_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.touch()
    target.chmod(0o640)
    with atomic_replace(target) as new:
        new.write_text("new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_replace(target) as new:
        new.rename(tmp_path / "away")
    assert target.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "away", target]
