"""widget-catalog publish: the service itself stores and serves the bundle, or names its URL."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json
from click.testing import Result
from flask import Flask

AppWith = Callable[..., Flask]
CDN = "https://cdn.example.com/{scope}/{name}/{version}.js"
HERE = "https://widgets.example"
BUNDLE = b"export default () => 'tick'\n"
SHA256 = hashlib.sha256(BUNDLE).hexdigest()
PATH = "/api/v1/widgets/acme/clock/1.0.0%2Bx/bundle.js"
ALREADY = (
    "acme/clock@1.0.0+x is already published; readme, links, keywords and picture are unchanged."
)
MANIFEST = {
    **{"scope": "acme", "name": "clock", "version": "1.0.0+x"},
    **{"displayName": "World Clock", "sdkVersion": "^1.0.0"},
}


def publish(app: Flask, *options: str, bundle: bytes = BUNDLE) -> Result:
    manifest, content = (
        Path(app.config["DATABASE"]).with_name(name) for name in ("clock.json", "clock.js")
    )
    manifest.write_text(json.dumps(MANIFEST), encoding="utf-8")
    content.write_bytes(bundle)
    return app.test_cli_runner().invoke(args=["publish", str(manifest), str(content), *options])


def bundle_url(app: Flask) -> str:
    detail = app.test_client().get("/api/v1/widgets/acme/clock").get_json()
    url: str = detail["versions"][0]["bundleUrl"]
    return url


def stored_url(app: Flask) -> str:
    exported = json.loads(app.test_cli_runner().invoke(args=["export"]).stdout)
    url: str = exported["versions"][0]["bundleUrl"]
    return url


def files(app: Flask) -> list[str]:
    return list(app.extensions["bundles"].hashes())


def served(app: Flask) -> bytes:
    with app.test_client().get(PATH) as response:
        return response.data


def test_stored_bundle_is_served_from_here(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE)
    result = publish(app, "--store")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "Published acme/clock@1.0.0+x.",
        f"Its bundle is stored in {app.extensions['bundles'].name}.",
        "The latest version of acme/clock is now 1.0.0+x.",
    ]
    assert (bundle_url(app), stored_url(app)) == (HERE + PATH, HERE + PATH)
    assert (files(app), served(app)) == ([SHA256], BUNDLE)


@pytest.mark.parametrize("source", ["setting", "option"])
def test_bundle_url_of_a_stored_bundle_is_exported(app_with: AppWith, source: str) -> None:
    app = app_with(PUBLIC_URL=HERE, BUNDLE_URL=CDN if source == "setting" else "")
    publish(app, "--store", *(["--bundle-url", CDN] if source == "option" else []))
    assert bundle_url(app) == HERE + PATH
    assert stored_url(app) == "https://cdn.example.com/acme/clock/1.0.0%2Bx.js"


ADDRESSES = {
    "defaults": ({}, "http://127.0.0.1:8080"),
    "port": ({"PORT": 9000}, "http://127.0.0.1:9000"),
    "free port": ({"PORT": 0}, "http://127.0.0.1"),
    "all addresses": ({"HOST": "0.0.0.0"}, "http://localhost:8080"),  # noqa: S104
    "all IPv6 addresses": ({"HOST": "::"}, "http://localhost:8080"),
    "IPv6": ({"HOST": "::1"}, "http://[::1]:8080"),
    "name": ({"HOST": "widgets.internal"}, "http://widgets.internal:8080"),
}


@pytest.mark.parametrize(("settings", "address"), ADDRESSES.values(), ids=ADDRESSES)
def test_store_needs_no_url(app_with: AppWith, settings: Json, address: str) -> None:
    app = app_with(**settings)
    assert publish(app, "--store").exit_code == 0
    assert served(app) == BUNDLE
    # Each response has the host of its request; an export has the address of the settings.
    assert (bundle_url(app), stored_url(app)) == ("http://localhost" + PATH, address + PATH)


def test_stored_bundle_can_be_published_again_from_another_address(app_with: AppWith) -> None:
    app = app_with()
    publish(app, "--store")
    app.config["PORT"] = 9000
    result = publish(app, "--store")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        0,
        ALREADY,
    )
    assert stored_url(app) == "http://127.0.0.1:8080" + PATH


def test_another_bundle_url_for_a_stored_bundle_is_refused(app_with: AppWith) -> None:
    app = app_with()
    publish(app, "--store")
    result = publish(app, "--store", "--bundle-url", CDN)
    assert result.exit_code == 1
    assert "already published with a different bundleUrl" in result.stderr


def test_without_a_url_the_bundle_is_stored(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE)
    assert "Its bundle is stored in" in publish(app).stderr
    assert (bundle_url(app), served(app)) == (HERE + PATH, BUNDLE)


def test_a_published_version_keeps_where_its_bundle_is(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE)
    publish(app, "--bundle-url", CDN)
    result = publish(app)
    assert (result.exit_code, result.stderr) == (0, f"{ALREADY}\n")
    assert bundle_url(app) == "https://cdn.example.com/acme/clock/1.0.0%2Bx.js"
    assert files(app) == []
    publish(app, "--store")
    app.config["BUNDLE_URL"] = "https://other.example/{version}.js"
    assert publish(app).exit_code == 0
    assert (bundle_url(app), served(app)) == (HERE + PATH, BUNDLE)


@pytest.mark.parametrize("source", ["setting", "option"])
def test_with_a_url_no_bundle_is_stored(app_with: AppWith, source: str) -> None:
    app = app_with(PUBLIC_URL=HERE, BUNDLE_URL=CDN if source == "setting" else "")
    publish(app, *(["--bundle-url", CDN] if source == "option" else []))
    assert not app.extensions["bundles"].directory.exists()
    assert bundle_url(app) == "https://cdn.example.com/acme/clock/1.0.0%2Bx.js"


def test_bundle_of_a_published_version_can_be_stored_later(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE, BUNDLE_URL=CDN)
    publish(app)
    result = publish(app, "--store")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == ALREADY
    assert (bundle_url(app), served(app)) == (HERE + PATH, BUNDLE)


def test_other_bundle_for_a_published_version_is_refused_and_not_stored(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE)
    publish(app, "--store")
    result = publish(app, "--store", bundle=b"other")
    assert result.exit_code == 1
    assert "already published with a different bundleSize, sha256Hash" in result.stderr
    assert (files(app), served(app)) == ([SHA256], BUNDLE)


def test_dry_run_stores_nothing(app_with: AppWith) -> None:
    app = app_with(PUBLIC_URL=HERE)
    document = json.loads(publish(app, "--store", "--dry-run").stdout)
    assert document["versions"][0]["bundleUrl"] == HERE + PATH
    assert not app.extensions["bundles"].directory.exists()
    publish(app, "--bundle-url", HERE + PATH)
    result = publish(app, "--store", "--dry-run")
    assert result.output == f"{ALREADY}\n"
    assert not app.extensions["bundles"].directory.exists()


def test_directory_that_cannot_be_created_is_named_in_the_error(
    app_with: AppWith, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    app = app_with(PUBLIC_URL=HERE, BUNDLES=str(tmp_path / "file"))
    result = publish(app, "--store")
    assert (result.exit_code, result.stderr) == (1, f"Error: {tmp_path}/file: File exists.\n")
    assert app.test_client().get("/api/v1/widgets/acme/clock").status_code == 404
