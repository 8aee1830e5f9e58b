"""widget-catalog gc: removes the bundles that no version names, and no others."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document
from conftest import hold, run, running
from flask import Flask

AppWith = Callable[..., Flask]
OLD, NEW, HIDDEN = b"old", b"new!", b"hidden"
HASHES = {content: hashlib.sha256(content).hexdigest() for content in (OLD, NEW, HIDDEN)}
STRAY = "0" * 64
PATH = "/api/v1/widgets/acme/clock/2.0.0/bundle.js"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """Two versions, one of them yanked, and one of an unlisted widget, all with held bundles."""
    app = app_with(
        document("acme/clock", bundled("1.0.0", OLD, yanked=True), bundled("2.0.0", NEW)),
        document("acme/notes", bundled("1.0.0", HIDDEN), listed=False),
    )
    hold(app, OLD, NEW, HIDDEN)
    return app


def directory(app: Flask) -> Path:
    path: Path = app.extensions["bundles"].directory
    return path


def names(app: Flask) -> set[str]:
    return {path.name for path in directory(app).iterdir()}


def bundle_url(app: Flask) -> str:
    detail = app.test_client().get("/api/v1/widgets/acme/clock").get_json()
    (url,) = [each["bundleUrl"] for each in detail["versions"] if each["version"] == "2.0.0"]
    return str(url)


def test_bundles_of_versions_stay(app: Flask) -> None:
    result = run(app, "gc")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Removed 0 bundles of 0 bytes that no version uses.\n"
    assert names(app) == {*HASHES.values()}


def test_bundle_of_a_deleted_version_is_removed(app: Flask) -> None:
    run(app, "delete", "acme/clock@1.0.0", "--yes")
    assert names(app) == {*HASHES.values()}
    assert run(app, "gc").stderr == "Removed 1 bundle of 3 bytes that no version uses.\n"
    assert names(app) == {HASHES[NEW], HASHES[HIDDEN]}


def test_bundle_of_a_version_that_is_loaded_from_elsewhere_stays(app: Flask) -> None:
    app.extensions["database"].transact(
        running(
            "UPDATE version SET bundle_path = NULL WHERE sha256_hash = :hash", {"hash": HASHES[NEW]}
        )
    )
    run(app, "gc")
    assert names(app) == {*HASHES.values()}


def test_incomplete_file_of_a_killed_command_is_removed(app: Flask) -> None:
    for sha256 in (HASHES[OLD], STRAY):
        (directory(app) / f"{sha256}.partial").touch()
    assert run(app, "gc").stderr.splitlines() == [
        "Removed 0 bundles of 0 bytes that no version uses.",
        "Removed 2 incomplete bundles.",
    ]
    assert names(app) == {*HASHES.values()}


def test_other_files_stay(app: Flask) -> None:
    (directory(app) / "README").touch()
    run(app, "gc")
    assert names(app) == {*HASHES.values(), "README"}


def test_dry_run_removes_nothing(app: Flask) -> None:
    (directory(app) / STRAY).write_bytes(b"12345")
    app.extensions["bundles"].remove(HASHES[NEW])
    before = names(app)
    result = run(app, "gc", "--release", "--dry-run")
    assert result.stderr.splitlines() == [
        "Would remove 1 bundle of 5 bytes that no version uses.",
        f"Would release 1 version whose bundle is not in {directory(app)}.",
    ]
    assert names(app) == before
    assert bundle_url(app) == f"http://localhost{PATH}"


def test_release_gives_a_version_without_its_bundle_its_original_url(
    app: Flask,
) -> None:
    app.extensions["bundles"].remove(HASHES[NEW])
    run(app, "gc")
    assert bundle_url(app) == f"http://localhost{PATH}"
    result = run(app, "gc", "--release")
    assert result.stderr.splitlines() == [
        "Removed 0 bundles of 0 bytes that no version uses.",
        f"Released 1 version whose bundle is not in {directory(app)}.",
    ]
    assert bundle_url(app) == "https://cdn.example.com/bundles/2.0.0.js"
    assert run(app, "check").exit_code == 0


def test_release_reads_the_versions_once_for_all_missing_bundles(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sha256 in HASHES.values():
        app.extensions["bundles"].remove(sha256)
    app.extensions["database"].close()
    executed: list[str] = []
    connect = sqlite3.connect

    def connect_traced(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **keywords)
        connection.set_trace_callback(executed.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    result = run(app, "gc", "--release")
    assert result.stderr.splitlines()[-1].startswith("Released 3 versions ")
    # SQLite repeats a statement for each trigger that it fires.
    assert len({sql for sql in executed if sql.lstrip().startswith("UPDATE version")}) == 1
    monkeypatch.undo()
    log = json.loads(run(app, "log", "--json").stdout)
    released = [entry["name"] for entry in log if entry["action"] == "release"]
    assert sorted(released) == ["clock", "clock", "notes"]


def test_directory_of_another_catalog_is_not_changed(app: Flask, app_with: AppWith) -> None:
    empty = app_with(BUNDLES=str(directory(app)))
    result = run(empty, "gc")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {empty.extensions['database'].name} has no version; "
        f"is {directory(app)} of another catalog?\n",
    )
    assert names(app) == {*HASHES.values()}


def test_without_a_directory_there_is_nothing_to_do(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", OLD)))
    result = run(app, "gc")
    assert result.stderr == "Removed 0 bundles of 0 bytes that no version uses.\n"
    assert not directory(app).exists()
