"""Deleted versions: their numbers cannot be published again with another bundle."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import bundled, document, version
from click.testing import Result
from conftest import ROOT, exported, hold, put, run, running
from flask import Flask

AppWith = Callable[..., Flask]
FIRST, OTHER = b"export default 1\n", b"export default 2\n"
URL = "https://cdn.example.com/{scope}/{name}/{version}.js"
MANIFEST = {
    **{"scope": "acme", "name": "clock", "version": "1.0.0"},
    **{"displayName": "Clock", "sdkVersion": "^1.0.0"},
}
REFUSED = (
    "Error: acme/clock@1.0.0 was published with a different bundle and deleted; clients may "
    "have cached that bundle, so publish this one as a new version.\n"
)


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(BUNDLE_URL=URL)


def run_successfully(app: Flask, *arguments: object) -> Result:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output
    return result


def files(app: Flask, bundle: bytes) -> list[str]:
    database = Path(app.config["DATABASE"])
    manifest, content = database.with_name("clock.json"), database.with_name("clock.js")
    manifest.write_text(json.dumps(MANIFEST), encoding="utf-8")
    content.write_bytes(bundle)
    return [str(manifest), str(content)]


# What is deleted, and the subject of the sentence that says what that means.
DELETES = {"acme/clock@1.0.0": "Its number", "acme/clock": "Its version numbers"}


@pytest.mark.parametrize(("target", "subject"), DELETES.items())
@pytest.mark.parametrize("options", [(), ("--store",), ("--dry-run",)], ids=str)
def test_other_bundle_under_a_deleted_number_is_refused(
    app: Flask, target: str, subject: str, options: tuple[str, ...]
) -> None:
    run_successfully(app, "publish", *files(app, FIRST))
    deleted = run_successfully(app, "delete", target, "--yes").stderr.splitlines()
    assert deleted[:2] == [
        f"Deleted {target}.",
        f"{subject} can be published again only with the same bundle: clients may have it cached.",
    ]
    before = exported(app)
    result = run(app, "publish", *files(app, OTHER), *options)
    assert (result.exit_code, result.output) == (1, REFUSED)
    assert exported(app) == before
    assert list(app.extensions["bundles"].hashes()) == []
    again = run_successfully(app, "publish", *files(app, FIRST)).stderr.splitlines()
    assert again[0] == "Published acme/clock@1.0.0."


def test_other_bundle_under_a_number_that_a_restore_removed_is_refused(
    app: Flask, tmp_path: Path
) -> None:
    run_successfully(app, "backup", tmp_path / "backup.db")
    run_successfully(app, "publish", *files(app, FIRST))
    run_successfully(app, "restore", tmp_path / "backup.db", "--yes")
    assert exported(app) == b""
    result = run(app, "publish", *files(app, OTHER))
    assert (result.exit_code, result.output) == (1, REFUSED)


def test_bytes_that_a_restore_replaced_stay_taken(app: Flask, tmp_path: Path) -> None:
    put(app, document("acme/clock", bundled("1.0.0", FIRST)))
    run_successfully(app, "backup", tmp_path / "backup.db")
    put(app, document("acme/clock", bundled("1.0.0", OTHER)))
    run_successfully(app, "restore", tmp_path / "backup.db", "--yes")
    run_successfully(app, "delete", "acme/clock", "--yes")
    result = run(app, "publish", *files(app, FIRST))
    assert (result.exit_code, result.output) == (1, REFUSED)


def test_number_that_is_deleted_while_a_bundle_is_stored_is_refused(app: Flask) -> None:
    directory: Path = app.extensions["bundles"].directory
    directory.mkdir()
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    environment = {"CATALOG_DATABASE": app.config["DATABASE"], "CATALOG_BUNDLE_URL": URL}
    with subprocess.Popen(
        [sys.executable, "-m", "flask", "publish", *files(app, OTHER), "--store"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith("; waiting.\n")
        # It has read its files and found that the number is free.
        run_successfully(app, "publish", *files(app, FIRST))
        run_successfully(app, "delete", "acme/clock", "--yes")
        before = exported(app)
        os.close(lock)
        assert process.stderr.read() == REFUSED
    assert process.returncode == 1
    assert exported(app) == before
    assert list(directory.iterdir()) == []


PATH = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"


def test_only_a_bundle_that_was_published_here_is_immutable(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", FIRST), version("2.0.0")))
    hold(app, FIRST)
    with app.test_client().get(PATH) as response:
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    mirrored = "INSERT INTO mirrored (widget_id, source) VALUES (1, 'https://upstream.example')"
    app.extensions["database"].transact(running(mirrored))
    with app.test_client().get(PATH) as response:
        assert response.headers.getlist("Cache-Control") == ["no-cache"]
        assert "Expires" not in response.headers
        etag = response.headers["ETag"]
    with app.test_client().get(PATH, headers={"If-None-Match": etag}) as response:
        assert (response.status_code, response.headers["Cache-Control"]) == (304, "no-cache")
