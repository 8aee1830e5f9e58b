"""backup and pack with --dir and --keep: dated files, of which the newest stay."""

import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Self

import pytest
from builders import bundled, document
from conftest import create_catalog, error_message, exported, hold, run, run_here, start_command
from flask import Flask
from users import UNPRIVILEGED, give_to_nobody, home_of_nobody

from app import create_app

TICK = b"export default 'tick'\n"
# The suffix of the files that each command writes.
COMMANDS = {"backup": ".db", "pack": ".pack"}
SetClock = Callable[[str], None]


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    app = app_with(document("acme/clock", bundled("1.0.0", TICK), downloadCount=5))
    hold(app, TICK)
    return app


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Return a function that sets the time for the commands."""

    def set_time(text: str) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Self:
                return cls.fromisoformat(text).replace(tzinfo=UTC)

        monkeypatch.setattr("catalog.commands.retention.datetime", Clock)

    return set_time


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def dated(command: str, *stamps: str) -> list[str]:
    return [f"catalog-{stamp}{COMMANDS[command]}" for stamp in stamps]


def keep(app: Flask, command: str, number: int, directory: Path) -> list[str]:
    """Run the command with --keep; return the names in the directory."""
    result = run(app, command, "--dir", directory, "--keep", number)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    return names(directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


MESSAGES = {"backup": "Backed up {} to {}.\n", "pack": "Packed 1 widget and 1 bundle to {1}.\n"}


def test_the_name_is_the_time_in_utc_and_the_file_is_for_its_owner_only(
    app: Flask, directory: Path, set_clock: SetClock, command: str
) -> None:
    set_clock("2026-11-15T03:00:09.999")
    result = run(app, command, "--dir", directory, "--keep", 3)
    (name,) = dated(command, "20261115T030009Z")
    message = MESSAGES[command].format(app.config["DATABASE"], directory / name)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", message)
    assert names(directory) == [name]
    assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_the_file_restores_the_catalog(
    app: Flask, directory: Path, tmp_path: Path, command: str
) -> None:
    (name,) = keep(app, command, 3, directory)
    other = create_app({"DATABASE": tmp_path / "other.db"})
    undo = {"backup": "restore", "pack": "unpack"}[command]
    assert run(other, undo, directory / name).exit_code == 0
    assert exported(other) == exported(app)
    other.extensions["database"].close()


def test_the_oldest_files_are_removed(
    app: Flask, directory: Path, set_clock: SetClock, command: str
) -> None:
    for day in (1, 2, 3, 4, 5):
        set_clock(f"2026-12-0{day}T03:00:00")
        keep(app, command, 3, directory)
    assert names(directory) == dated(
        command, "20261203T030000Z", "20261204T030000Z", "20261205T030000Z"
    )
    set_clock("2026-12-06T03:00:00")
    result = run(app, command, "--dir", directory, "--keep", 1)
    assert result.stderr.splitlines()[1:] == ["Removed 3 older files."]
    assert names(directory) == dated(command, "20261206T030000Z")


OTHER_NAMES = [
    "catalog.db",
    "catalog-20250101T000000Z.db.gz",
    "catalog-20250101T000000Z.jsonl",
    "catalog-2025011T000000Z.db",
    "Catalog-20250101T000000Z.db",
    "catalog-２０２５0101T000000Z.db",
    "my-catalog-20250101T000000Z.pack",
]


def test_other_files_stay(app: Flask, directory: Path, command: str) -> None:
    (other_command,) = COMMANDS.keys() - {command}
    others = [*OTHER_NAMES, *dated(other_command, "20250101T000000Z")]
    for name in others:
        (directory / name).write_text(name)
    (folder,) = dated(command, "20250101T000000Z")
    (directory / folder).mkdir()
    keep(app, command, 1, directory)
    left = keep(app, command, 1, directory)
    assert len(left) == len(others) + 2
    assert {*others, folder} <= {*left}


def test_files_of_the_same_second_get_names_of_their_own(
    app: Flask, directory: Path, set_clock: SetClock, command: str
) -> None:
    set_clock("2026-12-31T23:59:59.5")
    for _ in range(3):
        keep(app, command, 5, directory)
    assert names(directory) == dated(
        command, "20261231T235959Z", "20270101T000000Z", "20270101T000001Z"
    )


def test_files_that_a_wrong_clock_has_named_later_neither_count_nor_go(
    app: Flask, directory: Path, set_clock: SetClock, command: str
) -> None:
    (last,) = dated(command, "99991231T235959Z")
    (directory / last).write_text("not ours")
    for time in ("2099-12-10T03:00:00", "2026-12-01T03:00:00", "2026-12-01T03:00:00"):
        set_clock(time)
        keep(app, command, 1, directory)
    assert names(directory) == [*dated(command, "20261201T030001Z", "20991210T030000Z"), last]


def test_commands_at_the_same_time_write_files_of_their_own(app: Flask, directory: Path) -> None:
    line = ("backup", "--dir", directory, "--keep", 9, "-q")
    started = [start_command(app.config["DATABASE"], *line) for _ in range(2)]
    results = [(each.communicate(timeout=60)[1], each.returncode) for each in started]
    assert results == [("", 0)] * 2
    assert len(names(directory)) == 2


# Where to damage the file, and the message: an index that opening a database does not read, the
# catalog in a pack.
INDEX = "SELECT (rootpage - 1) * 4096 FROM sqlite_schema WHERE name = 'version_newest'"
DAMAGES = {
    "backup": (None, " cannot be copied to "),
    "pack": (1540, "catalog.jsonl in the pack does not match SHA256SUMS."),
}


@pytest.mark.parametrize(
    ("command", "offset", "message"), [(name, *damage) for name, damage in DAMAGES.items()]
)
def test_a_file_that_differs_on_the_disk_is_refused_and_no_other_is_removed(
    app: Flask,
    directory: Path,
    command: str,
    offset: int | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep(app, command, 1, directory)
    before = contents(directory)
    place = offset or app.extensions["database"].fetch(INDEX, {})[0][0]

    def damage(descriptor: int, *_: object) -> None:
        with open(f"/proc/self/fd/{descriptor}", "r+b") as file:
            file.seek(place)
            file.write(b"\xaa" * 100)

    # The last call before the file is read from the disk.
    monkeypatch.setattr(os, "posix_fadvise", damage)
    assert message in error_message(run(app, command, "--dir", directory, "--keep", 1))
    assert contents(directory) == before


def test_a_failed_command_removes_nothing(app: Flask, directory: Path) -> None:
    keep(app, "pack", 1, directory)
    before = contents(directory)
    bundle = next(app.extensions["bundles"].hashes())
    app.extensions["bundles"].path(bundle).unlink()
    assert "cannot be packed" in error_message(run(app, "pack", "--dir", directory, "--keep", 1))
    assert contents(directory) == before


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process become larger in the block, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_an_error_that_names_the_directory(
    app: Flask, directory: Path, command: str
) -> None:
    keep(app, command, 1, directory)
    before = contents(directory)
    with file_size_limit(8192):
        message = error_message(run(app, command, "--dir", directory, "--keep", 1))
    reason = {"backup": "its disk is full", "pack": "File too large"}[command]
    assert message == f"{directory} cannot be written: {reason}."
    assert contents(directory) == before


def test_a_full_disk_is_named_where_no_file_is_given(app: Flask, tmp_path: Path) -> None:
    manifest = {"scope": "acme", "name": "big", "version": "1.0.0", "displayName": "B"}
    (tmp_path / "big.json").write_text(json.dumps({**manifest, "sdkVersion": "*"}))
    (tmp_path / "big.js").write_bytes(b"x" * 10_000)
    with file_size_limit(8192):
        result = run(app, "publish", tmp_path / "big.json", tmp_path / "big.js", "--store")
    assert error_message(result) == f"{app.extensions['bundles'].directory}: File too large."
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    with file_size_limit(50_000):
        message = error_message(run(app, "restore", tmp_path / "backup.db", "--yes"))
    assert f"the disk of {app.config['DATABASE']} is full." in message


def test_a_missing_directory_is_created_for_its_owner_only(
    app: Flask, tmp_path: Path, command: str
) -> None:
    directory = tmp_path / "new"
    assert run(app, command, "--dir", directory).exit_code == 0
    assert (len(names(directory)), directory.stat().st_mode & 0o777) == (1, 0o700)


def test_a_directory_whose_parent_is_missing_is_not_created(
    app: Flask, tmp_path: Path, command: str
) -> None:
    directory = tmp_path / "not mounted" / "backups"
    message = error_message(run(app, command, "--dir", directory))
    assert message == f"{directory} cannot be written: No such file or directory."
    assert not directory.parent.exists()


def test_a_bundle_that_cannot_be_read_is_named(app: Flask, directory: Path) -> None:
    bundles = app.extensions["bundles"]
    sha256 = next(bundles.hashes())
    bundles.remove(sha256)
    bundles.path(sha256).mkdir()
    message = error_message(run(app, "pack", "--dir", directory))
    assert message == f"Cannot read {bundles.path(sha256)}: Is a directory."
    assert names(directory) == []


def test_without_keep_no_file_is_removed(app: Flask, directory: Path, command: str) -> None:
    for _ in range(3):
        assert run(app, command, "--dir", directory).exit_code == 0
    assert len(names(directory)) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Specify either FILE or --dir."),
        (("copy", "--dir", "."), "Specify either FILE or --dir."),
        (("copy", "--keep", "1"), "--keep needs --dir."),
        ((".",), "Invalid value for '[FILE]': File '.' is a directory."),
        (("--dir", __file__), f"Invalid value for '--dir': Directory '{__file__}' is a file."),
        (("--dir", ".", "--keep", "0"), "Invalid value for '--keep': 0 is not in the range x>=1."),
    ],
)
def test_wrong_usage_writes_nothing(
    app: Flask,
    directory: Path,
    command: str,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(directory)
    result = run(app, command, *arguments)
    assert (result.exit_code, result.stderr.endswith(f"Error: {message}\n")) == (2, True)
    assert names(directory) == []


def test_a_missing_permission_is_an_error_that_names_the_directory() -> None:
    with home_of_nobody() as home:
        catalog, target = create_catalog(home / "catalog.db"), home / "backups"
        target.mkdir(mode=0o500)
        for path in (catalog, target):
            give_to_nobody(path)
        line = ["-m", "flask", "backup", "--dir", target, "--keep", "1"]
        result = run_here(catalog, *line, run_by=UNPRIVILEGED)
        assert names(target) == []
    message = f"Error: {target} cannot be written: Permission denied.\n"
    assert (result.returncode, result.stderr) == (1, message)
