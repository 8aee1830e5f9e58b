"""GET /api/v1/widgets/{scope}/{name}: one widget with all its versions."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from builders import document, version
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from properties import catalog_for_each_example
from semver import Version

Catalog = Callable[..., FlaskClient]

CLOCK = "/api/v1/widgets/acme/clock"
TIE = "2025-06-01T00:00:00.000Z"


WIDGET = {
    "scope": "acme",
    "name": "clock",
    "displayName": "World Clock",
    "description": "Time in many places.",
    "icon": "mdi:clock",
    "isOfficial": True,
    "downloadCount": 12,
    "createdAt": "2025-01-02T03:04:05.678Z",
}
ENTRY = {
    "scope": "acme",
    "name": "clock",
    "version": "1.2.3-rc.1+build.5",
    "bundleUrl": "https://cdn.example.com/acme/clock/1.2.3.js?a=1&b=%20#x",
    "bundleSize": 9007199254740991,
    "sha256Hash": "0123456789abcdef" * 4,
    "publishedAt": "2025-02-03T04:05:06.007Z",
    "yanked": True,
    "yankedReason": "It loses an hour.",
    "deprecationMessage": "Use 2.0.0.",
    "releaseNotes": "# 1.2.3\n\n- <b>All</b> new\n",
    "displayName": "Clock of the manifest",
    "description": "Description of the manifest",
    "icon": "mdi:manifest",
    "minSize": {"w": 0, "h": 2},
    "maxSize": {"w": 3, "h": 4},
    "sdkVersion": ">=1.2.0 <3 || 5.x",
    "configVersion": 0.30000000000000004,
    "permissions": ["network", "storage", "network", "位置"],
    "license": "MIT",
}


def assert_same_json(value: Any, expected: Any) -> None:
    """Compare JSON text: unlike ==, it distinguishes 1, 1.0 and true, and the order of keys."""
    assert json.dumps(value, indent=1) == json.dumps(expected, indent=1)


def numbers(client: FlaskClient) -> list[str]:
    return [entry["version"] for entry in client.get(CLOCK).json["versions"]]


def test_response_has_every_field_in_the_order_of_the_specification(client_with: Catalog) -> None:
    client = client_with({"widget": WIDGET, "versions": [ENTRY]})
    expected = {"widget": WIDGET, "versions": [ENTRY], "latestVersion": None}
    response = client.get(CLOCK)
    assert (response.status_code, response.mimetype) == (200, "application/json")
    assert_same_json(response.json, expected)


@pytest.mark.parametrize("missing_as", ["absent", "null"])
def test_missing_and_null_fields_are_null_or_the_default(
    client_with: Catalog, missing_as: str
) -> None:
    own, plain = document()["widget"], version("1.0.0")
    if missing_as == "null":
        own, plain = {**dict.fromkeys(WIDGET), **own}, {**dict.fromkeys(ENTRY), **plain}
    defaults = {"yanked": False, "permissions": [], "displayName": "Clock"}
    sizes = {"minSize": {"w": 1, "h": 1}, "maxSize": {"w": 12, "h": 12}}
    names = {"scope": "acme", "name": "clock"}
    expected = {
        "widget": {**dict.fromkeys(WIDGET), **own, "createdAt": plain["publishedAt"]},
        "versions": [{**dict.fromkeys(ENTRY), **plain, **defaults, **sizes, **names}],
        "latestVersion": "1.0.0",
    }
    response = client_with({"widget": own, "versions": [plain]}).get(CLOCK)
    assert_same_json(response.json, expected)


# displayName cannot be null or empty, the other two can.
ALL, NULLABLE = ("displayName", "description", "icon"), ("description", "icon")
FALLBACKS = [
    *((field, "own", None, "own") for field in ALL),
    *((field, "own", "manifest", "manifest") for field in ALL),
    *((field, None, "manifest", "manifest") for field in NULLABLE),
    *((field, "own", "", "") for field in NULLABLE),
]


def test_null_in_a_manifest_falls_back_to_the_widget(client_with: Catalog) -> None:
    client = client_with(
        *(
            document(f"acme/{case}", version(**{field: manifest}), **{field: own})
            for case, (field, own, manifest, _) in enumerate(FALLBACKS)
        )
    )
    shown = []
    for case, (field, _, manifest, _) in enumerate(FALLBACKS):
        body = client.get(f"/api/v1/widgets/acme/{case}").json
        shown.append((field, body["widget"][field], manifest, body["versions"][0][field]))
    assert shown == FALLBACKS


words = st.sampled_from(["0", "9", "10", "a", "a-", "a0", "rc", "Z", "-"])
semvers = st.builds(
    lambda core, pre, build: f"1.{core}.0{'-' * bool(pre)}{pre}{'+' * bool(build)}{build}",
    st.sampled_from([0, 9, 10]),
    st.lists(words, max_size=3).map(".".join),
    st.sampled_from(["", "1", "b"]),
)
published = st.sampled_from([TIE, "2025-06-01T00:00:00.001Z", "2024-06-01T00:00:00.000Z"])

histories = st.dictionaries(semvers, st.tuples(published, st.booleans()), max_size=12)


def with_history(name: int, history: dict[str, tuple[str, bool]]) -> dict[str, Any]:
    versions = (version(n, publishedAt=t, yanked=yanked) for n, (t, yanked) in history.items())
    return document(f"acme/{name}", *versions)


@catalog_for_each_example(6)
@given(histories=st.lists(histories, min_size=10, max_size=10))
def test_order_and_latest_follow_time_precedence_text(
    client_with: Catalog, histories: list[dict[str, tuple[str, bool]]]
) -> None:
    client = client_with(*(with_history(*named) for named in enumerate(histories)))
    for index, history in enumerate(histories):
        newest = sorted(history, key=lambda n: (history[n][0], Version.parse(n), n), reverse=True)
        body = client.get(f"/api/v1/widgets/acme/{index}").json
        assert [entry["version"] for entry in body["versions"]] == newest
        assert body["latestVersion"] == next((n for n in newest if not history[n][1]), None)


def test_all_versions_are_listed(client_with: Catalog) -> None:
    every = [f"1.{n}.0" for n in range(150)]
    client = client_with(document("acme/clock", *map(version, every)))
    assert numbers(client) == every[::-1]


def test_scope_and_name_may_be_any_percent_encoded_text(client_with: Catalog) -> None:
    segments = ["Météo", "天気", "e\u0301", "é", " a ", "a%2Fb", "%41", "a?b#c", "a+b", "a&b=c;d"]
    segments += ['"', "\\", "search", "..a", "x" * 214]
    client = client_with(*(document(f"{text}/{text}", version()) for text in segments))
    for text in segments:
        encoded = quote(text, safe="")
        response = client.get(f"/api/v1/widgets/{encoded}/{encoded}")
        assert response.status_code == 200, text
        for part in (response.json["widget"], response.json["versions"][0]):
            assert (part["scope"], part["name"]) == (text, text)


def test_json_is_utf8_and_not_escaped(client_with: Catalog) -> None:
    client = client_with(document(displayName="Météo 天気 ساعة 🕰 <b>&'"))
    assert '"displayName":"Météo 天気 ساعة 🕰 <b>&\'"' in client.get(CLOCK).data.decode("utf-8")
    assert "天気" in client.get("/api/v1/widgets/acme/天気").data.decode("utf-8")


any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@catalog_for_each_example(6)
@given(texts=st.lists(any_text, min_size=10, max_size=10))
def test_any_text_is_returned_unchanged(client_with: Catalog, texts: list[str]) -> None:
    versions = [
        version(f"1.{n}.0", displayName=text, releaseNotes=text, permissions=[text])
        for n, text in enumerate(texts)
    ]
    body = client_with(document("acme/clock", *versions, description=texts[0])).get(CLOCK).json
    assert body["widget"]["description"] == texts[0]
    shown = [(e["displayName"], e["releaseNotes"], e["permissions"]) for e in body["versions"]]
    assert shown == [(text, text, [text]) for text in reversed(texts)]
