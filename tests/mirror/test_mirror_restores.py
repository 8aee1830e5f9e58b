"""widget-catalog mirror: the next run restores a copy that was changed or deleted here."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import bundled, described, document, png
from conftest import hold, put, run
from flask import Flask
from mirrors import AppServer, exported, mirror_summary, serve, served_content

PICTURE = png(64, 36, b"pixels")
ABOUT = {
    "readme": "# Clock",
    "homepage": "https://acme.example/",
    "repository": None,
    "issues": None,
    "picture": described(PICTURE),
}
CLOCK = {
    **document("acme/clock", bundled("1.0.0", b"one"), bundled("2.0.0", b"two")),
    "about": ABOUT,
}


@pytest.fixture
def original(app_with: Callable[..., Flask]) -> Iterator[AppServer]:
    app = app_with(CLOCK, document("acme/notes", bundled("1.0.0", b"three")))
    hold(app, b"one", b"two", b"three", PICTURE)
    with serve(app) as upstream:
        yield upstream


@pytest.fixture
def copy(mirror_app: Flask, original: AppServer) -> Flask:
    """A catalog with copies of all widgets."""
    assert mirror_summary(mirror_app, original.url, "--bundles").startswith("2 added, ")
    return mirror_app


@pytest.mark.parametrize(
    "command",
    [
        ["delete", "acme/clock@1.0.0", "--yes"],
        ["delete", "acme/clock", "--yes"],
        ["unlist", "acme/clock"],
    ],
    ids=" ".join,
)
def test_a_copy_that_was_deleted_comes_back_with_its_bundles_and_its_about(
    copy: Flask, command: list[str]
) -> None:
    before = served_content(copy)
    assert run(copy, *command).exit_code == 0
    run(copy, "gc")
    assert run(copy, "mirror").exit_code == 0
    assert served_content(copy) == before
    clock = before["acme/clock"]
    assert [each["bundle"] for each in clock["versions"]] == [b"two", b"one"]
    assert (clock["about"]["readme"], clock["picture"]) == ("# Clock", PICTURE)


def test_a_copy_that_an_import_changed_becomes_as_at_the_upstream_again(copy: Flask) -> None:
    before = exported(copy)
    changed = document("acme/clock", bundled("1.0.0", b"other"), description="Changed")
    put(copy, {**changed, "about": {**ABOUT, "readme": "Changed"}})
    assert exported(copy) != before
    assert run(copy, "mirror").exit_code == 0
    assert exported(copy) == before


def test_a_publication_of_a_version_that_a_copy_has_changes_nothing_that_stays(
    copy: Flask, tmp_path: Path
) -> None:
    before = exported(copy)
    manifest = {"scope": "acme", "name": "notes", "displayName": "Notes", "sdkVersion": "^1.0.0"}
    (tmp_path / "widget.json").write_text(json.dumps({**manifest, "version": "1.0.0"}))
    (tmp_path / "bundle.js").write_bytes(b"three")
    (tmp_path / "README.md").write_text("Changed")
    files = [tmp_path / name for name in ("widget.json", "bundle.js")]
    run(copy, "publish", *files, "--readme", tmp_path / "README.md")
    assert run(copy, "mirror").exit_code == 0
    assert exported(copy) == before
