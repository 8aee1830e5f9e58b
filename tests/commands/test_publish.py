"""publish: a version from a manifest and a bundle, visible in every response of the API."""

import gzip
import hashlib
import json
import re
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import error_message, exported, run, running, start_command
from flask import Flask

AppWith = Callable[..., Flask]
URL = "https://cdn.example.com/{scope}/{name}/{version}.js"
BUNDLE = b"export default () => 'tick'\n"
NAMES = {"scope": "acme", "name": "clock", "version": "1.0.0"}
MINIMAL = {**NAMES, "displayName": "World Clock", "sdkVersion": "^1.0.0"}
APPEARANCE = {"displayName": 'Wörld "Clock" 🕐', "description": "<b>\nTime", "icon": "mdi:clock"}
OTHER_FIELDS = {
    "sdkVersion": ">=1.2 <3 || ^4.0.0-beta",
    "minSize": {"w": 2, "h": 0},
    "maxSize": {"w": 2, "h": 9007199254740991},
    "configVersion": 1.5,
    "permissions": ["network", "", "位置"],
    "license": "MIT",
    "releaseNotes": "",
}
LINKS = {key: f"https://acme.example/{key}" for key in ("homepage", "repository", "issues")}
ALREADY = (
    "acme/clock@1.0.0 is already published; readme, links, keywords and picture are unchanged."
)
KEYWORDS = ["time", "Zeit"]
FULL = {**NAMES, **APPEARANCE, **OTHER_FIELDS, **LINKS, "keywords": KEYWORDS, "isOfficial": True}


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(BUNDLE_URL=URL)


def write_files(app: Flask, manifest: object, bundle: bytes = BUNDLE) -> list[Path]:
    """Write the manifest, as it is if it is bytes, and the bundle beside the database."""
    content = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    paths = [Path(app.config["DATABASE"]).with_name(name) for name in ("clock.json", "clock.js")]
    for path, data in zip(paths, (content, bundle), strict=True):
        path.write_bytes(data)
    return paths


