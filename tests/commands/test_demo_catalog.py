"""The demo catalog: realistic, and with an example of every special case."""

import hashlib
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json
from conftest import DEMO, Server, error_message, run, run_on
from flask import Flask
from flask.testing import FlaskClient

from catalog.files.jsonl import read_catalog
from catalog.semver_ranges import is_range

CATALOG = {
    f"{each['widget']['scope']}/{each['widget']['name']}": each
    for each in map(json.loads, DEMO.read_text(encoding="utf-8").splitlines())
}
VERSIONS = [(path, entry) for path, each in CATALOG.items() for entry in each["versions"]]


def numbers(path: str) -> list[str]:
    return [entry["version"] for entry in CATALOG[path]["versions"]]


def bidirectional(text: str) -> set[str]:
    return {unicodedata.bidirectional(character) for character in text}


def test_catalog_has_about_30_widgets_in_5_scopes() -> None:
    assert len(CATALOG) == 34
    assert {path.split("/")[0] for path in CATALOG} == {
        *("acme", "acme-labs", "community", "hearth", "ops")
    }


WIDGET_CASES: dict[str, tuple[str, Callable[[Json], bool]]] = {
    "official": ("acme/clock", lambda widget: widget["isOfficial"] is True),
    "community": ("community/departures", lambda widget: widget["isOfficial"] is False),
    "official null": ("community/air-quality", lambda widget: widget["isOfficial"] is None),
    "unlisted": ("acme/clock-classic", lambda widget: widget["listed"] is False),
    "description null": (
        "community/quote-of-the-day",
        lambda widget: widget["description"] is None,
    ),
    "icon null": ("ops/log-tail", lambda widget: widget["icon"] is None),
    "count null": ("ops/wall-message", lambda widget: widget["downloadCount"] is None),
    "count 0": ("ops/log-tail", lambda widget: widget["downloadCount"] == 0),
    "accents": ("community/meteo-marine", lambda widget: widget["displayName"] == "Météo marine"),
    "sharp s": ("hearth/giessplan", lambda widget: widget["displayName"] == "Gießplan"),
    "CJK": ("community/tenki-yoho", lambda widget: widget["displayName"] == "天気予報"),
    "right to left": (
        "community/prayer-times",
        lambda widget: bidirectional(widget["displayName"]) == {"AL", "WS"},
    ),
    "emoji": ("community/moon-phase", lambda widget: widget["displayName"].startswith("🌙 ")),
    "quotes in a name": (
        "community/recipe-box",
        lambda widget: widget["displayName"] == 'Recipe Box "Nuts & Bolts"',
    ),
    "HTML in a description": (
        "community/recipe-box",
        lambda widget: '<b>"Bread & Butter\'s"</b>' in widget["description"],
    ),
}


@pytest.mark.parametrize(("path", "is_case"), WIDGET_CASES.values(), ids=WIDGET_CASES)
def test_catalog_has_a_widget(path: str, is_case: Callable[[Json], bool]) -> None:
    assert is_case(CATALOG[path]["widget"])


VERSION_CASES: dict[str, tuple[str, str, dict[str, object]]] = {
    "deprecated": (
        *("acme/clock-classic", "0.9.4"),
        {"deprecationMessage": "Classic Clock has been replaced by World Clock (acme/clock)."},
    ),
    "license null": ("community/moon-phase", "1.1.0", {"license": None}),
    "config version null": ("community/quote-of-the-day", "1.1.0", {"configVersion": None}),
    "yanked for no reason": ("ops/build-status", "1.3.0", {"yanked": True, "yankedReason": None}),
    "build metadata": ("community/currency-converter", "1.4.0+build.7", {"yanked": False}),
    "manifest that overrides": (
        *("acme/weather", "1.0.0"),
        {
            "displayName": "Weather Today",
            "description": "Today's weather for one place.",
            "icon": "mdi:weather-sunny",
        },
    ),
    "manifest that overrides in part": (
        *("community/departures", "1.0.0"),
        {"displayName": "Timetable", "description": None, "icon": None},
    ),
    "manifest that falls back": (
        *("acme/weather", "3.1.0"),
        {"displayName": None, "description": None, "icon": None},
    ),
    "manifest that falls back to null": (
        *("community/quote-of-the-day", "1.0.0"),
        {"description": None, "icon": None},
    ),
    "no permissions": ("community/moon-phase", "1.0.0", {"permissions": []}),
    "no range": ("hearth/scenes", "1.2.0", {"sdkVersion": "latest please"}),
}


