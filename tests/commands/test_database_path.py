"""CATALOG_DATABASE: links to the file, and paths that cannot name one."""

import json
from pathlib import Path

import pytest
from builders import document
from conftest import create_catalog, run_here, run_on

from catalog.opening import configure_catalog


def refusal(database: Path) -> str:
    """Return the message of a command that fails."""
    process = run_here(database, "-m", "flask", "list")
    assert (process.returncode, process.stdout) == (1, "")
    return process.stderr


def test_bundles_are_in_one_directory_through_every_link(tmp_path: Path) -> None:
    real = create_catalog(tmp_path / "real.db", document("acme/clock"))
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "catalog.db").symlink_to(real)
    (tmp_path / "second.db").symlink_to(folder / "catalog.db")
    paths = [real, folder / "catalog.db", tmp_path / "second.db"]
    directories = {configure_catalog({"DATABASE": path}).bundles.directory for path in paths}
    assert directories == {tmp_path / "real.db-bundles"}


def test_a_bundle_that_was_published_through_a_link_is_found_at_the_file(tmp_path: Path) -> None:
    real = create_catalog(tmp_path / "real.db")
    link = tmp_path / "catalog.db"
    link.symlink_to(real)
    manifest = tmp_path / "widget.json"
    names = {"scope": "acme", "name": "clock", "version": "1.0.0", "sdkVersion": "*"}
    manifest.write_text(json.dumps({**names, "displayName": "Clock"}))
    bundle = tmp_path / "clock.js"
    bundle.write_text("export default 1")
    assert run_on(link, "publish", manifest, bundle, "--store").exit_code == 0
    assert run_on(real, "check").stderr == f"{real} is in order.\n"


def test_bundles_beside_a_link_are_named_before_they_are_missed(tmp_path: Path) -> None:
    real = create_catalog(tmp_path / "real.db", document("acme/clock"))
    link = tmp_path / "catalog.db"
    link.symlink_to(real)
    old, new = tmp_path / "catalog.db-bundles", tmp_path / "real.db-bundles"
    old.mkdir()
    assert refusal(link) == (
        f"Error: {link} is a link, so its bundles belong in {new}. Move {old} there, or "
        "set CATALOG_BUNDLES.\n"
    )
    old.rename(new)
    assert run_on(link, "list").exit_code == 0


@pytest.mark.parametrize("path", [".", "/", "..", "/etc"])
def test_a_directory_in_place_of_the_database_is_an_error(path: str) -> None:
    message = f"Error: CATALOG_DATABASE must name a file, but {path} is a directory.\n"
    assert refusal(Path(path)) == message
