"""widget-catalog import PACK: the widgets of a pack beside those of the catalog."""

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import bundled, described, document, png, version
from conftest import error_message, hold, run, start_command
from flask import Flask
from mirrors import exported, served_content

AppWith = Callable[..., Flask]
PICTURE = png(64, 36, b"pixels")
CLOCK = {
    **document("acme/clock", bundled("1.0.0", b"one"), bundled("2.0.0", b"two"), downloadCount=3),
    "about": {"readme": "# Clock", "picture": described(PICTURE)},
}
TIDE = document("lab/tide", bundled("1.0.0", b"tide"), version("2.0.0"))


@pytest.fixture
def pack(app_with: AppWith, tmp_path: Path) -> Path:
    """A pack of two widgets with three bundles and a picture; one bundle is elsewhere."""
    app = app_with(CLOCK, TIDE)
    hold(app, b"one", b"two", b"tide", PICTURE)
    path = tmp_path / "all.pack"
    assert run(app, "pack", path).exit_code == 0
    return path


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with a widget of its own, and another one with a name of the pack."""
    app = app_with(
        document("local/own", bundled("1.0.0", b"own")),
        document("lab/tide", bundled("0.9.0", b"old"), description="Here"),
    )
    hold(app, b"own", b"old")
    return app


def test_widgets_are_added_and_updated_with_bundles_and_pictures_and_others_stay(
    app: Flask, pack: Path
) -> None:
    own = served_content(app)["local/own"]
    result = run(app, "import", pack)
    assert (result.exit_code, result.stderr) == (
        0,
        "Imported 2 widgets and 4 versions: 1 added, 1 changed, 0 unchanged.\n"
        "Stored 4 bundles and pictures.\n",
    )
    content = served_content(app)
    assert content["local/own"] == own
    assert [each["bundle"] for each in content["acme/clock"]["versions"]] == [b"two", b"one"]
    assert content["acme/clock"]["about"]["readme"] == "# Clock"
    assert content["acme/clock"]["picture"] == PICTURE
    bundles = {each["version"]: each["bundle"] for each in content["lab/tide"]["versions"]}
    assert bundles == {"0.9.0": b"old", "1.0.0": b"tide", "2.0.0": None}
    assert run(app, "check").exit_code == 0
    again = run(app, "import", pack)
    assert again.stderr.startswith("Imported 2 widgets and 4 versions: 0 added, 0 changed, ")
    assert "Stored" not in again.stderr
    assert served_content(app) == content


def test_an_import_keeps_the_url_of_a_bundle_that_is_already_served(app: Flask) -> None:
    # A copy that became a local widget keeps the hash in its URLs.
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection, connection:
        connection.execute(
            "UPDATE version SET bundle_path = bundle_path || '?sha256=' || sha256_hash"
        )
    before = exported(app)
    result = run(app, "import", "-", stdin=run(app, "export", "-").stdout)
    assert result.stderr.startswith("Imported 2 widgets and 2 versions: 0 added, 0 changed, ")
    assert exported(app) == before


def test_a_pack_can_come_through_a_pipe_and_beside_other_files(
    app: Flask, pack: Path, tmp_path: Path
) -> None:
    (tmp_path / "more.jsonl").write_text(json.dumps(document("more/one")))
    files = ["-", tmp_path / "more.jsonl"]
    # The whole pack fits into the buffer of the pipe.
    reading, writing = os.pipe()
    os.write(writing, pack.read_bytes())
    os.close(writing)
    with start_command(app.config["DATABASE"], "import", *files, stdin=reading) as process:
        os.close(reading)
        _, output = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert sorted(exported(app)) == ["acme/clock", "lab/tide", "local/own", "more/one"]
    assert served_content(app)["acme/clock"]["picture"] == PICTURE


def test_a_dry_run_stores_nothing(app: Flask, pack: Path) -> None:
    before, files = served_content(app), stored_files(app)
    result = run(app, "import", "--dry-run", pack)
    assert (result.exit_code, result.stderr) == (
        0,
        "Would import 2 widgets and 4 versions: 1 added, 1 changed, 0 unchanged.\n",
    )
    assert (served_content(app), stored_files(app)) == (before, files)


def test_prune_removes_what_the_pack_lacks(app: Flask, pack: Path) -> None:
    assert run(app, "import", "--prune", "--yes", pack).exit_code == 0
    assert sorted(exported(app)) == ["acme/clock", "lab/tide"]


def stored_files(app: Flask) -> set[str]:
    return {path.name for path in app.extensions["bundles"].directory.iterdir()}


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def changed_bundle(content: bytes) -> bytes:
    return content.replace(b"\0tide\0", b"\0TIDE\0").replace(b"tide\0\0\0\0", b"TIDE\0\0\0\0")


def without_a_bundle(content: bytes) -> bytes:
    """Return the pack without its last member, which SHA256SUMS names."""
    output = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for member in old.getmembers()[:-1]:
            new.addfile(member, old.extractfile(member))
    return output.getvalue()


@pytest.mark.parametrize("damage", [truncated, changed_bundle, without_a_bundle])
def test_a_damaged_pack_changes_nothing(
    app: Flask, pack: Path, damage: Callable[[bytes], bytes]
) -> None:
    before, files = served_content(app), stored_files(app)
    pack.write_bytes(damage(pack.read_bytes()))
    message = error_message(run(app, "import", pack))
    assert message.startswith(f"{pack}: ")
    assert (served_content(app), stored_files(app)) == (before, files)


def test_a_file_that_is_not_the_described_picture_is_refused(
    app_with: AppWith, app: Flask, tmp_path: Path
) -> None:
    wrong = {**described(PICTURE), "width": 65}
    packed = app_with({**document("acme/clock"), "about": {"picture": wrong}})
    hold(packed, PICTURE)
    path = tmp_path / "wrong.pack"
    assert run(packed, "pack", path).exit_code == 0
    before = exported(app)
    message = error_message(run(app, "import", path))
    assert message.startswith(f"{path}: catalog.jsonl line 1, acme/clock: ")
    assert message.endswith("does not match the description of the picture.")
    assert exported(app) == before
