"""flask publish: a version from a manifest and a file, at once in every answer of the API."""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import ROOT
from flask import Flask

AppWith = Callable[..., Flask]
URL = "https://cdn.example.com/{scope}/{name}/{version}.js"
BUNDLE = b"export default () => 'tick'\n"
NAMES = {"scope": "acme", "name": "clock", "version": "1.0.0"}
LEAST = {**NAMES, "displayName": "World Clock", "sdkVersion": "^1.0.0"}
LOOKS = {"displayName": 'Wörld "Clock" 🕐', "description": "<b>\nTime", "icon": "mdi:clock"}
REST = {
    "sdkVersion": ">=1.2 <3 || ^4.0.0-beta",
    "minSize": {"w": 2, "h": 0},
    "maxSize": {"w": 2, "h": 9007199254740991},
    "configVersion": 1.5,
    "permissions": ["network", "", "位置"],
    "license": "MIT",
    "releaseNotes": "",
}
FULL = {**NAMES, **LOOKS, **REST, "isOfficial": True}


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(BUNDLE_URL=URL)


def files(app: Flask, manifest: object, bundle: bytes = BUNDLE) -> list[str]:
    """The manifest, unless it is bytes already, and the bundle, as files beside the database."""
    described = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    paths = [Path(app.config["DATABASE"]).with_name(name) for name in ("clock.json", "clock.js")]
    for path, content in zip(paths, (described, bundle), strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


def run(app: Flask, *arguments: str, given: str | bytes | None = None) -> Result:
    return app.test_cli_runner().invoke(args=arguments, input=given)


def publish(app: Flask, manifest: object, *options: str, bundle: bytes = BUNDLE) -> Result:
    return run(app, "publish", *files(app, manifest, bundle), *options)


def refusal(result: Result) -> str:
    """The one sentence that a command refuses with."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


def stored(app: Flask) -> str:
    return run(app, "export").stdout


def get(app: Flask, path: str) -> Json:
    return app.test_client().get(f"/api/{path}").get_json()


def detail(app: Flask) -> Json:
    return get(app, "v1/widgets/acme/clock")


def test_first_version_creates_the_widget_with_every_field_of_the_manifest(app: Flask) -> None:
    result = publish(app, {**FULL, "version": "1.4.0-rc.1"})
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "Published acme/clock@1.4.0-rc.1.",
        "The latest version of acme/clock is now 1.4.0-rc.1.",
    ]
    shown = detail(app)
    names = {"scope": "acme", "name": "clock"}
    published = shown["versions"][0]["publishedAt"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", published)
    counted = {"isOfficial": True, "downloadCount": None, "createdAt": published}
    bundle = {
        "bundleUrl": "https://cdn.example.com/acme/clock/1.4.0-rc.1.js",
        "bundleSize": 28,
        "sha256Hash": hashlib.sha256(BUNDLE).hexdigest(),
        "publishedAt": published,
    }
    state = {"yanked": False, "yankedReason": None, "deprecationMessage": None}
    assert shown == {
        "widget": {**names, **LOOKS, **counted},
        "versions": [{**names, "version": "1.4.0-rc.1", **LOOKS, **REST, **bundle, **state}],
        "latestVersion": "1.4.0-rc.1",
    }


@pytest.mark.parametrize("nulls", [{}, dict.fromkeys(FULL)], ids=["absent", "null"])
def test_what_a_manifest_leaves_out_has_its_default(app: Flask, nulls: Json) -> None:
    assert publish(app, {**nulls, **LEAST}).exit_code == 0
    shown = detail(app)
    (entry,) = shown["versions"]
    sizes = {"minSize": {"w": 1, "h": 1}, "maxSize": {"w": 12, "h": 12}}
    unsaid = dict.fromkeys(("description", "icon", "configVersion", "license", "releaseNotes"))
    assert entry == {**entry, **sizes, **unsaid, "permissions": []}
    assert shown["widget"]["isOfficial"] is None


def test_later_version_has_its_own_looks_and_leaves_the_widget_its(app: Flask) -> None:
    own = {"displayName": "Tower", "description": "Bells", "icon": "mdi:bell"}
    publish(app, FULL)
    before = detail(app)["widget"]
    result = publish(app, {**FULL, **own, "version": "2.0.0", "isOfficial": False})
    assert "isOfficial is unchanged; use flask official or" in result.stderr
    shown = detail(app)
    assert shown["widget"] == before
    seen = {entry["version"]: {key: entry[key] for key in own} for entry in shown["versions"]}
    assert seen == {"1.0.0": LOOKS, "2.0.0": own}
    assert [get(app, f"v1/widgets/search?q={q}")["total"] for q in ("world", "tower")] == [1, 0]


def test_later_version_without_looks_has_those_of_the_widget(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", icon="mdi:old"), BUNDLE_URL=URL)
    assert publish(app, {**NAMES, "sdkVersion": "*"}).exit_code == 0
    run(app, "describe", "acme/clock", "--display-name", "Renamed")
    (entry,) = detail(app)["versions"]
    assert (entry["displayName"], entry["icon"]) == ("Renamed", "mdi:old")


BUNDLES = {"empty": b"", "binary": b"\x00\xff\r\n\x1a", "large": b"0123456789abcdef" * 70_000}


@pytest.mark.parametrize("bundle", BUNDLES.values(), ids=BUNDLES)
def test_size_and_hash_are_of_the_bytes_in_the_file(app: Flask, bundle: bytes) -> None:
    publish(app, LEAST, bundle=bundle)
    (entry,) = detail(app)["versions"]
    assert entry["bundleSize"] == len(bundle)
    assert entry["sha256Hash"] == hashlib.sha256(bundle).hexdigest()


@pytest.mark.parametrize("key", LEAST)
def test_missing_key_is_refused_by_its_name(app: Flask, key: str) -> None:
    manifest = {name: value for name, value in LEAST.items() if name != key}
    for described in (manifest, {**manifest, key: None}):
        assert f"{key} is missing" in refusal(publish(app, described))
    assert stored(app) == ""


BAD = {
    "scope with a slash": ("scope", "ac/me"),
    "dots for a name": ("name", ".."),
    "half of a pair in a scope": ("scope", "1\ud800"),
    "half of a pair in a name": ("name", "1\ud800"),
    "half of a pair in a version": ("version", "1\ud800"),
    "half of a pair in a text": ("releaseNotes", "1\ud800"),
    "version with v": ("version", "v1.0.0"),
    "version of two numbers": ("version", "1.0"),
    "version too large": ("version", "9007199254740992.0.0"),
    "version as a number": ("version", 1),
    "empty displayName": ("displayName", ""),
    "range of words": ("sdkVersion", "any, please"),
    "range with a bad prerelease": ("sdkVersion", "^1.0.0-01"),
    "size in halves": ("minSize", {"w": 1.5, "h": 1}),
    "size below nothing": ("minSize", {"w": -1, "h": 1}),
    "size without h": ("maxSize", {"w": 1}),
    "size beyond JavaScript": ("maxSize", {"w": 9007199254740992, "h": 12}),
    "endless configVersion": ("configVersion", float("inf")),
    "permissions of numbers": ("permissions", [1]),
    "isOfficial as a number": ("isOfficial", 1),
}


@pytest.mark.parametrize(("key", "value"), BAD.values(), ids=BAD)
def test_bad_value_is_refused_by_its_key_and_itself(app: Flask, key: str, value: Any) -> None:
    said = refusal(publish(app, {**LEAST, key: value}))
    shown = json.dumps(value) if not isinstance(value, str) else f"'{ascii(value)[1:-1]}'"
    assert re.search(rf"\b{key} (must be .* not )?{re.escape(shown)}", said)
    assert stored(app) == ""


def test_smallest_size_above_the_largest_is_refused(app: Flask) -> None:
    sizes = {"minSize": {"w": 1, "h": 5}, "maxSize": {"w": 9, "h": 4}}
    assert "must not exceed maxSize" in refusal(publish(app, {**LEAST, **sizes}))


def test_every_problem_is_named_at_once(app: Flask) -> None:
    said = refusal(publish(app, {**LEAST, "name": "", "version": "x", "license": 1}))
    assert re.findall(r"(\w+) must be", said) == ["name", "version", "license"]


def test_unknown_key_is_refused_with_those_there_are(app: Flask) -> None:
    said = refusal(publish(app, {**LEAST, "licence": "MIT", "yanked": False}))
    assert said.startswith("The manifest has 'licence', 'yanked'; a manifest may have ")
    assert set(re.findall(r"\w+", said.split("may have ")[1])) == set(FULL)
    assert stored(app) == ""


NOT_JSON = {
    "empty": b"",
    "not UTF-8": b'{"scope": "ac\xffme"}',
    "nested deep": b'{"icon": ' + b"[" * 100_000,
    "many digits": b'{"icon": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("manifest", NOT_JSON.values(), ids=NOT_JSON)
def test_manifest_that_is_not_json_is_refused_by_its_file(app: Flask, manifest: bytes) -> None:
    said = refusal(publish(app, manifest))
    assert said.split("/")[-1].startswith("clock.json is not JSON in UTF-8: ")


@pytest.mark.parametrize("manifest", [[], None, "x", 1, [LEAST]], ids=repr)
def test_manifest_that_is_no_object_is_refused(app: Flask, manifest: object) -> None:
    assert refusal(publish(app, manifest)) == "The manifest must be one JSON object."


SINCE = {
    "nothing": ["list"],
    "yank": ["yank", "acme/clock@1.0.0", "--reason", "Broken."],
    "deprecate": ["deprecate", "acme/clock@1.0.0", "Old."],
    "describe": ["describe", "acme/clock", "--display-name", "Other", "--icon", "x"],
}


@pytest.mark.parametrize("change", SINCE.values(), ids=SINCE)
def test_same_again_is_already_published_and_changes_nothing(app: Flask, change: list[str]) -> None:
    publish(app, FULL)
    run(app, *change)
    before = stored(app)
    result = publish(app, dict(reversed(FULL.items())))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "acme/clock@1.0.0 is already published.\n"
    assert stored(app) == before


@pytest.mark.parametrize("key", [*LOOKS, *REST])
def test_same_version_with_another_field_is_refused_by_its_key(app: Flask, key: str) -> None:
    sizes = {"minSize": {"w": 2, "h": 1}, "maxSize": {"w": 2, "h": 4}, "permissions": []}
    other = {"displayName": "World clock", "sdkVersion": ">=1.2 <3", **sizes}.get(key)
    publish(app, FULL)
    before = stored(app)
    assert refusal(publish(app, {**FULL, key: other})) == (
        f"acme/clock@1.0.0 is published already with a different {key}; "
        "publish the change as a new version."
    )
    assert stored(app) == before


def test_same_version_with_other_bytes_is_refused(app: Flask) -> None:
    publish(app, LEAST)
    before = stored(app)
    assert "a different sha256Hash; " in refusal(publish(app, LEAST, bundle=BUNDLE.upper()))
    elsewhere = publish(app, LEAST, "--bundle-url", "https://example.com/x", bundle=b"")
    assert "a different bundleSize, bundleUrl, sha256Hash; " in refusal(elsewhere)
    assert stored(app) == before


def test_dry_run_prints_what_would_be_stored_and_stores_nothing(app: Flask) -> None:
    result = publish(app, FULL, "--dry-run")
    assert (result.exit_code, result.stderr, stored(app)) == (0, "", "")
    assert "Wörld" in result.stdout
    publish(app, FULL)
    would, did = json.loads(result.stdout), detail(app)
    for shown in (would, did):  # the moment differs from run to run
        assert shown["widget"].pop("createdAt") == shown["versions"][0].pop("publishedAt")
    for entry in did["versions"]:
        del entry["scope"], entry["name"]  # a widget document says them once
    assert (would["widget"], would["versions"]) == (did["widget"], did["versions"])


def test_dry_run_of_a_later_version_shows_the_widget_as_it_stays(app: Flask) -> None:
    publish(app, LEAST)
    before = stored(app)
    shown = json.loads(publish(app, {**FULL, "version": "2.0.0"}, "--dry-run").stdout)
    assert shown["widget"] == detail(app)["widget"]
    assert [entry["version"] for entry in shown["versions"]] == ["2.0.0"]
    assert "different sha256Hash" in refusal(publish(app, LEAST, "--dry-run", bundle=b"x" * 28))
    assert stored(app) == before


def test_bundle_url_of_the_option_wins_over_the_setting(app: Flask) -> None:
    publish(app, LEAST, "--bundle-url", "http://localhost:8000/{name}.js?v={version}")
    (entry,) = detail(app)["versions"]
    assert entry["bundleUrl"] == "http://localhost:8000/clock.js?v=1.0.0"


def test_bundle_url_holds_names_percent_encoded_and_fills_each_once(app: Flask) -> None:
    odd = {"scope": "@acme", "name": "{version} 100%?#&ü", "version": "1.0.0-a+b"}
    assert publish(app, {**LEAST, **odd}).exit_code == 0
    (entry,) = json.loads(stored(app))["versions"]
    assert entry["bundleUrl"] == (
        "https://cdn.example.com/%40acme/%7Bversion%7D%20100%25%3F%23%26%C3%BC/1.0.0-a%2Bb.js"
    )


def test_without_a_bundle_url_nothing_is_published(app_with: AppWith) -> None:
    app = app_with()
    asked = "The bundle has no URL: use --bundle-url or set CATALOG_BUNDLE_URL."
    assert refusal(publish(app, LEAST)) == asked
    assert stored(app) == ""


BAD_URLS = ["javascript:alert(1)", "//cdn.example.com/x", "https://", "https://a b/", "https://[x"]


@pytest.mark.parametrize("url", [*BAD_URLS, "https://a/\udcff"], ids=ascii)
def test_bundle_url_that_is_no_web_address_is_refused(app: Flask, url: str) -> None:
    said = refusal(publish(app, LEAST, "--bundle-url", url))
    assert f"bundleUrl must be an absolute http or https URL, not {url!a}" in said
    assert stored(app) == ""


def test_manifest_or_bundle_may_come_from_standard_input(app: Flask) -> None:
    manifest, bundle = files(app, LEAST)
    assert run(app, "publish", "-", bundle, given=json.dumps(LEAST)).exit_code == 0
    # "Already published" says that the same bytes were read.
    said = run(app, "publish", manifest, "-", given=BUNDLE).stderr
    assert said == "acme/clock@1.0.0 is already published.\n"


def test_manifest_and_bundle_cannot_both_be_standard_input(app: Flask) -> None:
    assert run(app, "publish", "-", "-", given=json.dumps(LEAST)).exit_code in (1, 2)
    assert stored(app) == ""


def test_version_of_an_unlisted_widget_stays_unseen(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", listed=False), BUNDLE_URL=URL)
    assert "acme/clock is unlisted; flask relist shows it.\n" in publish(app, LEAST).stderr
    assert detail(app) == {"error": "There is no widget 'acme/clock'."}
    assert get(app, "v1/widgets/search")["total"] == 0
    assert [each["version"] for each in json.loads(stored(app))["versions"]] == ["1.0.0"]


def test_version_is_the_newest_in_every_answer_at_once(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version("2.0.0")), BUNDLE_URL=URL)
    client = app.test_client()
    family = ["v1/widgets/search?q=clock", "v1/widgets/acme/clock", "widgets/acme/registry.json"]
    before = [client.get(f"/api/{path}").headers["ETag"] for path in family]
    publish(app, {**LEAST, "version": "1.9.5"})
    after = [client.get(f"/api/{path}") for path in family]
    assert not {answer.headers["ETag"] for answer in after} & set(before)
    found, shown, registry = (answer.get_json() for answer in after)
    assert [entry["version"] for entry in shown["versions"]] == ["1.9.5", "2.0.0"]
    assert found["widgets"][0]["latestVersion"] == shown["versions"][0]
    assert registry["widgets"][0]["versions"] == shown["versions"]


def publish_at_once(app: Flask, manifests: list[Json]) -> list[tuple[int, str]]:
    """Publish each in a process of its own, none before all have looked and wait to write."""
    _, bundle = files(app, LEAST)
    command = [sys.executable, "-m", "flask", "publish", "-", bundle, "--bundle-url", URL]
    environment = {**os.environ, "CATALOG_DATABASE": str(app.config["DATABASE"])}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        processes = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, **pipes)
            for _ in manifests
        ]
        for process, manifest in zip(processes, manifests, strict=True):
            process.stdin.write(json.dumps(manifest))
            process.stdin.close()
        waiting = {process.stderr.readline() for process in processes}
        holder.execute("ROLLBACK")
    told = []
    for process in processes:
        with process:
            told.append((process.wait(timeout=30), process.stderr.readline().strip()))
    assert waiting == {"The database is busy; waiting.\n"}
    return told


def test_processes_that_publish_versions_of_a_new_widget_at_once_lose_none(app: Flask) -> None:
    numbers = [f"1.{minor}.0" for minor in range(8)]
    told = publish_at_once(app, [{**LEAST, "version": number} for number in numbers])
    assert told == [(0, f"Published acme/clock@{number}.") for number in numbers]
    assert sorted(entry["version"] for entry in detail(app)["versions"]) == numbers
    assert run(app, "check").exit_code == 0


def test_processes_that_publish_the_same_version_at_once_store_it_once(app: Flask) -> None:
    told = publish_at_once(app, [LEAST] * 4)
    already = (0, "acme/clock@1.0.0 is already published.")
    assert sorted(told) == [(0, "Published acme/clock@1.0.0."), already, already, already]
    assert [entry["version"] for entry in detail(app)["versions"]] == ["1.0.0"]
