"""GET /api/v1/widgets/{scope}/{name}/{version}, and compatSdk of the detail."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, bundled, document, version
from conftest import hold
from flask import Flask
from flask.testing import FlaskClient

CLOCK = "/api/v1/widgets/acme/clock"
ClientWith = Callable[..., FlaskClient]


def dated(number: str, month: int, **fields: Any) -> Json:
    return version(number, publishedAt=f"2025-{month:02}-01T00:00:00.000Z", **fields)


WIDGET = document(
    "acme/clock",
    dated("1.0.0", 1, sdkVersion="^1.0.0"),
    dated("1.1.0", 2, sdkVersion="^1.2.0"),
    dated("2.0.0", 3, sdkVersion="^2.0.0"),
    dated("2.0.1", 4, sdkVersion="*", yanked=True, yankedReason="It stops."),
)


@pytest.fixture
def client(client_with: ClientWith) -> FlaskClient:
    hidden = document("acme/hidden", version(), listed=False)
    withdrawn = document("acme/withdrawn", version("1.0.0", yanked=True))
    return client_with(WIDGET, hidden, withdrawn, document("acme/empty"))


def number(client: FlaskClient, path: str) -> str:
    response = client.get(f"/api/v1/widgets/{path}")
    assert response.status_code == 200, response.text
    return str(response.get_json()["version"])


@pytest.mark.parametrize("text", ["1.0.0", "1.1.0", "2.0.0", "2.0.1"])
def test_version_is_its_entry_in_the_detail(client: FlaskClient, text: str) -> None:
    entries = client.get(CLOCK).get_json()["versions"]
    (entry,) = [entry for entry in entries if entry["version"] == text]
    body = client.get(f"{CLOCK}/{text}").text
    assert body == json.dumps(entry, separators=(",", ":")) + "\n"


def test_latest_is_the_newest_version_that_is_not_yanked(client: FlaskClient) -> None:
    assert number(client, "acme/clock/latest") == "2.0.0"


@pytest.mark.parametrize(("sdk", "newest"), [("1.4.0", "1.1.0"), ("1.1.0", "1.0.0")])
def test_latest_with_an_sdk_is_the_newest_compatible_version(
    client: FlaskClient, sdk: str, newest: str
) -> None:
    assert number(client, f"acme/clock/latest?compatSdk={sdk}") == newest


def test_version_by_its_number_does_not_depend_on_the_sdk(client: FlaskClient) -> None:
    assert number(client, "acme/clock/2.0.0?compatSdk=1.4.0") == "2.0.0"


def test_build_of_a_version_may_be_sent_as_it_is_or_encoded(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version("1.0.0+a"), version("1.0.0")))
    assert number(client, "acme/clock/1.0.0+a") == "1.0.0+a"
    assert number(client, "acme/clock/1.0.0%2Ba") == "1.0.0+a"
    assert number(client, "acme/clock/1.0.0") == "1.0.0"


MISSING = {
    "acme/clock/9.9.9": "There is no version 'acme/clock@9.9.9'.",
    "acme/clock/1.0": "There is no version 'acme/clock@1.0'.",
    "acme/clock/LATEST": "There is no version 'acme/clock@LATEST'.",
    "acme/clock/latest?compatSdk=0.1.0": "No version of 'acme/clock' runs on SDK 0.1.0.",
    "acme/withdrawn/latest": "No version of 'acme/withdrawn' is available.",
    "acme/empty/latest": "No version of 'acme/empty' is available.",
    "acme/hidden/1.0.0": "There is no widget 'acme/hidden'.",
    "acme/hidden/latest?compatSdk=1.0.0": "There is no widget 'acme/hidden'.",
    "acme/none/latest": "There is no widget 'acme/none'.",
}


@pytest.mark.parametrize(("path", "message"), MISSING.items())
def test_missing_version_is_404_with_its_cause(
    client: FlaskClient, path: str, message: str
) -> None:
    response = client.get(f"/api/v1/widgets/{path}")
    assert (response.status_code, response.get_json()) == (404, {"error": message})


@pytest.mark.parametrize("path", [CLOCK, f"{CLOCK}/1.0.0", f"{CLOCK}/latest", f"{CLOCK}x"])
@pytest.mark.parametrize("sdk", ["", "1.4", "v1.4.0", "1.4.0+a b"])
def test_invalid_sdk_is_400_as_in_a_search(client: FlaskClient, path: str, sdk: str) -> None:
    response = client.get(path, query_string={"compatSdk": sdk})
    search = client.get("/api/v1/widgets/search", query_string={"compatSdk": sdk})
    assert response.status_code == search.status_code == 400
    assert response.data == search.data


def test_held_bundle_has_its_url_on_this_service(app_with: Callable[..., Flask]) -> None:
    content = b"export default 1"
    app = app_with(document("acme/clock", bundled("1.0.0", content)))
    hold(app, content)
    url = app.test_client().get(f"{CLOCK}/latest").get_json()["bundleUrl"]
    assert url == f"http://localhost{CLOCK}/1.0.0/bundle.js"


def test_install_changes_no_version(client: FlaskClient) -> None:
    etag = client.get(f"{CLOCK}/latest").headers["ETag"]
    client.post(CLOCK)
    response = client.get(f"{CLOCK}/latest", headers={"If-None-Match": etag})
    assert response.status_code == 304


@pytest.mark.parametrize(("sdk", "newest"), [("1.4.0", "1.1.0"), ("2.1.0", "2.0.0")])
def test_detail_with_an_sdk_has_its_newest_version_last(
    client: FlaskClient, sdk: str, newest: str
) -> None:
    plain = client.get(CLOCK).get_json()
    detail = client.get(f"{CLOCK}?compatSdk={sdk}").get_json()
    entries = {entry["version"]: entry for entry in plain["versions"]}
    expected = {**plain, "latestCompatibleVersion": entries[newest]}
    assert json.dumps(detail) == json.dumps(expected)


def test_detail_has_null_if_no_version_runs_on_the_sdk(client: FlaskClient) -> None:
    for path in (CLOCK, "/api/v1/widgets/acme/withdrawn", "/api/v1/widgets/acme/empty"):
        detail = client.get(f"{path}?compatSdk=0.1.0").get_json()
        assert detail["latestCompatibleVersion"] is None
