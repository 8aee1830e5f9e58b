"""widget-catalog drill: the newest backup is restored to a folder of its own, and checked."""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import bundled, document
from conftest import exported, hold, run
from flask import Flask

from app import create_app

TICK = b"export default 'tick'\n"
FUTURE = "catalog-29990101T000000Z"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


@pytest.fixture
def app(app_with: Callable[..., Flask], directory: Path) -> Flask:
    """A catalog with a bundle, whose backup and pack are in the directory."""
    app = app_with(document("acme/clock", bundled("1.0.0", TICK)))
    hold(app, TICK)
    app.config["BACKUPS"] = str(directory)
    for command in ("backup", "pack"):
        assert run(app, command, "--dir", directory).exit_code == 0
    return app


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def newest(directory: Path, suffix: str) -> Path:
    (path,) = directory.glob(f"catalog-2*{suffix}")
    return path


def test_the_newest_backup_and_its_bundles_are_checked_and_nothing_changes(
    app: Flask, directory: Path
) -> None:
    before = files(directory), exported(app)
    backup, pack = newest(directory, ".db"), newest(directory, ".pack")
    result = run(app, "drill")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "",
        f"{backup} with {pack.name} is in order: 1 widget, 1 version, 1 bundle.\n",
    )
    assert (files(directory), exported(app)) == before
    assert len(os.listdir(directory)) == 2


def test_other_names_and_a_wrong_clock_do_not_win(app: Flask, directory: Path) -> None:
    for name in ("restored.db", f"{FUTURE}.db", f"{FUTURE}.pack", "catalog-old.db"):
        (directory / name).write_text("not a backup")
    assert run(app, "drill").exit_code == 0


def test_the_catalog_and_its_bundles_are_not_used(app: Flask, directory: Path) -> None:
    lost = {"DATABASE": directory / "none.db", "BUNDLES": app.extensions["bundles"].directory}
    other = create_app({**lost, "BACKUPS": str(directory)})
    newest(directory, ".pack").unlink()
    result = run(other, "drill")
    assert result.exit_code == 1
    missing = rf"acme/clock: version 1\.0\.0: its bundle \w+ of \d+ bytes is not in {directory}\."
    assert re.fullmatch(missing, result.stderr.splitlines()[0])
    backup, cause = newest(directory, ".db"), f"and no pack was found in {directory}"
    assert result.stderr.endswith(f"Error: 1 problem in {backup}, {cause}.\n")


@pytest.mark.parametrize("suffix", [".db", ".pack"])
def test_a_damaged_file_is_named(app: Flask, directory: Path, suffix: str) -> None:
    path = newest(directory, suffix)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 4])
    result = run(app, "drill")
    assert (result.exit_code, result.stderr.startswith(f"Error: {path}")) == (1, True)
    assert len(os.listdir(directory)) == 2


def test_a_pack_whose_catalog_was_changed_is_named(app: Flask, directory: Path) -> None:
    path = newest(directory, ".pack")
    path.write_bytes(path.read_bytes().replace(b'"Clock"', b'"Block"'))
    message = f"Error: {path}: catalog.jsonl in the pack does not match SHA256SUMS.\n"
    assert (result := run(app, "drill")).stderr == message
    assert result.exit_code == 1


def test_a_backup_with_wrong_rows_is_a_problem(app: Flask, directory: Path) -> None:
    path = newest(directory, ".db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE version SET bundle_url = 'nowhere'")
    result = run(app, "drill")
    problem = "acme/clock: version 1.0.0: bundleUrl must be an absolute http or https URL"
    assert (result.exit_code, result.stderr.startswith(problem)) == (1, True)
    assert result.stderr.endswith(f"Error: 1 problem in {path}.\n")


def test_without_a_backup_or_a_directory_it_says_so(
    app_with: Callable[..., Flask], tmp_path: Path
) -> None:
    result = run(app_with(), "drill", "--dir", tmp_path)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: No backups found in {tmp_path}.\n",
    )
    result = run(app_with(), "drill")
    assert (result.exit_code, "Specify --dir, or set CATALOG_BACKUPS." in result.stderr) == (
        2,
        True,
    )


def test_the_current_directory_can_be_named(
    directory: Path, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    result = run(app, "drill", "--dir", ".")
    assert (result.exit_code, "is in order" in result.stderr) == (0, True)
