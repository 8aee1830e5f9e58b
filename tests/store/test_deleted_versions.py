"""Deleted versions: their numbers cannot be published again with another bundle."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json, bundled, document, version
from click.testing import Result
from conftest import ROOT, hold, putting, run, running
from flask import Flask

from catalog.documents import check_document

AppWith = Callable[..., Flask]
FIRST, OTHER = b"export default 1\n", b"export default 2\n"
URL = "https://cdn.example.com/{scope}/{name}/{version}.js"
MANIFEST = {
    **{"scope": "acme", "name": "clock", "version": "1.0.0"},
    **{"displayName": "Clock", "sdkVersion": "^1.0.0"},
}
REFUSED = (
    "Error: acme/clock@1.0.0 was published with another bundle and deleted; clients may have that "
    "one cached, so publish this one as a new version.\n"
)
DELETES = {"version": "acme/clock@1.0.0", "widget": "acme/clock"}


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(BUNDLE_URL=URL)


def run_successfully(app: Flask, *arguments: str) -> Result:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output
    return result


def files(app: Flask, bundle: bytes, number: str) -> list[str]:
    database = Path(app.config["DATABASE"])
    manifest, content = database.with_name("clock.json"), database.with_name("clock.js")
    manifest.write_text(json.dumps({**MANIFEST, "version": number}), encoding="utf-8")
    content.write_bytes(bundle)
    return [str(manifest), str(content)]


def publish(app: Flask, bundle: bytes, *options: str, number: str = "1.0.0") -> Result:
    return run(app, "publish", *files(app, bundle, number), *options)


def import_(app: Flask, *documents: Json, options: tuple[str, ...] = ()) -> None:
    path = Path(app.config["DATABASE"]).with_name("import.jsonl")
    path.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    run_successfully(app, "import", str(path), *options)


def exported(app: Flask) -> str:
    return run_successfully(app, "export").stdout


def assert_refused(app: Flask, result: Result, before: str) -> None:
    assert (result.exit_code, result.output) == (1, REFUSED)
    assert exported(app) == before
    assert list(app.extensions["bundles"].hashes()) == []


@pytest.mark.parametrize("target", DELETES.values(), ids=DELETES)
@pytest.mark.parametrize("options", [(), ("--store",), ("--dry-run",)], ids=str)
def test_other_bundle_under_a_deleted_number_is_refused(
    app: Flask, target: str, options: tuple[str, ...]
) -> None:
    publish(app, FIRST)
    publish(app, FIRST, number="2.0.0")
    run_successfully(app, "delete", target, "--yes")
    before = exported(app)
    assert_refused(app, publish(app, OTHER, *options), before)


def test_other_numbers_and_other_widgets_can_be_published(app: Flask) -> None:
    publish(app, FIRST)
    run_successfully(app, "delete", "acme/clock", "--yes")
    assert publish(app, OTHER, number="1.0.0+b").exit_code == 0
    assert publish(app, OTHER, number="1.0.1").exit_code == 0
    manifest, content = files(app, OTHER, "1.0.0")
    Path(manifest).write_text(json.dumps({**MANIFEST, "name": "notes"}), encoding="utf-8")
    assert run(app, "publish", manifest, content).exit_code == 0


def test_dry_run_of_an_import_deletes_nothing(app: Flask) -> None:
    publish(app, FIRST)
    import_(app, document("acme/notes"), options=("--prune", "--dry-run"))
    reader = app.extensions["database"].reader()
    assert reader.execute("SELECT count(*) FROM deleted_version").fetchone()[0] == 0


def test_delete_says_that_the_number_is_reserved(app: Flask) -> None:
    only = "can be published again only with the same bundle: clients may have it cached."
    publish(app, FIRST)
    assert run_successfully(app, "delete", "acme/clock@1.0.0", "--yes").stderr.splitlines() == [
        "Deleted acme/clock@1.0.0.",
        f"Its number {only}",
        "The latest version of acme/clock is now none.",
    ]
    assert run_successfully(app, "delete", "acme/clock", "--yes").stderr.splitlines() == [
        "Deleted acme/clock.",
        f"The numbers of its versions {only}",
    ]


def test_number_that_is_deleted_while_a_bundle_is_stored_is_refused(app: Flask) -> None:
    directory: Path = app.extensions["bundles"].directory
    directory.mkdir()
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    environment = {"CATALOG_DATABASE": app.config["DATABASE"], "CATALOG_BUNDLE_URL": URL}
    with subprocess.Popen(
        [sys.executable, "-m", "flask", "publish", *files(app, OTHER, "1.0.0"), "--store"],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith("; waiting.\n")
        # It has read its files and found that the number is free.
        publish(app, FIRST)
        run_successfully(app, "delete", "acme/clock", "--yes")
        before = exported(app)
        os.close(lock)
        assert process.stderr.read() == REFUSED
    assert process.returncode == 1
    assert exported(app) == before
    assert list(directory.iterdir()) == []


PATH = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_only_a_bundle_that_was_published_here_is_immutable(app_with: AppWith, method: str) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", FIRST), version("2.0.0")))
    hold(app, FIRST)
    with app.test_client().open(PATH, method=method) as response:
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    mirrored = "INSERT INTO mirrored (widget_id, source) VALUES (1, 'https://upstream.example')"
    app.extensions["database"].transact(running(mirrored))
    with app.test_client().open(PATH, method=method) as response:
        assert response.headers.getlist("Cache-Control") == ["no-cache"]
        assert "Expires" not in response.headers
        etag = response.headers["ETag"]
    with app.test_client().get(PATH, headers={"If-None-Match": etag}) as response:
        assert (response.status_code, response.headers["Cache-Control"]) == (304, "no-cache")


def test_every_bundle_that_a_number_had_is_remembered(app: Flask) -> None:
    run_successfully(app, "publish", *files(app, FIRST, "1.0.0"))
    run_successfully(app, "delete", "acme/clock@1.0.0", "--yes")
    other = document("acme/clock", bundled("1.0.0", OTHER))
    app.extensions["database"].transact(putting([check_document(other)]))
    run_successfully(app, "delete", "acme/clock@1.0.0", "--yes")
    for content in (FIRST, OTHER):
        assert publish(app, content).stderr == REFUSED