def publish(app: Flask, manifest: object, *options: str, bundle: bytes = BUNDLE) -> Result:
    return run(app, "publish", *write_files(app, manifest, bundle), *options)


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
        "It is a prerelease; clients that send stable=true get no version.",
    ]
    body = detail(app)
    names = {"scope": "acme", "name": "clock"}
    published = body["versions"][0]["publishedAt"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", published)
    other_fields = {"isOfficial": True, "downloadCount": None, "createdAt": published}
    bundle = {
        "bundleUrl": "https://cdn.example.com/acme/clock/1.4.0-rc.1.js",
        "bundleSize": 28,
        "sha256Hash": hashlib.sha256(BUNDLE).hexdigest(),
        "publishedAt": published,
    }
    state = {"yanked": False, "yankedReason": None, "deprecationMessage": None}
    assert body == {
        "widget": {**names, **APPEARANCE, **other_fields},
        "versions": [
            {
                **names,
                "version": "1.4.0-rc.1",
                **APPEARANCE,
                **OTHER_FIELDS,
                **bundle,
                **state,
            }
        ],
        "latestVersion": "1.4.0-rc.1",
    }


@pytest.mark.parametrize("nulls", [{}, dict.fromkeys(FULL)], ids=["absent", "null"])
def test_optional_keys_of_a_manifest_have_defaults(app: Flask, nulls: Json) -> None:
    assert publish(app, {**nulls, **MINIMAL}).exit_code == 0
    body = detail(app)
    (entry,) = body["versions"]
    sizes = {"minSize": {"w": 1, "h": 1}, "maxSize": {"w": 12, "h": 12}}
    nulls_by_default = dict.fromkeys(
        ("description", "icon", "configVersion", "license", "releaseNotes")
    )
    assert entry == {**entry, **sizes, **nulls_by_default, "permissions": []}
    assert body["widget"]["isOfficial"] is None


def test_appearance_in_a_later_manifest_belongs_to_that_version_only(app: Flask) -> None:
    own = {"displayName": "Tower", "description": "Bells", "icon": "mdi:bell"}
    publish(app, FULL)
    before = detail(app)["widget"]
    result = publish(app, {**FULL, **own, "version": "2.0.0", "isOfficial": False})
    assert "isOfficial is unchanged; use widget-catalog official to change it." in result.stderr
    body = detail(app)
    assert body["widget"] == before
    actual = {entry["version"]: {key: entry[key] for key in own} for entry in body["versions"]}
    assert actual == {"1.0.0": APPEARANCE, "2.0.0": own}
    assert [get(app, f"v1/widgets/search?q={q}")["total"] for q in ("world", "tower")] == [1, 0]


@pytest.mark.parametrize("key", MINIMAL)
def test_missing_key_is_an_error_that_names_it(app: Flask, key: str) -> None:
    manifest = {name: value for name, value in MINIMAL.items() if name != key}
    for invalid in (manifest, {**manifest, key: None}):
        assert f"{key} is missing" in error_message(publish(app, invalid))
    assert exported(app) == b""


INVALID_VALUES = {
    "scope with a slash": ("scope", "ac/me"),
    "dots as a name": ("name", ".."),
    "lone surrogate in a name": ("name", "1\ud800"),
    "lone surrogate in a text": ("releaseNotes", "1\ud800"),
    "version with v": ("version", "v1.0.0"),
    "version as a number": ("version", 1),
    "range that is words": ("sdkVersion", "any, please"),
    "range with a bad prerelease": ("sdkVersion", "^1.0.0-01"),
    "size without h": ("maxSize", {"w": 1}),
    "infinite configVersion": ("configVersion", float("inf")),
    "isOfficial as a number": ("isOfficial", 1),
}


@pytest.mark.parametrize(("key", "value"), INVALID_VALUES.values(), ids=INVALID_VALUES)
def test_invalid_value_is_an_error_that_names_key_and_value(
    app: Flask, key: str, value: Any
) -> None:
    message = error_message(publish(app, {**MINIMAL, key: value}))
    quoted = json.dumps(value) if not isinstance(value, str) else f"'{ascii(value)[1:-1]}'"
    assert re.search(rf"\b{key} (must be .* not )?{re.escape(quoted)}", message)
    assert exported(app) == b""


@pytest.mark.parametrize("text", ["(none)", "-network", "\\network"])
def test_permission_or_licence_that_means_something_else_in_a_search_is_refused(
    app: Flask, text: str
) -> None:
    for key, value in (("permissions", ["storage", text]), ("license", text)):
        message = error_message(publish(app, {**MINIMAL, key: value}))
        quoted = f"'{ascii(text)[1:-1]}'"
        sentence = f"{key} must not contain {quoted}, which has a special meaning in a search."
        assert message.endswith(f".json: {sentence}")
    assert exported(app) == b""
    odd = document("acme/odd", version(permissions=[text], license=text))
    assert run(app, "import", "-", stdin=json.dumps(odd)).exit_code == 0


def test_all_problems_are_reported_together(app: Flask) -> None:
    message = error_message(publish(app, {**MINIMAL, "name": "", "version": "x", "license": 1}))
    assert re.findall(r"(\w+) must be", message) == ["name", "version", "license"]


def test_unknown_key_is_an_error_that_lists_the_known_ones(app: Flask) -> None:
    message = error_message(publish(app, {**MINIMAL, "licence": "MIT", "yanked": False}))
    assert (
        "/clock.json: The manifest has unknown keys: 'licence', 'yanked'; allowed keys are "
        in message
    )
    assert set(re.findall(r"\w+", message.split("allowed keys are ")[1])) == set(FULL)
    assert exported(app) == b""


NOT_JSON = {
    "empty": b"",
    "not UTF-8": b'{"scope": "ac\xffme"}',
    "nested deep": b'{"icon": ' + b"[" * 100_000,
    "many digits": b'{"icon": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("manifest", NOT_JSON.values(), ids=NOT_JSON)
def test_manifest_that_is_not_json_is_an_error_that_names_the_file(
    app: Flask, manifest: bytes
) -> None:
    message = error_message(publish(app, manifest))
    assert message.split("/")[-1].startswith("clock.json is not JSON in UTF-8: ")


@pytest.mark.parametrize("manifest", [[], None, "x", 1, [MINIMAL]], ids=repr)
def test_manifest_that_is_not_an_object_is_an_error(app: Flask, manifest: object) -> None:
    message = error_message(publish(app, manifest))
    assert message.endswith("/clock.json: The manifest must be a JSON object.")


LATER_CHANGES = {
    "nothing": ["list"],
    "yank": ["yank", "acme/clock@1.0.0", "--reason", "Broken."],
    "deprecate": ["deprecate", "acme/clock@1.0.0", "Old."],
    "describe": ["describe", "acme/clock", "--display-name", "Other", "--icon", "x"],
}


@pytest.mark.parametrize("change", LATER_CHANGES.values(), ids=LATER_CHANGES)
def test_publishing_the_same_again_changes_nothing(app: Flask, change: list[str]) -> None:
    publish(app, FULL)
    run(app, *change)
    before = exported(app)
    result = publish(app, dict(reversed(FULL.items())))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{ALREADY}\n"
    assert exported(app) == before


@pytest.mark.parametrize("key", [*APPEARANCE, *OTHER_FIELDS])
def test_same_version_with_another_field_is_an_error_that_names_the_key(
    app: Flask, key: str
) -> None:
    sizes = {"minSize": {"w": 2, "h": 1}, "maxSize": {"w": 2, "h": 4}, "permissions": []}
    other = {"displayName": "World clock", "sdkVersion": ">=1.2 <3", **sizes}.get(key)
    publish(app, FULL)
    before = exported(app)
    assert error_message(publish(app, {**FULL, key: other})) == (
        f"acme/clock@1.0.0 is already published with a different {key}; "
        "publish the change as a new version."
    )
    assert exported(app) == before


def test_same_version_with_other_bytes_is_an_error(app: Flask) -> None:
    publish(app, MINIMAL)
    before = exported(app)
    assert "a different sha256Hash; " in error_message(publish(app, MINIMAL, bundle=BUNDLE.upper()))
    elsewhere = publish(app, MINIMAL, "--bundle-url", "https://example.com/x", bundle=b"x")
    assert "a different bundleSize, bundleUrl, sha256Hash; " in error_message(elsewhere)
    assert exported(app) == before


def test_dry_run_prints_what_would_be_stored_and_stores_nothing(app: Flask) -> None:
    result = publish(app, FULL, "--dry-run")
    assert (result.exit_code, result.stderr, exported(app)) == (0, "", b"")
    assert "Wörld" in result.stdout
    publish(app, FULL)
    printed, published = json.loads(result.stdout), detail(app)
    assert printed.pop("about") == {"readme": None, **LINKS, "keywords": KEYWORDS, "picture": None}
    for body in (printed, published):
        # The time differs from run to run.
        assert body["widget"].pop("createdAt") == body["versions"][0].pop("publishedAt")
    for entry in published["versions"]:
        # A widget document has them in the widget only.
        del entry["scope"], entry["name"]
    assert printed == {key: published[key] for key in ("widget", "versions")}


def test_dry_run_of_a_later_version_prints_the_existing_widget(app: Flask) -> None:
    publish(app, MINIMAL)
    before = exported(app)
    printed = json.loads(publish(app, {**FULL, "version": "2.0.0"}, "--dry-run").stdout)
    assert printed["widget"] == detail(app)["widget"]
    assert [entry["version"] for entry in printed["versions"]] == ["2.0.0"]
    changed = publish(app, MINIMAL, "--dry-run", bundle=b"x" * 28)
    assert "different sha256Hash" in error_message(changed)
    assert exported(app) == before


def test_bundle_url_option_overrides_the_setting(app: Flask) -> None:
    publish(app, MINIMAL, "--bundle-url", "http://localhost:8000/{name}.js?v={version}")
    (entry,) = detail(app)["versions"]
    assert entry["bundleUrl"] == "http://localhost:8000/clock.js?v=1.0.0"


def test_bundle_url_contains_percent_encoded_names(app: Flask) -> None:
    odd = {"scope": "@acme", "name": "{version} 100%?#&ü", "version": "1.0.0-a+b"}
    assert publish(app, {**MINIMAL, **odd}).exit_code == 0
    (entry,) = json.loads(exported(app))["versions"]
    assert entry["bundleUrl"] == (
        "https://cdn.example.com/%40acme/%7Bversion%7D%20100%25%3F%23%26%C3%BC/1.0.0-a%2Bb.js"
    )


def test_a_prerelease_that_becomes_the_latest_version_is_named(app: Flask) -> None:
    publish(app, {**MINIMAL, "version": "1.0.0"})
    result = publish(app, {**MINIMAL, "version": "2.0.0-beta.1"})
    assert result.stderr.splitlines()[-2:] == [
        "The latest version of acme/clock is now 2.0.0-beta.1.",
        "It is a prerelease; clients that send stable=true get 1.0.0.",
    ]
    result = publish(app, {**MINIMAL, "version": "2.0.0"})
    assert result.stderr.splitlines()[-1] == "The latest version of acme/clock is now 2.0.0."


NOT_JAVASCRIPT = {
    "gzip": (gzip.compress(BUNDLE), "is gzip data, not JavaScript; publish the JavaScript file"),
    "zip": (b"PK\x03\x04" + bytes(30), "is a zip archive, not JavaScript"),
    "HTML": (b"\n <!DOCTYPE HTML>\n<title>502</title>", "is an HTML page, not JavaScript"),
    "HTML without a doctype": (b"\xef\xbb\xbf<html>", "is an HTML page, not JavaScript"),
    "Latin-1": ("// caf\u00e9\n".encode("latin-1"), "is not UTF-8 text, so it is not JavaScript"),
    "half a character": ("// caf\u00e9".encode()[:-1], "is not UTF-8 text"),
}


@pytest.mark.parametrize(("content", "problem"), [*NOT_JAVASCRIPT.values()], ids=[*NOT_JAVASCRIPT])
def test_what_is_certainly_not_javascript_is_refused_before_its_number_is_used(
    app: Flask, content: bytes, problem: str
) -> None:
    for options in ([], ["--store"], ["--dry-run"]):
        message = error_message(publish(app, MINIMAL, *options, bundle=content))
        assert re.match(rf"The bundle /.*/clock\.js {re.escape(problem)}", message), message
    assert exported(app) == b""
    assert publish(app, MINIMAL).exit_code == 0


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfexport{}", "export default '\u65e5'".encode(), b"<!-- x\n1", b"PK=1"]
)
def test_unusual_javascript_is_published(app: Flask, content: bytes) -> None:
    assert publish(app, MINIMAL, bundle=content).exit_code == 0


def test_a_stored_version_can_be_published_again_whatever_its_bundle_is(app: Flask) -> None:
    content = gzip.compress(BUNDLE, mtime=0)
    versions = get_documents(app, content)
    path = Path(app.config["DATABASE"]).with_name("input.jsonl")
    path.write_text(json.dumps(versions), encoding="utf-8")
    assert run(app, "import", path).exit_code == 0
    assert publish(app, MINIMAL, bundle=content).stderr == f"{ALREADY}\n"


def get_documents(app: Flask, content: bytes) -> Json:
    """Return what a dry run of publish prints for a bundle with other content."""
    document: Json = json.loads(publish(app, MINIMAL, "--dry-run").stdout)
    bundle = {"bundleSize": len(content), "sha256Hash": hashlib.sha256(content).hexdigest()}
    document["versions"][0] |= bundle
    return document


def test_empty_bundle_is_an_error_that_names_the_file(app: Flask) -> None:
    message = error_message(publish(app, MINIMAL, bundle=b""))
    assert re.fullmatch(r"The bundle /.*/clock\.js is empty\.", message)
    assert exported(app) == b""


MANIFEST_ERRORS = {
    "not JSON": (b"{", "clock.json is not JSON in UTF-8"),
    "unknown key": ({**MINIMAL, "licence": "MIT"}, "The manifest has unknown keys: 'licence'"),
    "missing key": (NAMES, "displayName is missing"),
    "invalid range": ({**MINIMAL, "sdkVersion": "soon"}, "sdkVersion 'soon' is not an npm range"),
}


@pytest.mark.parametrize("url", [None, "ftp://cdn.example.com/"], ids=["no URL", "invalid URL"])
@pytest.mark.parametrize(
    ("manifest", "message"), MANIFEST_ERRORS.values(), ids=list(MANIFEST_ERRORS)
)
def test_errors_of_the_manifest_come_before_those_of_the_url(
    app_with: AppWith, manifest: object, message: str, url: str | None
) -> None:
    error = error_message(publish(app_with(), manifest, *(["--bundle-url", url] if url else [])))
    assert message in error
    assert "URL" not in error


UNUSUAL_NAME = "has characters other than [a-z0-9._-], which clients may not expect."
UNUSUAL_ICON = "is not of the form set:name, such as mdi:clock."
WARNINGS = {
    "usual": ({"scope": "a-1", "name": "b_2.c", "icon": "mdi:clock-outline"}, []),
    "no icon": ({"icon": None}, []),
    "scope": ({"scope": "@acme"}, [f"scope '@acme' {UNUSUAL_NAME}"]),
    "name": ({"name": "Clock"}, [f"name 'Clock' {UNUSUAL_NAME}"]),
    "icon without a set": ({"icon": "clock"}, [f"icon 'clock' {UNUSUAL_ICON}"]),
    "icon as a URL": ({"icon": "https://a/b"}, [f"icon 'https://a/b' {UNUSUAL_ICON}"]),
    "empty icon": ({"icon": ""}, [f"icon '' {UNUSUAL_ICON}"]),
    "all": (
        {"scope": "a b", "name": "ü", "icon": "A:b"},
        [f"scope 'a b' {UNUSUAL_NAME}", f"name 'ü' {UNUSUAL_NAME}", f"icon 'A:b' {UNUSUAL_ICON}"],
    ),
}


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["publish", "dry run"])
@pytest.mark.parametrize(("fields", "expected"), WARNINGS.values(), ids=list(WARNINGS))
def test_unusual_names_and_icons_get_a_warning(
    app: Flask, fields: Json, expected: list[str], options: list[str]
) -> None:
    result = publish(app, {**MINIMAL, **fields}, *options)
    lines = result.stderr.splitlines()
    assert (result.exit_code, lines[: len(expected)]) == (0, [f"Warning: {w}" for w in expected])
    assert not any(line.startswith("Warning") for line in lines[len(expected) :])


