"""A mirror copies what its upstream says about widgets, and with --bundles the pictures."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, described, document, png
from conftest import hold, put, run, run_on
from flask import Flask
from mirrors import AppServer, mirror_summary, run_mirror, serve
from publishers import FORM_TYPE, bearer, create_token, form
from upstreams import CHANGES, FakeUpstream, Fault, body, status

from app import create_app

PICTURE = png(64, 36, b"pixels")
ABOUT = "/api/v1/widgets/acme/clock/about"
SAID: dict[str, Any] = {
    "readme": "# Clock\n\nZeigt die Uhrzeit ☺.",
    "homepage": "https://acme.example/",
    "repository": None,
    "issues": "https://acme.example/issues",
    "keywords": ["Zeit", "clock face"],
    "picture": described(PICTURE),
}
MANIFEST_KEYS = (
    *("scope", "name", "version", "displayName", "sdkVersion", "minSize", "maxSize"),
    *("permissions", "license", "configVersion", "description", "icon", "releaseNotes"),
)
CLOCK = {**document("acme/clock", bundled("1.0.0", b"1")), "about": SAID}


def sha256_of(content: bytes) -> dict[str, Any]:
    """Return the keys of a picture that every file can have."""
    return {"sha256Hash": hashlib.sha256(content).hexdigest(), "size": len(content)}


def serve_picture(upstream: FakeUpstream, content: bytes, picture: Any, clock: Any = None) -> None:
    """Make the upstream describe a picture of acme/clock, and send this content for it."""
    upstream.put(clock or document("acme/clock"))
    change = {"scope": "acme", "name": "clock", "kind": "changed", "etag": '"e"'}
    page = body(json.dumps({"changes": [change], "next": "t1", "more": False}).encode())
    for faults in upstream.faults.values():
        faults.clear()
    upstream.fail(CHANGES, *[page] * 2)
    upstream.fail(ABOUT, *[body(json.dumps({"picture": picture}).encode())] * 2)
    upstream.fail(ABOUT.replace("about", "picture"), *[body(content)] * 2)


@pytest.fixture
def original(app_with: Callable[..., Flask]) -> Iterator[AppServer]:
    app = app_with(CLOCK, document("acme/notes"))
    hold(app, b"1", PICTURE)
    with serve(app) as upstream:
        yield upstream


def about(app: Flask, path: str = "acme/clock") -> dict[str, Any]:
    """Return what the API says, with the bytes of the picture in place of its URL."""
    said: Any = app.test_client().get(f"/api/v1/widgets/{path}/about").json
    if said["picture"]:
        said["picture"].pop("url")
        with app.test_client().get(f"/api/v1/widgets/{path}/picture") as response:
            said["picture"]["bytes"] = response.get_data()
    return said


def requested(upstream: AppServer) -> list[str]:
    """Return what was requested about widgets since the last call."""
    paths = [path for path, _ in upstream.responses if path.endswith(("/about", "/picture"))]
    upstream.responses.clear()
    return [path.removeprefix("/api/v1/widgets/") for path in paths]


def test_a_mirror_of_a_mirror_says_the_same_byte_for_byte(
    mirror_app: Flask, original: AppServer, tmp_path: Any
) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    with serve(mirror_app) as second:
        third = create_app({"DATABASE": tmp_path / "third.db"})
        mirror_summary(third, second.url, "--bundles")
    expected = {**SAID, "picture": {**SAID["picture"], "bytes": PICTURE}}
    assert about(original.app) == about(mirror_app) == about(third) == expected


def test_only_what_the_feed_names_is_requested(mirror_app: Flask, original: AppServer) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    assert sorted(requested(original)) == [
        "acme/clock/about",
        "acme/clock/picture",
        "acme/notes/about",
    ]
    assert "0 added, 0 changed" in mirror_summary(mirror_app, original.url)
    assert requested(original) == []
    assert run(original.app, "describe", "acme/clock", "--readme", "").exit_code == 0
    assert run_mirror(mirror_app, original.url).exit_code == 0
    assert requested(original) == ["acme/clock/about"]
    assert about(mirror_app)["readme"] is None
    assert about(mirror_app) == about(original.app)
    last = json.loads(run(mirror_app, "log", "--json").output)[-1]
    assert (last["action"], last["after"]) == ("mirror", {"described": 1})


def test_without_bundles_there_are_no_pictures_until_they_are_wanted(
    mirror_app: Flask, original: AppServer
) -> None:
    mirror_summary(mirror_app, original.url)
    assert about(mirror_app) == {**SAID, "picture": None}
    mirror_summary(mirror_app, original.url, "--bundles")
    assert about(mirror_app) == about(original.app)


LARGE = png(30_000, 30_000)
REFUSED = {
    "SVG": (b"<svg/>", described(PICTURE) | sha256_of(b"<svg/>"), "its format is not supported"),
    "HTML": (b"<html>", described(PICTURE) | sha256_of(b"<html>"), "its format is not supported"),
    "large": (LARGE, described(PICTURE) | sha256_of(LARGE), "it is 30000 x 30000 pixels"),
}


@pytest.mark.parametrize(("content", "picture", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_not_an_allowed_picture_is_a_failure(
    mirror_app: Flask, upstream: FakeUpstream, content: bytes, picture: Any, reason: str
) -> None:
    serve_picture(upstream, content, picture)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert "acme/clock: about: its picture must be a PNG, JPEG, WebP or AVIF file" in result.output
    assert f"({reason})" in result.output
    assert [*mirror_app.extensions["bundles"].hashes()] == []
    assert about(mirror_app)["picture"] is None
    # The next run tries again.
    serve_picture(upstream, PICTURE, described(PICTURE))
    mirror_summary(mirror_app, upstream.url, "--bundles")
    assert about(mirror_app)["picture"]["bytes"] == PICTURE


OTHERS = {
    "other bytes": {**described(PICTURE), "sha256Hash": "0" * 64},
    "another size": {**described(PICTURE), "width": 65},
    "another type": {**described(PICTURE), "type": "image/jpeg"},
}


@pytest.mark.parametrize("picture", OTHERS.values(), ids=OTHERS)
def test_another_picture_than_the_upstream_describes_is_a_failure(
    mirror_app: Flask, upstream: FakeUpstream, picture: Any
) -> None:
    serve_picture(upstream, PICTURE, picture)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert result.exit_code == 1
    assert (
        "acme/clock: about: its picture does not match the upstream's description." in result.output
    )
    assert [*mirror_app.extensions["bundles"].hashes()] == []


def test_a_stored_bundle_is_examined_before_it_is_a_picture(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    clock = document("acme/clock", upstream.with_bundle("1.0.0", LARGE))
    serve_picture(upstream, LARGE, described(PICTURE) | sha256_of(LARGE), clock)
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert "(it is 30000 x 30000 pixels)" in result.output
    result = run_mirror(mirror_app, upstream.url, "--bundles")
    assert "(it is 30000 x 30000 pixels)" in result.output
    assert [*mirror_app.extensions["bundles"].hashes()] == [sha256_of(LARGE)["sha256Hash"]]
    assert about(mirror_app)["picture"] is None


def test_a_dry_run_changes_nothing(mirror_app: Flask, original: AppServer) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    before = about(mirror_app)
    assert run(original.app, "describe", "acme/clock", "--readme", "").exit_code == 0
    assert run_mirror(mirror_app, original.url, "--bundles", "--dry-run").exit_code == 0
    assert about(mirror_app) == before


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (body(b'{"homepage": "javascript:alert(1)"}'), "homepage must be an absolute"),
        (status(403), "it responded 403"),
    ],
)
def test_what_cannot_be_copied_is_a_failure_and_requested_again(
    mirror_app: Flask, upstream: FakeUpstream, fault: Fault, reason: str
) -> None:
    upstream.put(document("acme/clock"))
    change = {"scope": "acme", "name": "clock", "kind": "changed", "etag": '"e"'}
    page = body(json.dumps({"changes": [change], "next": "t1", "more": False}).encode())
    upstream.fail(CHANGES, page, page)
    upstream.fail(ABOUT, fault, body(b'{"readme": "# Clock"}'))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert f"acme/clock: about: {reason}" in result.output
    assert about(mirror_app)["readme"] is None
    mirror_summary(mirror_app, upstream.url)
    assert about(mirror_app)["readme"] == "# Clock"


def test_excluded_and_own_widgets_stay_as_they_are(mirror_app: Flask, original: AppServer) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    before = about(mirror_app)
    put(mirror_app, {**document("own/widget"), "about": {"readme": "Own"}})
    assert run(original.app, "describe", "acme/clock", "--readme", "").exit_code == 0
    mirror_summary(mirror_app, original.url, "--bundles", "--exclude", "acme/clock")
    assert about(mirror_app) == before
    assert about(mirror_app, "own/widget")["readme"] == "Own"


OLD_SCHEMA = Path(__file__).parent.parent / "data" / "schema-1.0.0.sql"


def test_a_mirror_that_was_migrated_copies_what_was_said_before(
    mirror_app: Flask, original: AppServer, tmp_path: Path
) -> None:
    mirror_summary(mirror_app, original.url)
    # The same copies in a file of the schema that had no place for it.
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.executescript(OLD_SCHEMA.read_text())
        connection.execute("ATTACH ? AS new", (str(mirror_app.config["DATABASE"]),))
        for table in ("widget", "version", "mirrored"):
            columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
            names = ", ".join(columns)
            connection.execute(
                f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}"
            )
    assert run_on(old, "migrate").exit_code == 0
    app = create_app({"DATABASE": old})
    assert about(app)["readme"] is None
    requested(original)
    assert "0 added, 1 changed, 1 unchanged" in mirror_summary(app, original.url)
    assert about(app) == {**SAID, "picture": None}
    assert sorted(requested(original)) == ["acme/clock/about", "acme/notes/about"]
    mirror_summary(app, original.url)
    assert requested(original) == []
    app.extensions["database"].close()


@pytest.mark.parametrize("picture", [PICTURE, png(8, 8)], ids=["the same", "another"])
def test_a_picture_that_is_refused_for_a_copy_changes_no_file(
    mirror_app: Flask, original: AppServer, picture: bytes
) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    before, files = about(mirror_app), [*mirror_app.extensions["bundles"].hashes()]
    headers = bearer(create_token(mirror_app))
    response = mirror_app.test_client().put(
        "/api/widgets/acme/clock/picture", data=picture, headers=headers
    )
    assert response.status_code == 409
    assert about(mirror_app) == before
    assert [*mirror_app.extensions["bundles"].hashes()] == files


def test_publishing_a_version_of_a_copy_again_is_refused_and_changes_nothing(
    mirror_app: Flask, original: AppServer, tmp_path: Path
) -> None:
    mirror_summary(mirror_app, original.url, "--bundles")
    before, files = about(mirror_app), [*mirror_app.extensions["bundles"].hashes()]
    (copy,) = mirror_app.test_client().get("/api/v1/widgets/acme/clock").json["versions"]
    fields = {key: copy[key] for key in MANIFEST_KEYS}
    (tmp_path / "clock.json").write_text(json.dumps({**fields, "homepage": "https://e.example/"}))
    (tmp_path / "clock.js").write_bytes(b"1")
    (tmp_path / "README.md").write_bytes(b"Evil")
    (tmp_path / "evil.png").write_bytes(png(8, 8))
    arguments = (tmp_path / "clock.json", tmp_path / "clock.js", "--store")
    for options in ((), ("--readme", tmp_path / "README.md", "--picture", tmp_path / "evil.png")):
        result = run(mirror_app, "publish", *arguments, *options)
        assert result.exit_code == 1
        assert f"acme/clock is a copy from {original.url}; exclude it" in result.output
    response = mirror_app.test_client().put(
        "/api/widgets/acme/clock/1.0.0",
        data=form(fields, b"1", readme=b"Evil"),
        content_type=FORM_TYPE,
        headers=bearer(create_token(mirror_app)),
    )
    assert response.status_code == 409
    assert about(mirror_app) == before
    assert [*mirror_app.extensions["bundles"].hashes()] == files
