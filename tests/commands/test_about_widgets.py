"""Readme, links and picture of a widget in the commands, in files and among the bundles."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import Json, bundled, described, document, png
from conftest import error_message, exported, hold, run
from flask import Flask

AppWith = Callable[..., Flask]
PICTURE = png(64, 36, b"pixels")
SHA256 = hashlib.sha256(PICTURE).hexdigest()
SAID = {
    "readme": "# Clock",
    "homepage": "https://acme.example/",
    "repository": None,
    "issues": None,
    "keywords": ["zeit", "clock face"],
    "picture": described(PICTURE),
}
MANIFEST = {"scope": "acme", "name": "clock", "version": "1.0.0", "displayName": "Clock"}
BUNDLE = b"export default 1"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    clock = {**document("acme/clock", bundled("1.0.0", BUNDLE)), "about": SAID}
    app = app_with(clock, document("acme/notes", bundled("1.0.0", BUNDLE)))
    hold(app, BUNDLE, PICTURE)
    return app


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def succeed(app: Flask, *arguments: object) -> str:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def about(app: Flask) -> Json | None:
    """Return what an export says about the clock."""
    documents = map(json.loads, exported(app).splitlines())
    (clock,) = (each for each in documents if each["widget"]["name"] == "clock")
    return clock.get("about")


def entries(app: Flask) -> list[Json]:
    """Return the recorded descriptions."""
    log = json.loads(succeed(app, "log", "--json"))
    return [entry for entry in log if entry["action"] == "describe"]


def test_export_import_export_gives_the_same_bytes(
    app: Flask, app_with: AppWith, files: Any
) -> None:
    file = files("catalog.jsonl", exported(app))
    other = app_with()
    succeed(other, "import", file)
    assert exported(other) == file.read_bytes()
    assert b"0 added, 0 changed" in succeed(other, "import", file).encode()
    # Without the key it stays; an empty object removes it.
    bare = document("acme/clock", bundled("1.0.0", BUNDLE))
    succeed(other, "import", files("bare.jsonl", json.dumps(bare).encode()))
    assert about(other) == SAID
    succeed(other, "import", files("empty.jsonl", json.dumps({**bare, "about": {}}).encode()))
    assert about(other) is None


def test_packs_contain_the_pictures(app: Flask, app_with: AppWith, tmp_path: Path) -> None:
    succeed(app, "pack", tmp_path / "first.pack")
    other = app_with()
    succeed(other, "unpack", tmp_path / "first.pack", "--yes")
    with other.test_client().get("/api/v1/widgets/acme/clock/picture") as response:
        assert response.get_data() == PICTURE
    succeed(other, "check")
    succeed(other, "pack", tmp_path / "second.pack")
    assert (tmp_path / "second.pack").read_bytes() == (tmp_path / "first.pack").read_bytes()
    succeed(other, "pack", tmp_path / "notes.pack", "--widget", "acme/notes")
    assert SHA256.encode() not in (tmp_path / "notes.pack").read_bytes()


def test_the_bundles_of_a_pack_include_the_pictures(app: Flask, tmp_path: Path) -> None:
    succeed(app, "pack", tmp_path / "first.pack")
    app.extensions["bundles"].path(SHA256).unlink()
    # A picture that is not here is no error.
    succeed(app, "pack", tmp_path / "second.pack")
    succeed(app, "unpack", "--bundles-only", tmp_path / "first.pack")
    with app.test_client().get("/api/v1/widgets/acme/clock/picture") as response:
        assert response.get_data() == PICTURE


def test_backups_have_it(app: Flask, tmp_path: Path) -> None:
    succeed(app, "backup", tmp_path / "backup.db")
    removed = ("--readme", "--homepage", "--keywords", "--picture")
    succeed(app, "describe", "acme/clock", *(word for option in removed for word in (option, "")))
    assert about(app) is None
    succeed(app, "restore", tmp_path / "backup.db", "--yes")
    assert about(app) == SAID


def test_gc_keeps_a_picture_until_no_widget_has_it(app: Flask) -> None:
    bundles = app.extensions["bundles"]
    assert "Removed 0 unused bundles" in succeed(app, "gc")
    succeed(app, "describe", "acme/clock", "--picture", "")
    assert "Removed 1 unused bundle " in succeed(app, "gc")
    assert [*bundles.hashes()] == [hashlib.sha256(BUNDLE).hexdigest()]


def test_check_finds_a_missing_and_a_damaged_picture(app: Flask) -> None:
    path = app.extensions["bundles"].path(SHA256)
    path.write_bytes(PICTURE[::-1])
    result = run(app, "check")
    assert result.exit_code == 1
    assert f"Bundle {SHA256} in {path.parent}: its SHA-256 is " in result.output
    path.unlink()
    # As after an import on another machine.
    problem = (
        f"Warning: acme/clock: its picture {SHA256} is not in {path.parent}, so it is not shown.\n"
    )
    assert problem in succeed(app, "check")


def test_publish_here_with_readme_and_picture(app_with: AppWith, files: Any) -> None:
    app = app_with()
    manifest = {**MANIFEST, "sdkVersion": "*", "homepage": SAID["homepage"]}
    manifest["keywords"] = SAID["keywords"]
    arguments = [
        *("publish", files("m.json", json.dumps(manifest).encode()), files("b.js", BUNDLE)),
        *("--store", "--readme", files("README.md", b"# Clock")),
    ]
    picture = files("clock.png", PICTURE)
    printed = json.loads(succeed(app, *arguments, "--picture", picture, "--dry-run"))
    assert printed["about"] == SAID
    assert exported(app) == b""
    svg = files("clock.svg", b"<svg/>")
    message = error_message(run(app, *arguments, "--picture", svg))
    assert "The picture must be a PNG, JPEG, WebP or AVIF file of at most 524288 bytes" in message
    assert (exported(app), [*app.extensions["bundles"].hashes()]) == (b"", [])
    succeed(app, *arguments, "--picture", picture)
    assert about(app) == SAID
    readme = hashlib.sha256(b"# Clock").hexdigest()
    after = {"readme": readme, "homepage": SAID["homepage"], "picture": SHA256}
    after["keywords"] = SAID["keywords"]
    assert [each["after"] for each in entries(app)] == [after]
    again = succeed(app, *arguments[:4], "--readme", files("new.md", b"New"), "--picture", picture)
    assert again.splitlines()[0] == (
        "acme/clock@1.0.0 is already published; readme, links, keywords and picture are unchanged."
    )
    assert about(app) == SAID


def test_describe_changes_and_removes_them(app: Flask, files: Any) -> None:
    new = png(8, 8)
    output = succeed(
        *(app, "describe", "acme/clock", "--repository", "https://git.example/", "--homepage", ""),
        *("--keywords", "time, , world clock"),
        *("--readme", files("new.md", b"New"), "--picture", files("new.png", new)),
    )
    assert output == "Updated acme/clock.\n"
    changed: Json = {"homepage": None, "repository": "https://git.example/", "readme": "New"}
    changed["keywords"] = ["time", "world clock"]
    assert about(app) == {**SAID, **changed, "picture": described(new)}
    (entry,) = entries(app)
    assert set(entry["before"]) == {"homepage", "repository", "keywords", "readme", "picture"}
    assert entry["before"]["keywords"] == SAID["keywords"]
    assert entry["before"]["picture"] == SHA256
    again = succeed(app, "describe", "acme/clock", "--picture", files("new.png", new))
    assert again == "Nothing to change.\n"


REFUSED = {
    "http": (("--homepage", "http://acme.example/"), 2, "is not an absolute https URL"),
    "scheme": (("--issues", "javascript:alert(1)"), 2, "is not an absolute http"),
    "keyword": (("--keywords", "x" * 31), 2, "is not a list of at most 10 keywords of at most 30"),
    "no file": (("--picture", "/nowhere/clock.png"), 2, "No such file"),
}


@pytest.mark.parametrize(("options", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_what_describe_refuses(app: Flask, options: list[str], code: int, message: str) -> None:
    result = run(app, "describe", "acme/clock", *options)
    assert (result.exit_code, about(app)) == (code, SAID)
    assert message in result.output


def test_describe_refuses_long_and_unreadable_files(app: Flask, files: Any) -> None:
    for option, content, message in (
        ("--readme", b"x" * 65537, "The readme must be text of at most 65536 bytes."),
        ("--readme", b"\xff", "The readme is not in UTF-8"),
        ("--picture", b"GIF89a", "The picture must be a PNG, JPEG, WebP or AVIF file"),
    ):
        result = run(app, "describe", "acme/clock", option, files("file", content))
        assert message in error_message(result)
    assert about(app) == SAID


def test_describe_with_a_bad_picture_changes_nothing(app: Flask, files: Any) -> None:
    before = exported(app)
    options = ("--description", "New", "--homepage", "", "--readme", files("new.md", b"New"))
    result = run(app, "describe", "acme/clock", *options, "--picture", files("bad.png", b"GIF89a"))
    assert "The picture must be a PNG, JPEG, WebP or AVIF file" in error_message(result)
    assert exported(app) == before
    assert [*app.extensions["bundles"].hashes()] == sorted(
        [SHA256, hashlib.sha256(BUNDLE).hexdigest()]
    )
