"""GET /api/v1/widgets/importmap: the bundles that a dashboard loads, with their integrity."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from builders import Json, bundled, document, version
from conftest import hold, put
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

PATH = "/api/v1/widgets/importmap"
CDN = "https://cdn.example.com/bundles/"
JANUARY, FEBRUARY, MARCH = (f"2025-0{month}-10T12:00:00.000Z" for month in range(1, 4))
BUNDLE = b"export const mount = () => {};\n"
WEATHER = [
    version("3.0.0-beta.1", publishedAt=MARCH, sdkVersion="*"),
    version("2.0.0", publishedAt=FEBRUARY, sdkVersion="^2.0.0", sha256Hash="ff" * 32),
    version("1.1.0", publishedAt=FEBRUARY, yanked=True),
    version("1.0.0", publishedAt=JANUARY, sha256Hash="00" * 32),
]
# Of the hash that version() gives.
INTEGRITY = "sha256-ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8="


@pytest.fixture
def app(app_with: Callable[..., Flask]) -> Flask:
    app = app_with(
        document("acme/clock", bundled("1.0.0", BUNDLE)),
        document("acme/weather", *WEATHER),
        document("acme/hidden", version(), listed=False),
        document("acme/empty"),
        document("@acme/tz", version("1.0.0", bundleUrl=CDN + "tz.js")),
        PUBLIC_URL="https://widgets.example/base",
    )
    hold(app, BUNDLE)
    return app


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def request(client: FlaskClient, *widgets: str, **parameters: Any) -> TestResponse:
    pairs = {"compatSdk": "1.0.0", **parameters}
    query = [*pairs.items(), *(("widget", widget) for widget in widgets)]
    return client.get(PATH, query_string=[pair for pair in query if pair[1] is not None])


def get(client: FlaskClient, *widgets: str, **parameters: Any) -> Json:
    response = request(client, *widgets, **parameters)
    assert response.status_code == 200, response.text
    body: Json = json.loads(response.data)
    return body


def loaded(client: FlaskClient, widget: str, **parameters: Any) -> str | None:
    """Return the number of the version whose bundle the map names."""
    url = get(client, widget, **parameters)["imports"].get(widget.rpartition("@")[0] or widget)
    return str(url).removeprefix(CDN).removesuffix(".js") if url else None


def test_map_has_the_url_and_the_base64_hash_of_each_bundle(client: FlaskClient) -> None:
    response = request(client, "acme/clock", "acme/weather", stable="true")
    assert response.headers["Content-Type"] == "application/importmap+json"
    stored = "https://widgets.example/base/api/v1/widgets/acme/clock/1.0.0/bundle.js"
    sha256 = b64encode(hashlib.sha256(BUNDLE).digest()).decode()
    other = f"{CDN}1.0.0.js"
    expected = {
        "imports": {"acme/clock": stored, "acme/weather": other},
        "integrity": {stored: f"sha256-{sha256}", other: f"sha256-{'A' * 43}="},
    }
    assert json.dumps(json.loads(response.data)) == json.dumps(expected)


def test_url_is_that_of_the_version_entry(app: Flask, client: FlaskClient) -> None:
    entry = client.get("/api/v1/widgets/acme/clock/1.0.0").get_json()
    assert get(client, "acme/clock")["imports"] == {"acme/clock": entry["bundleUrl"]}


@pytest.mark.parametrize(
    ("parameters", "number"),
    [
        ({}, "3.0.0-beta.1"),
        ({"stable": "true"}, "1.0.0"),
        ({"before": "2025-03-01"}, "1.0.0"),
        ({"compatSdk": "2.0.0"}, "3.0.0-beta.1"),
        ({"compatSdk": "2.0.0", "stable": "true"}, "2.0.0"),
        ({"compatSdk": "2.0.0", "before": "2025-03-01"}, "2.0.0"),
        ({"compatSdk": "2.0.0", "before": "2025-02-01"}, None),
        ({"compatSdk": "9.0.0", "stable": "true"}, None),
        ({"before": "2025-02-01", "stable": "true"}, "1.0.0"),
    ],
)
def test_without_a_version_the_newest_candidate_is_loaded(
    client: FlaskClient, parameters: dict[str, str], number: str | None
) -> None:
    assert loaded(client, "acme/weather", **parameters) == number


@pytest.mark.parametrize("number", ["1.1.0", "3.0.0-beta.1", "2.0.0"])
def test_exact_version_is_loaded_even_if_it_is_yanked_a_prerelease_or_incompatible(
    client: FlaskClient, number: str
) -> None:
    widget = f"acme/weather@{number}"
    assert loaded(client, widget, stable="true", before="2000-01-01", compatSdk="1.0.0") == number


def test_what_cannot_be_loaded_is_named_with_its_reason_and_the_rest_loads(
    client: FlaskClient,
) -> None:
    widgets = ["acme/none", "acme/hidden@1.0.0", "acme/clock@9.9.9", "acme/empty", "acme/weather"]
    body = get(client, *widgets, compatSdk="2.0.0", stable="true")
    assert body["imports"] == {"acme/weather": f"{CDN}2.0.0.js"}
    assert body["integrity"] == {f"{CDN}2.0.0.js": f"sha256-{'/' * 42}8="}
    assert body["unavailable"] == {
        "acme/none": "There is no widget 'acme/none'.",
        "acme/hidden": "There is no widget 'acme/hidden'.",
        "acme/clock": "There is no version 'acme/clock@9.9.9'.",
        "acme/empty": "No stable version of 'acme/empty' runs on SDK 2.0.0.",
    }
    none = (
        "No version of 'acme/clock' runs on SDK 2.0.0 and was published before "
        "2025-02-01T00:00:00.000Z."
    )
    assert get(client, "acme/clock", compatSdk="2.0.0", before="2025-02-01") == {
        "imports": {},
        "integrity": {},
        "unavailable": {"acme/clock": none},
    }


def test_scope_may_begin_with_an_at_sign(client: FlaskClient) -> None:
    for widget in ("@acme/tz", "@acme/tz@1.0.0"):
        assert get(client, widget)["imports"] == {"@acme/tz": f"{CDN}tz.js"}


def test_bundle_of_two_widgets_with_different_hashes_is_loaded_for_the_first(
    client_with: Callable[..., FlaskClient],
) -> None:
    client = client_with(
        document("acme/one", version()),
        document("acme/two", version()),
        document("acme/three", version(sha256Hash="00" * 32)),
    )
    url = f"{CDN}1.0.0.js"
    assert get(client, "acme/one", "acme/two", "acme/three") == {
        "imports": {"acme/one": url, "acme/two": url},
        "integrity": {url: INTEGRITY},
        "unavailable": {
            "acme/three": (
                f"Another widget in this map has a different hash for the same bundle URL, {url}."
            )
        },
    }


FORM = "widget must be scope/name or scope/name@version such as acme/clock@1.0.0, not "
BAD_REQUESTS: dict[str, tuple[Sequence[str], Json, str]] = {
    "no SDK": (["acme/clock"], {"compatSdk": None}, "compatSdk is missing"),
    "invalid SDK": (["acme/clock"], {"compatSdk": "1.4"}, "compatSdk must be a valid semver"),
    "invalid stable": (["acme/clock"], {"stable": "1"}, "stable must be true or false"),
    "invalid before": (["acme/clock"], {"before": "7d"}, "before must be an ISO 8601 date"),
    "no widget": ([], {}, "widget must be given 1 to 100 times, not 0."),
    "101 widgets": ([f"a/{n}" for n in range(101)], {}, "widget must be given 1 to 100 times"),
    "twice": (["a/b", "c/d", "a/b"], {}, "widget contains 'a/b' more than once."),
    "two versions": (["a/b@1.0.0", "a/b@2.0.0"], {}, "widget contains 'a/b' more than once."),
    **{
        text or "empty": ([text], {}, FORM)
        for text in ("", "a", "/", "a/", "/b", "a/b/c", "a/b@", "a/b@1", "a/b@latest", "a@1.0.0")
    },
}


@pytest.mark.parametrize(
    ("widgets", "parameters", "message"), BAD_REQUESTS.values(), ids=BAD_REQUESTS
)
def test_malformed_request_is_400(
    client: FlaskClient, widgets: Sequence[str], parameters: Json, message: str
) -> None:
    response = request(client, *widgets, **parameters)
    assert response.status_code == 400
    assert response.get_json()["error"].startswith(message)


def test_a_hundred_widgets_are_allowed(client: FlaskClient) -> None:
    assert len(get(client, *(f"a/{n}" for n in range(100)))["unavailable"]) == 100


def test_response_stays_valid_until_the_catalog_changes(app: Flask, client: FlaskClient) -> None:
    first = request(client, "acme/weather", stable="true", compatSdk="2.0.0")
    known = {"If-None-Match": first.headers["ETag"]}
    target = first.request.full_path
    client.post("/api/v1/widgets/acme/weather")
    assert client.get(target, headers=known).status_code == 304
    yanked = [{**each, "yanked": True} for each in WEATHER[:2]]
    put(app, document("acme/weather", *yanked, *WEATHER[2:]))
    again = client.get(target, headers=known)
    assert again.status_code == 200
    assert json.loads(again.data)["imports"] == {}


def test_response_for_many_widgets_is_compressed(client: FlaskClient) -> None:
    query = [("compatSdk", "1.0.0"), *(("widget", f"a/{n}") for n in range(100))]
    plain = client.get(PATH, query_string=query)
    packed = client.get(PATH, query_string=query, headers={"Accept-Encoding": "gzip"})
    assert (plain.headers["Vary"], packed.headers["Content-Encoding"]) == (
        "Accept-Encoding",
        "gzip",
    )
    assert packed.headers["Content-Type"] == "application/importmap+json"
    assert plain.headers["ETag"] != packed.headers["ETag"]
