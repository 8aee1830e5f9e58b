"""No way into the catalog makes a picture of a file that is not one."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, described, document, png
from conftest import error_message, hold, put, run
from flask import Flask

AppWith = Callable[..., Flask]
PICTURE = "/api/v1/widgets/acme/clock/picture"
EVIL = {
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "HTML": b"<script>alert(1)</script>",
    "a large PNG": png(30_000, 30_000),
    "a PNG of another size": png(4, 4),
}


def named(content: bytes) -> dict[str, Any]:
    """Return a widget whose bundle and whose picture, as a small PNG, have this content."""
    sha256 = hashlib.sha256(content).hexdigest()
    picture = {**described(png()), "size": len(content), "sha256Hash": sha256}
    return {**document("acme/clock", bundled("1.0.0", content)), "about": {"picture": picture}}


@pytest.fixture(params=[*EVIL.values()], ids=[*EVIL])
def evil(request: pytest.FixtureRequest) -> bytes:
    content: bytes = request.param
    return content


@pytest.fixture
def fooled(app_with: AppWith, evil: bytes) -> Flask:
    """Return a catalog that named a picture before its file arrived, as a bundle."""
    app = app_with(named(evil))
    hold(app, evil)
    return app


def test_import_examines_a_file_that_is_stored(app_with: AppWith, evil: bytes) -> None:
    app = app_with()
    widget = named(evil)
    put(app, {**widget, "about": {}})
    hold(app, evil)
    sha256 = hashlib.sha256(evil).hexdigest()
    message = error_message(run(app, "import", "-", stdin=json.dumps(widget)))
    assert (
        f"acme/clock: the file {sha256} does not match the description of the picture." in message
    )
    assert app.test_client().get(f"{PICTURE.removesuffix('picture')}about").json["picture"] is None


def test_a_file_that_arrives_later_is_not_sent(fooled: Flask) -> None:
    with fooled.test_client().get(PICTURE) as response:
        assert response.status_code == 404


def test_check_reports_it(fooled: Flask, evil: bytes) -> None:
    result = run(fooled, "check")
    sha256 = hashlib.sha256(evil).hexdigest()
    assert result.exit_code == 1
    assert (
        f"acme/clock: its picture is not shown, since the file {sha256} does not match it.\n"
        in result.output
    )


def test_unpack_refuses_it(fooled: Flask, app_with: AppWith, evil: bytes, tmp_path: Path) -> None:
    assert run(fooled, "pack", tmp_path / "evil.pack").exit_code == 0
    other = app_with(document("acme/notes"))
    message = error_message(run(other, "unpack", tmp_path / "evil.pack", "--yes"))
    sha256 = hashlib.sha256(evil).hexdigest()
    assert message.endswith(f"{sha256} in the pack does not match the picture of acme/clock.")
    assert [*other.extensions["bundles"].hashes()] == []
    assert other.test_client().get("/api/v1/widgets/acme/notes").status_code == 200


def test_unpack_of_bundles_refuses_it(fooled: Flask, evil: bytes, tmp_path: Path) -> None:
    assert run(fooled, "pack", tmp_path / "evil.pack").exit_code == 0
    sha256 = hashlib.sha256(evil).hexdigest()
    fooled.extensions["bundles"].path(sha256).unlink()
    message = error_message(run(fooled, "unpack", "--bundles-only", tmp_path / "evil.pack"))
    assert message.endswith(f"{sha256} in the pack does not match the picture of acme/clock.")
    assert [*fooled.extensions["bundles"].hashes()] == []
