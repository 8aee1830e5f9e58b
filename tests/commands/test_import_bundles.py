"""widget-catalog import: bundles whose files are here already."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import exported, run
from flask import Flask
from publishers import manifest

AppWith = Callable[..., Flask]
BUNDLE = b"export default 1"
SHA256 = hashlib.sha256(BUNDLE).hexdigest()
URL = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"


@pytest.fixture
def app(app_with: AppWith, tmp_path: Path) -> Flask:
    """A catalog with a stored bundle."""
    app = app_with()
    (tmp_path / "widget.json").write_text(json.dumps(manifest()))
    (tmp_path / "clock.js").write_bytes(BUNDLE)
    published = run(app, "publish", tmp_path / "widget.json", tmp_path / "clock.js", "--store")
    assert published.exit_code == 0
    return app


@pytest.fixture
def export(app: Flask, tmp_path: Path) -> Path:
    """An export of the catalog, from which the widget was deleted afterwards."""
    file = tmp_path / "catalog.jsonl"
    file.write_bytes(exported(app))
    assert run(app, "delete", "acme/clock", "--yes").exit_code == 0
    return file


def get_bundle(app: Flask) -> tuple[int, bytes]:
    with app.test_client().get(URL) as response:
        return response.status_code, response.data


def test_import_after_delete_serves_the_bundle_from_here_again(app: Flask, export: Path) -> None:
    assert run(app, "import", export).exit_code == 0
    assert get_bundle(app) == (200, BUNDLE)
    detail = app.test_client().get("/api/v1/widgets/acme/clock").json
    assert detail["versions"][0]["bundleUrl"].endswith(URL)
    assert run(app, "check").exit_code == 0


def test_import_of_a_version_that_is_stored_registers_its_bundle(app: Flask, export: Path) -> None:
    (file,) = app.extensions["bundles"].directory.glob("?" * 64)
    hidden = file.rename(file.with_name("hidden"))
    assert run(app, "import", export).exit_code == 0
    assert get_bundle(app)[0] == 404
    hidden.rename(file)
    counts = "Imported 1 widget and 1 version: 0 added, {} changed, {} unchanged.\n"
    assert run(app, "import", "--dry-run", export).stderr == counts.format(1, 0).replace(
        "Imported", "Would import"
    )
    assert get_bundle(app)[0] == 404
    assert run(app, "import", export).stderr == counts.format(1, 0)
    assert get_bundle(app)[0] == 200
    assert run(app, "import", export).stderr == counts.format(0, 1)


def test_import_does_not_register_a_file_with_other_bytes(app: Flask, export: Path) -> None:
    (file,) = app.extensions["bundles"].directory.glob("?" * 64)
    file.write_bytes(b"export default 2")
    assert run(app, "import", export).exit_code == 0
    assert get_bundle(app)[0] == 404


def test_check_reports_a_version_whose_url_is_ours_and_whose_bundle_is_not_stored(
    app: Flask, export: Path
) -> None:
    (file,) = app.extensions["bundles"].directory.glob("?" * 64)
    file.unlink()
    assert run(app, "import", export).exit_code == 0
    result = run(app, "check")
    assert (result.exit_code, result.stdout) == (
        1,
        "acme/clock: version 1.0.0: its bundleUrl points to this catalog, which does not store its "
        f"bundle {SHA256}.\n",
    )
