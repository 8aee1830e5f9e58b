"""widget-catalog gc: removes the bundles that no version names, and no others."""

import hashlib
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document
from conftest import hold, run, running, start_command
from flask import Flask

AppWith = Callable[..., Flask]
OLD, NEW, HIDDEN = b"old", b"new!", b"hidden"
HASHES = {content: hashlib.sha256(content).hexdigest() for content in (OLD, NEW, HIDDEN)}
STRAY = "0" * 64
PATH = "/api/v1/widgets/acme/clock/2.0.0/bundle.js"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """Two versions, one of them yanked, and one of an unlisted widget, all with stored bundles."""
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
    assert result.stderr == "Removed 0 unused bundles (0 bytes in total).\n"
    assert names(app) == {*HASHES.values()}


def test_bundle_of_a_deleted_version_is_removed(app: Flask) -> None:
    run(app, "delete", "acme/clock@1.0.0", "--yes")
    assert names(app) == {*HASHES.values()}
    assert run(app, "gc").stderr == "Removed 1 unused bundle (3 bytes in total).\n"
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
        "Removed 0 unused bundles (0 bytes in total).",
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
    result = run(app, "gc", "--dry-run")
    assert result.stderr == "Would remove 1 unused bundle (5 bytes in total).\n"
    assert names(app) == before
    assert bundle_url(app) == f"http://localhost{PATH}"


def test_bundles_of_the_last_widgets_are_removed(app: Flask) -> None:
    for widget in ("acme/clock", "acme/notes"):
        run(app, "delete", widget, "--yes")
    assert run(app, "gc").stderr == "Removed 3 unused bundles (13 bytes in total).\n"
    assert names(app) == set()


MARK_GONE = """
INSERT INTO mirrored (widget_id, source, gone)
SELECT id, 'https://up.example', 1 FROM widget WHERE name = 'notes'
"""


def test_a_copy_that_is_listed_again_meanwhile_keeps_its_bundle(app: Flask) -> None:
    app.extensions["database"].transact(running(MARK_GONE))
    path = app.config["DATABASE"]
    with closing(sqlite3.connect(path, isolation_level=None)) as mirror:
        mirror.execute("BEGIN IMMEDIATE")
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        settings = {"CATALOG_BUNDLES": str(directory(app))}
        with start_command(path, "gc", settings=settings, **pipes) as command:
            assert command.stderr is not None
            assert command.stderr.readline() == "The database is busy; waiting.\n"
            mirror.execute("UPDATE mirrored SET gone = 0")
            mirror.execute("UPDATE widget SET listed = 1 WHERE name = 'notes'")
            mirror.execute("COMMIT")
            _, output = command.communicate()
    assert output == "Removed 0 unused bundles (0 bytes in total).\n"
    assert names(app) == {*HASHES.values()}


def test_without_a_directory_there_is_nothing_to_do(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", OLD)))
    result = run(app, "gc")
    assert result.stderr == "Removed 0 unused bundles (0 bytes in total).\n"
    assert not directory(app).exists()
