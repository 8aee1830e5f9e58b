"""Unlisted widgets are invisible: they change no byte of any public response."""

from collections.abc import Callable
from typing import Any

import pytest
from builders import document, version
from conftest import headers_without_date, put
from flask import Flask
from flask.testing import FlaskClient

V1 = "/api/v1/widgets/"
LISTED = [
    document(
        "acme/clock", version(), version("1.1.0"), description="Secret of time", isOfficial=True
    ),
    document("acme/notes", version(), downloadCount=5),
    document("other/lamp", version(), downloadCount=7, isOfficial=False),
]
TEXTS = ("1.0.0", "latest", "installs", "installs?days=7")
HIDDEN = ["acme/secret", "other/secret", "hidden/secret"]
SEARCHES = [
    *("", "?q=secret", "?q=s", "?q=unlisted+words", "?scope=acme", "?scope=hidden"),
    *("?official=true", "?official=false", "?compatSdk=9.9.9&q=secret", "?limit=1&page=2"),
    *("?page=9", "?compatSdk=1.0.0&compatible=true", "?sort=updated", "?sort=created&limit=1"),
    *("?compatSdk=1.0.0&compatible=true&scope=hidden", "?sort=name", "?q=secret&sort=installs"),
    "?q=secret&scope=acme&official=true&compatSdk=1.0.0&page=1&limit=5",
]
PATHS = [
    *(f"{V1}search{query}" for query in SEARCHES),
    *(V1 + path for path in ("acme/clock", "acme/notes", "other/lamp", *HIDDEN)),
    *(f"/api/widgets/{scope}/registry.json" for scope in ("acme", "other", "hidden")),
    *("/api/stats", "/api/widgets/hidden/secret"),
    *(f"{V1}{path}/1.0.0/bundle.js" for path in ("acme/clock", *HIDDEN)),
    *(f"{V1}{path}/{text}" for path in ("acme/clock", *HIDDEN) for text in TEXTS),
    *(f"{V1}{path}/latest?compatSdk=1.0.0" for path in ("acme/clock", *HIDDEN)),
    f"{V1}updates?compatSdk=1.0.0" + "".join(f"&installed={path}@1.0.0" for path in HIDDEN),
    *("/", "/?q=secret", "/?scope=hidden", "/widgets/acme/clock"),
    *(f"/widgets/{path}" for path in HIDDEN),
    *("/widgets/acme", "/widgets/hidden", "/widgets/acme/clock/compare?from=1.0.0&to=1.1.0"),
    *(f"/widgets/{path}/1.0.0" for path in ("acme/clock", *HIDDEN)),
    *(f"/widgets/{path}/latest" for path in ("acme/clock", *HIDDEN)),
    "/feed.atom",
    "/updates?compatSdk=1.0.0" + "".join(f"&installed={path}@1.0.0" for path in HIDDEN),
]


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    return app_with(*LISTED)


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def hidden(path: str, *versions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return document(path, *(versions or (version(),)), listed=False, **fields)


def responses(client: FlaskClient, etags: dict[str, str]) -> dict[str, object]:
    """Return the public responses to clients without and with earlier ETags."""
    shown: dict[str, object] = {}
    for path in PATHS:
        for known in ("", etags.get(path, '"none"')):
            response = client.get(path, headers={"If-None-Match": known})
            headers = headers_without_date(response)
            shown[f"{path} {known}"] = (response.status_code, headers, response.data)
    return shown


def current_etags(client: FlaskClient) -> dict[str, str]:
    etags = {path: client.get(path).headers.get("ETag") for path in PATHS}
    return {path: etag for path, etag in etags.items() if etag}


CHANGES = {
    "added": [],
    "described": [
        hidden(path, displayName="Unlisted", description="Unlisted words", isOfficial=True)
        for path in HIDDEN
    ],
    "installed": [hidden(path, downloadCount=2**53 - 1) for path in HIDDEN],
    "with versions": [
        hidden(path, version("1.0.0", yanked=True), version("9.9.9", sdkVersion="^9.0.0"))
        for path in HIDDEN
    ],
}


def test_unlisted_widgets_change_no_response(app: Flask, client: FlaskClient) -> None:
    etags = current_etags(client)
    before = responses(client, etags)
    for name, documents in CHANGES.items():
        put(app, *(hidden(path) for path in HIDDEN))
        put(app, *documents)
        assert responses(client, etags) == before, name


def test_installs_of_unlisted_widgets_change_no_response(app: Flask, client: FlaskClient) -> None:
    put(app, *(hidden(path) for path in HIDDEN))
    etags = current_etags(client)
    before = responses(client, etags)
    for path in HIDDEN * 2:
        assert client.post(V1 + path).status_code == 200
    assert responses(client, etags) == before


def test_responses_after_unlisting_are_those_of_before_listing(
    app: Flask, client: FlaskClient
) -> None:
    etags = current_etags(client)
    before = responses(client, etags)
    listed = [document(path, version(), downloadCount=9, isOfficial=True) for path in HIDDEN]
    put(app, *listed)
    assert responses(client, etags) != before
    put(app, *(hidden(path) for path in HIDDEN))
    assert responses(client, etags) == before