def test_name_of_an_existing_widget_gets_no_warning(app_with: AppWith) -> None:
    app = app_with(document("Acme/clock"), BUNDLE_URL=URL)
    assert publish(app, {**MINIMAL, "scope": "Acme"}).stderr.splitlines()[0] == (
        "Published Acme/clock@1.0.0."
    )


def test_a_stored_version_of_the_future_stays_the_latest_with_a_warning(app_with: AppWith) -> None:
    future = version("9.0.0", publishedAt="9000-01-01T00:00:00Z")
    app = app_with(document("acme/clock", future), BUNDLE_URL=URL)
    assert publish(app, MINIMAL).stderr == (
        "Warning: acme/clock@9.0.0 has a publishedAt in the future, 9000-01-01T00:00:00.000Z, and"
        " stays the latest version until then.\nPublished acme/clock@1.0.0.\n"
    )


INVALID_URLS = [
    "javascript:alert(1)",
    "//cdn.example.com/x",
    "https://",
    "https://a b/",
    "https://[x",
]


@pytest.mark.parametrize("url", [*INVALID_URLS, "https://a/\udcff"], ids=ascii)
def test_invalid_bundle_url_is_an_error(app: Flask, url: str) -> None:
    message = error_message(publish(app, MINIMAL, "--bundle-url", url))
    assert f"bundleUrl must be an absolute http or https URL, not {url!a}" in message
    assert exported(app) == b""


