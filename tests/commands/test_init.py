"""widget-catalog init: creates a catalog, and never changes an existing file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from click.testing import Result
from conftest import DEMO, putting

from app import create_app
from catalog.domain.documents import check_document
from catalog.store.connection.database import Database
from catalog.store.schema.schema import SCHEMA_VERSION


def init(path: Path, *options: str) -> Result:
    app = create_app({"DATABASE": path})
    try:
        return app.test_cli_runner().invoke(args=["init", *options])
    finally:
        app.extensions["database"].close()


def counts(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        (widgets,) = connection.execute("SELECT count(*) FROM widget").fetchone()
        (versions,) = connection.execute("SELECT count(*) FROM version").fetchone()
    return widgets, versions


def test_init_creates_an_empty_catalog(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    result = init(path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"Created {path} with 0 widgets and 0 versions.\n"
    assert counts(path) == (0, 0)


def test_init_with_demo_creates_the_demo_catalog(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert init(path, "--demo").stderr == f"Created {path} with 34 widgets and 205 versions.\n"
    exported = create_app({"DATABASE": path}).test_cli_runner().invoke(args=["export"])
    assert exported.stdout_bytes == DEMO.read_bytes()


@pytest.mark.parametrize("options", [[], ["--demo"]], ids=["plain", "demo"])
def test_init_does_not_change_an_existing_catalog(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "old.db"
    Database(path).create(putting([check_document(document("acme/clock", version()))]))
    before = path.read_bytes()
    result = init(path, *options)
    assert (result.exit_code, result.stderr) == (0, f"{path} already exists.\n")
    assert path.read_bytes() == before
    assert counts(path) == (1, 1)


@pytest.mark.parametrize("options", [[], ["--demo"]], ids=["plain", "demo"])
def test_init_fills_an_empty_file(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    assert init(path, *options).exit_code == 0
    assert counts(path) == ((34, 205) if options else (0, 0))


def make_foreign(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE widget (id INTEGER)")
    return "is an SQLite file, but not a widget catalog."


def make_newer(path: Path) -> str:
    Database(path).create()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    return (
        f"has schema version 99, but this release reads versions 2 and {SCHEMA_VERSION}. "
        "Run export with the release that wrote the file, and import with this one."
    )


def make_text(path: Path) -> str:
    path.write_text("not a database\n")
    return "cannot be opened: file is not a database."


@pytest.mark.parametrize("make", [make_foreign, make_newer, make_text])
def test_init_does_not_change_a_file_that_is_not_a_catalog(
    tmp_path: Path, make: Callable[[Path], str]
) -> None:
    path = tmp_path / "other.db"
    reason = make(path)
    before = path.read_bytes()
    result = init(path, "--demo")
    assert (result.exit_code, result.stderr) == (1, f"Error: {path} {reason}\n")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_init_in_a_missing_directory_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none" / "new.db"
    result = init(path)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {path} cannot be created: No such file or directory.\n",
    )