@pytest.mark.parametrize(("path", "number", "fields"), VERSION_CASES.values(), ids=VERSION_CASES)
def test_catalog_has_a_version(path: str, number: str, fields: dict[str, object]) -> None:
    (entry,) = (each for each in CATALOG[path]["versions"] if each["version"] == number)
    assert {key: entry[key] for key in fields} == fields


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


RANGES = {
    "caret": "^1.2.0",
    "caret with a prerelease": "^2.0.0-beta.1",
    "tilde": "~1.2",
    "tilde on a major": "~1",
    "exact": "1.2.0",
    "equals": "=1.0.0",
    "a prerelease": "2.0.0-beta.1",
    "x": "1.x",
    "X": "1.4.X",
    "major": "1",
    "star": "*",
    "empty": "",
    "greater": ">1.1.0",
    "from": ">=1.2.0",
    "below": "<2.0.0",
    "up to": "<=1.9.9",
    "between": ">=1.2.0 <2.0.0",
    "hyphen": "1.0.0 - 1.3.x",
    "hyphen of partials": "1.2 - 1.6",
    "or": "^1.4.0 || ^2.0.0",
}


@pytest.mark.parametrize("text", RANGES.values(), ids=RANGES)
def test_catalog_has_every_kind_of_range(text: str) -> None:
    assert text in {entry["sdkVersion"] for _, entry in VERSIONS}


def test_exactly_one_range_is_invalid() -> None:
    invalid = [
        (path, entry["version"]) for path, entry in VERSIONS if not is_range(entry["sdkVersion"])
    ]
    assert invalid == [("hearth/scenes", "1.2.0")]


def test_catalog_imports_with_one_warning() -> None:
    with DEMO.open("rb") as file:
        warnings = [warning for each in read_catalog([file]) for warning in each.warnings]
    assert warnings == [
        "version 1.2.0: sdkVersion 'latest please' is not an npm range; no SDK will match it"
    ]


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


def test_bundle_of_an_unlisted_widget_is_held_too(demo: FlaskClient) -> None:
    bundles = demo.application.extensions["bundles"]
    (entry, *_) = CATALOG["acme/clock-classic"]["versions"]
    assert bundles.holds(entry["sha256Hash"], entry["bundleSize"])


def test_mirror_of_the_demo_catalog_has_its_bundles(server: Server, mirror_app: Flask) -> None:
    result = run(mirror_app, "mirror", server.url, "--bundles", "--scope", "acme-labs")
    assert result.exit_code == 0, result.stderr
    assert run(mirror_app, "check").stdout == ""
    held = [*mirror_app.extensions["bundles"].hashes()]
    assert sorted(held) == sorted(
        entry["sha256Hash"] for path, entry in VERSIONS if path.startswith("acme-labs/")
    )


def test_demo_catalog_without_a_directory_leaves_nothing_behind(tmp_path: Path) -> None:
    result = run_on(tmp_path / "none" / "catalog.db", "init", "--demo")
    message = f"{tmp_path}/none/catalog.db cannot be created: No such file or directory."
    assert (error_message(result), os.listdir(tmp_path)) == (message, [])


def test_no_version_is_older_than_its_widget() -> None:
    for path, entry in VERSIONS:
        assert CATALOG[path]["widget"]["createdAt"] <= entry["publishedAt"], path