def test_manifest_or_bundle_can_be_standard_input(app: Flask) -> None:
    manifest, bundle = write_files(app, MINIMAL)
    assert run(app, "publish", "-", bundle, stdin=json.dumps(MINIMAL)).exit_code == 0
    # "Already published" means that the same bytes were read.
    status = run(app, "publish", manifest, "-", stdin=BUNDLE).stderr
    assert status == f"{ALREADY}\n"


def test_manifest_and_bundle_cannot_both_be_standard_input(app: Flask) -> None:
    assert run(app, "publish", "-", "-", stdin=json.dumps(MINIMAL)).exit_code == 2
    assert exported(app) == b""


def test_version_of_an_unlisted_widget_is_not_public(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", listed=False), BUNDLE_URL=URL)
    assert (
        "acme/clock is unlisted; use widget-catalog relist to show it.\n"
        in publish(app, MINIMAL).stderr
    )
    assert detail(app) == {"error": "There is no widget 'acme/clock'."}
    assert get(app, "v1/widgets/search")["total"] == 0
    assert [entry["version"] for entry in json.loads(exported(app))["versions"]] == ["1.0.0"]


def publish_concurrently(app: Flask, manifests: list[Json]) -> list[tuple[int, str]]:
    """Publish each manifest in a process; none writes before all wait for the write lock.

    Return the exit code and the status line of each.
    """
    _, bundle = write_files(app, MINIMAL)
    database = app.config["DATABASE"]
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        processes = [
            start_command(
                *(database, "publish", "-", bundle, "--bundle-url", URL), stdin=subprocess.PIPE
            )
            for _ in manifests
        ]
        for process, manifest in zip(processes, manifests, strict=True):
            process.stdin.write(json.dumps(manifest))
            process.stdin.close()
        waiting = {process.stderr.readline() for process in processes}
        other.execute("ROLLBACK")
    results = []
    for process in processes:
        with process:
            results.append((process.wait(timeout=30), process.stderr.readline().strip()))
    assert waiting == {"The database is busy; waiting.\n"}
    return results


def test_concurrent_processes_can_publish_versions_of_a_new_widget(app: Flask) -> None:
    # Without precedence among them, so that none is a warning about another.
    numbers = [f"1.0.0+{number}" for number in range(4)]
    results = publish_concurrently(app, [{**MINIMAL, "version": number} for number in numbers])
    assert results == [(0, f"Published acme/clock@{number}.") for number in numbers]
    assert sorted(entry["version"] for entry in detail(app)["versions"]) == numbers
    assert run(app, "check").exit_code == 0


def test_concurrent_processes_that_publish_the_same_version_store_it_once(app: Flask) -> None:
    results = publish_concurrently(app, [MINIMAL] * 3)
    already = (0, ALREADY)
    assert sorted(results) == [(0, "Published acme/clock@1.0.0."), already, already]
    assert [entry["version"] for entry in detail(app)["versions"]] == ["1.0.0"]


HIGHER = (
    "2.0.0 is higher, but dashboards now get 1.9.1, because the latest version is the one "
    "published last"
)
STILL = "dashboards whose compatSdk is in ^2.0.0 still get 2.0.0"
# The versions that exist, the SDK range of 1.9.1, and the warnings about it.
ORDERS: dict[str, tuple[list[Json], str, list[str]]] = {
    "higher": ([version("2.0.0")], "^1.0.0", [HIGHER]),
    "higher for another SDK": ([version("2.0.0", sdkVersion="^2.0.0")], "^1.0.0", [HIGHER, STILL]),
    "higher for fewer SDKs": ([version("2.0.0", sdkVersion="^2.0.0")], ">=1.0.0", [HIGHER]),
    "higher before another": (
        [
            version("2.0.0", sdkVersion="^2.0.0"),
            version("1.9.0", publishedAt="2025-02-01T00:00:00Z"),
        ],
        "^1.0.0",
        [HIGHER],
    ),
    "higher, yanked": ([version("2.0.0", yanked=True)], "^1.0.0", []),
    "lower": ([version("1.9.0", sdkVersion="^2.0.0")], "^1.0.0", []),
}


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["publish", "dry run"])
@pytest.mark.parametrize(("stored", "sdk", "warnings"), ORDERS.values(), ids=ORDERS)
def test_a_version_below_another_gets_a_warning(
    app_with: AppWith,
    stored: list[Json],
    sdk: str,
    warnings: list[str],
    options: tuple[str, ...],
) -> None:
    app = app_with(document("acme/clock", *stored), BUNDLE_URL=URL)
    result = publish(app, {**MINIMAL, "version": "1.9.1", "sdkVersion": sdk}, *options)
    lines = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert lines == [f"Warning: {warning}." for warning in warnings]


