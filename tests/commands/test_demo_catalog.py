"""The demo catalog: realistic, and with an example of every special case."""

import hashlib
import json
import unicodedata

import pytest
from builders import Json
from conftest import DEMO, Server, run
from flask import Flask
from flask.testing import FlaskClient

from catalog.domain.semver_ranges import is_range

CATALOG = {
    f"{each['widget']['scope']}/{each['widget']['name']}": each
    for each in map(json.loads, DEMO.read_text(encoding="utf-8").splitlines())
}
VERSIONS = [(path, entry) for path, each in CATALOG.items() for entry in each["versions"]]


def numbers(path: str) -> list[str]:
    return [entry["version"] for entry in CATALOG[path]["versions"]]


WIDGETS: dict[str, Json] = {
    "acme/clock": {"isOfficial": True},
    "community/departures": {"isOfficial": False},
    "community/air-quality": {"isOfficial": None},
    "acme/clock-classic": {"listed": False},
    "community/quote-of-the-day": {"description": None},
    "ops/log-tail": {"icon": None, "downloadCount": 0},
    "ops/wall-message": {"downloadCount": None},
    "community/meteo-marine": {"displayName": "Météo marine"},
    "hearth/giessplan": {"displayName": "Gießplan"},
    "community/tenki-yoho": {"displayName": "天気予報"},
    "community/recipe-box": {"displayName": 'Recipe Box "Nuts & Bolts"'},
}
APPEARANCE = ("displayName", "description", "icon")
VERSION_CASES: dict[tuple[str, str], Json] = {
    ("community/moon-phase", "1.1.0"): {"license": None},
    ("community/moon-phase", "1.0.0"): {"permissions": []},
    ("community/quote-of-the-day", "1.1.0"): {"configVersion": None},
    ("ops/build-status", "1.3.0"): {"yanked": True, "yankedReason": None},
    ("community/currency-converter", "1.4.0+build.7"): {"yanked": False},
    ("acme/weather", "1.0.0"): {"displayName": "Weather Today", "icon": "mdi:weather-sunny"},
    ("acme/weather", "3.1.0"): dict.fromkeys(APPEARANCE),
    ("community/departures", "1.0.0"): {"displayName": "Timetable", "icon": None},
    ("hearth/scenes", "1.2.0"): {"sdkVersion": "latest please"},
}
RANGES = {
    *("^1.2.0", "^2.0.0-beta.1", "~1.2", "~1", "1.2.0", "=1.0.0", "2.0.0-beta.1", "1.x", "1.4.X"),
    *("1", "*", "", ">1.1.0", ">=1.2.0", "<2.0.0", "<=1.9.9", ">=1.2.0 <2.0.0", "1.0.0 - 1.3.x"),
    *("1.2 - 1.6", "^1.4.0 || ^2.0.0"),
}


def test_catalog_has_every_kind_of_widget_version_and_range() -> None:
    assert len(CATALOG) == 34
    scopes = {path.split("/")[0] for path in CATALOG}
    assert scopes == {"acme", "acme-labs", "community", "hearth", "ops"}
    for path, fields in WIDGETS.items():
        assert {key: CATALOG[path]["widget"][key] for key in fields} == fields
    entries = {(path, entry["version"]): entry for path, entry in VERSIONS}
    for number, fields in VERSION_CASES.items():
        assert {key: entries[number][key] for key in fields} == fields
    assert "clock" in entries["acme/clock-classic", "0.9.4"]["deprecationMessage"]
    right_to_left = CATALOG["community/prayer-times"]["widget"]["displayName"]
    assert {unicodedata.bidirectional(character) for character in right_to_left} == {"AL", "WS"}
    assert '<b>"Bread' in CATALOG["community/recipe-box"]["widget"]["description"]
    assert {entry["sdkVersion"] for entry in entries.values()} >= RANGES


LATEST = {
    "no versions at all": ("acme-labs/gesture-pad", [], None),
    "all yanked": ("acme-labs/voice-memo", ["0.3.0", "0.2.0", "0.1.0"], None),
    "newest yanked": ("hearth/thermostat", ["2.2.0", "2.1.0"], "2.1.0"),
    "prereleases only": (
        *("acme-labs/whiteboard", ["0.1.0-rc.1", "0.1.0-beta.2", "0.1.0-beta.1"]),
        "0.1.0-rc.1",
    ),
    "backport": ("acme/notes", ["1.9.5", "2.0.1", "2.0.0"], "1.9.5"),
    "1.10.0 beside 1.9.0": ("acme/calendar", ["1.11.0", "1.10.1", "1.10.0", "1.9.0"], "1.11.0"),
    "same time twice": ("hearth/lights", ["2.0.0", "1.8.0"], "2.0.0"),
    "build metadata": ("community/currency-converter", ["1.4.0+build.7"], "1.4.0+build.7"),
    "60 versions": ("ops/metrics-graph", ["3.2.0", "3.1.1"], "3.2.0"),
}


@pytest.mark.parametrize(("path", "newest", "latest"), LATEST.values(), ids=LATEST)
def test_detail_shows_the_case(
    demo: FlaskClient, path: str, newest: list[str], latest: str | None
) -> None:
    body = demo.get(f"/api/v1/widgets/{path}").json
    shown = [entry["version"] for entry in body["versions"]]
    assert shown[: len(newest)] == newest
    assert shown == numbers(path)
    assert body["latestVersion"] == latest


def test_catalog_has_yanked_prerelease_and_simultaneous_versions() -> None:
    assert all(entry["yanked"] for entry in CATALOG["acme-labs/voice-memo"]["versions"])
    assert all("-" in number for number in numbers("acme-labs/whiteboard"))
    assert len(numbers("ops/metrics-graph")) == 60
    first, second, *_ = CATALOG["hearth/lights"]["versions"]
    assert first["publishedAt"] == second["publishedAt"]


def test_exactly_one_range_is_invalid() -> None:
    invalid = [
        (path, entry["version"]) for path, entry in VERSIONS if not is_range(entry["sdkVersion"])
    ]
    assert invalid == [("hearth/scenes", "1.2.0")]


def test_every_bundle_has_its_own_url_and_hash() -> None:
    for key in ("bundleUrl", "sha256Hash"):
        assert len({entry[key] for _, entry in VERSIONS}) == len(VERSIONS) == 205


@pytest.mark.parametrize("path", CATALOG)
def test_bundles_have_the_size_and_hash_that_the_service_shows(
    demo: FlaskClient, path: str
) -> None:
    versions = (demo.get(f"/api/v1/widgets/{path}").json or {}).get("versions", [])
    for entry in versions:
        with demo.get(entry["bundleUrl"]) as response:
            content = response.data
        shown = entry["bundleSize"], entry["sha256Hash"]
        assert shown == (len(content), hashlib.sha256(content).hexdigest())
        assert f'"{path}"' in content.decode()
        assert f'"{entry["version"]}"' in content.decode()


def test_mirror_of_the_demo_catalog_has_its_bundles(server: Server, mirror_app: Flask) -> None:
    result = run(mirror_app, "mirror", server.url, "--bundles", "--scope", "acme-labs")
    assert result.exit_code == 0, result.stderr
    assert run(mirror_app, "check").stdout == ""
    held = [*mirror_app.extensions["bundles"].hashes()]
    picture = CATALOG["acme-labs/focus-timer"]["about"]["picture"]["sha256Hash"]
    hashes = [entry["sha256Hash"] for path, entry in VERSIONS if path.startswith("acme-labs/")]
    assert sorted(held) == sorted([*hashes, picture])


def test_no_version_is_older_than_its_widget() -> None:
    for path, entry in VERSIONS:
        assert CATALOG[path]["widget"]["createdAt"] <= entry["publishedAt"], path


def test_pictures_are_small_and_of_one_size(demo: FlaskClient) -> None:
    paths = [path for path, each in CATALOG.items() if each.get("about", {}).get("picture")]
    assert len(paths) >= 12
    for path in paths:
        picture = demo.get(f"/api/v1/widgets/{path}/about").json["picture"]
        assert (picture["width"], picture["height"]) == (640, 360)
        assert picture["size"] < 12_000
        with demo.get(picture["url"]) as response:
            assert hashlib.sha256(response.data).hexdigest() == picture["sha256Hash"]
    assert sum(each.get("about", {}).get("readme") is not None for each in CATALOG.values()) == 3