def test_names_are_compared_before_the_write_lock_is_taken(
    app_with: AppWith, statements: list[str]
) -> None:
    app = app_with(document("acme/clock"), document("acme/cl\u00f6cks"), document("acme/sundial"))
    result = publish(app, {**MINIMAL, "scope": "ops", "name": "clocks"}, "--store")
    assert "can be mistaken for acme/clock, acme/cl\u00f6cks." in result.stderr
    compared = [at for at, sql in enumerate(statements) if "scope <> 'ops'" in sql]
    assert len(compared) == 1
    assert compared[0] < statements.index("BEGIN IMMEDIATE")


SIMILAR_NAMES = {
    "Clock": "acme/clock",
    "clocks": "acme/clock",
    "clck": "acme/clock",
    "cluck": "acme/clock",
    "time_zones": "acme/time-zones",
    "TimeZone": "acme/time-zones",
    "clock": None,
    "clkc": None,
    "cap": None,
    "M-ap": "acme/map",
    "hidden2": None,
}


@pytest.mark.parametrize(("name", "other"), SIMILAR_NAMES.items())
def test_a_name_like_one_of_another_scope_gets_a_warning(
    app_with: AppWith, name: str, other: str | None
) -> None:
    widgets = [document(f"acme/{each}") for each in ("clock", "time-zones", "map")]
    app = app_with(*widgets, document("acme/hidden", listed=False), BUNDLE_URL=URL)
    named = {**MINIMAL, "scope": "ops", "name": name}
    warning = f"Warning: name '{name}' can be mistaken for {other}."
    result = publish(app, named)
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if "mistaken" in line] == (
        [warning] if other else []
    )
    # Only the first version, and not in the same scope.
    again = publish(app, {**named, "version": "2.0.0"}), publish(app, {**named, "scope": "acme"})
    assert "mistaken" not in again[0].stderr
    assert f"{other}." not in again[1].stderr


def test_a_version_of_a_copy_is_refused(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version("0.9.0")), BUNDLE_URL=URL)
    copied = "INSERT INTO mirrored (widget_id, source) SELECT id, 'https://up.example' FROM widget"
    app.extensions["database"].transact(running(copied))
    assert error_message(publish(app, MINIMAL)) == (
        "acme/clock is a copy from https://up.example; exclude it first, and repeat the "
        "mirror's other options: widget-catalog mirror https://up.example --exclude acme/clock"
    )
