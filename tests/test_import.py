"""flask import: widgets in from catalog files, all or none."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import DEMO, ROOT
from flask import Flask

from app import create_app
from catalog.files.jsonl import read_catalog
from catalog.store import writes
from catalog.store.export import catalog_lines

AppWith = Callable[..., Flask]
BOM = b"\xef\xbb\xbf"


def lines(*documents: Json) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in documents)


def run(app: Flask, *files: object, given: bytes | None = None) -> Result:
    """Import the files; what is given without a file is in one of the name given.jsonl."""
    if given is not None and not files:
        files = (Path(app.config["DATABASE"]).with_name("given.jsonl"),)
        files[0].write_bytes(given)
    return app.test_cli_runner().invoke(args=["import", *map(str, files)], input=given)


def stored(app: Flask) -> list[Json]:
    with app.extensions["database"].read() as connection:
        return [json.loads(line) for line in catalog_lines(connection)]


def names(app: Flask) -> list[str]:
    return [f"{each['widget']['scope']}/{each['widget']['name']}" for each in stored(app)]


def rows(app: Flask, sql: str) -> list[tuple[Any, ...]]:
    with app.extensions["database"].read() as connection:
        return [tuple(row) for row in connection.execute(sql)]


def test_import_adds_widgets_and_says_how_many(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with(document("acme/clock", version()))
    file = tmp_path / "more.jsonl"
    file.write_bytes(lines(document("acme/notes", version(), version("2.0.0")), document("b/c")))
    result = run(app, file)
    assert (result.exit_code, result.stderr) == (
        0,
        "Imported 2 widgets and 2 versions: 2 added, 0 changed, 0 unchanged.\n",
    )
    assert names(app) == ["acme/clock", "acme/notes", "b/c"]


def test_import_updates_what_the_file_holds_and_leaves_the_rest(app_with: AppWith) -> None:
    old = [version("1.0.0", license="MIT"), version("2.0.0", license="MIT")]
    app = app_with(document("acme/clock", *old, icon="mdi:clock"), document("acme/notes"))
    untouched = stored(app)[1]
    update = document("acme/clock", version("2.0.0", yanked=True), displayName="World Clock")
    assert run(app, given=lines(update)).exit_code == 0
    clock, notes = stored(app)
    assert (clock["widget"]["displayName"], clock["widget"]["icon"]) == ("World Clock", None)
    facts = [(each["version"], each["yanked"], each["license"]) for each in clock["versions"]]
    assert facts == [("2.0.0", True, None), ("1.0.0", False, "MIT")]
    assert notes == untouched


def test_several_files_and_standard_input_are_one_import(app_with: AppWith, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(lines(document("acme/a")))
    (tmp_path / "b").write_bytes(lines(document("acme/b")))
    app = app_with()
    result = run(app, tmp_path / "a", "-", tmp_path / "b", given=lines(document("acme/c")))
    assert result.stderr == "Imported 3 widgets and 0 versions: 3 added, 0 changed, 0 unchanged.\n"
    assert names(app) == ["acme/a", "acme/b", "acme/c"]


A, B = lines(document("acme/a")).strip(), lines(document("acme/b")).strip()
SHAPES = {
    "no newline at the end": A + b"\n" + B,
    "CRLF": A + b"\r\n" + B + b"\r\n",
    "blank lines": b"\n  \n" + A + b"\n\r\n\t\n" + B + b"\n\n",
    "byte order mark": BOM + A + b"\n" + B,
    "joined files with marks": BOM + A + b"\n" + BOM + B,
    "byte order mark and blank line": BOM + b"\r\n" + A + b"\n" + B,
}


@pytest.mark.parametrize("given", SHAPES.values(), ids=SHAPES)
def test_lines_may_come_as_editors_write_them(app_with: AppWith, given: bytes) -> None:
    app = app_with()
    result = run(app, given=given)
    assert result.stderr == "Imported 2 widgets and 0 versions: 2 added, 0 changed, 0 unchanged.\n"
    assert names(app) == ["acme/a", "acme/b"]


def test_empty_file_imports_nothing(app_with: AppWith) -> None:
    said = run(app_with(), given=b"").stderr
    assert said == "Imported 0 widgets and 0 versions: 0 added, 0 changed, 0 unchanged.\n"


def test_bad_file_changes_nothing_and_names_every_place(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with(document("acme/clock", version()))
    before = stored(app)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(lines(document("acme/clock", displayName="Changed"), document("acme/new")))
    wrong = document("acme/notes", version("1.2.0", bundleSize=-1), listed="no")
    bad.write_bytes(b"\n" + lines(document("acme/tasks"), wrong) + b"[]\n")
    result = run(app, good, bad)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        f"Error: {bad} line 3, acme/notes: listed must be true or false, not 'no'",
        f"{bad} line 3, acme/notes: version 1.2.0: bundleSize must be "
        "a whole number from 0 to 9007199254740991, not -1",
        f'{bad} line 4: must be an object {{"widget": {{...}}, "versions": [...]}}',
    ]
    assert stored(app) == before


@pytest.mark.parametrize("bad", [20, 21, 5000])
def test_problems_end_after_twenty_with_a_closing_line(app_with: AppWith, bad: int) -> None:
    result = run(app_with(), given=b"{}\n" * bad)
    told = result.stderr.splitlines()
    assert [line.split(":")[0].split("/")[-1] for line in told[1:20]] == [
        f"given.jsonl line {n}" for n in range(2, 21)
    ]
    assert told[20:] == ["There may be more problems after these."]


def test_nineteen_problems_have_no_closing_line(app_with: AppWith) -> None:
    assert len(run(app_with(), given=b"{}\n" * 19).stderr.splitlines()) == 19


def test_widget_twice_is_refused_with_both_places(app_with: AppWith, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(lines(document("acme/a"), document("acme/b")))
    two.write_bytes(lines(document("acme/c"), document("acme/b"), document("acme/c")))
    app = app_with()
    assert run(app, one, two).stderr.splitlines() == [
        f"Error: {two} line 2, acme/b: is in {one} line 2 already",
        f"{two} line 3, acme/c: is in {two} line 1 already",
    ]
    assert names(app) == []


def test_same_file_twice_is_refused(app_with: AppWith, tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_bytes(lines(document("acme/a")))
    result = run(app_with(), file, file)
    assert result.stderr == f"Error: {file} line 1, acme/a: is in {file} line 1 already\n"


def test_range_that_npm_does_not_know_is_imported_with_a_warning(app_with: AppWith) -> None:
    app = app_with()
    result = run(app, given=lines(document("acme/clock", version(sdkVersion="any, please"))))
    assert (result.exit_code, result.stderr.splitlines()) == (
        0,
        [
            "Warning: acme/clock: version 1.0.0: sdkVersion 'any, please' is not an npm range; "
            "no SDK will match it.",
            "Imported 1 widget and 1 version: 1 added, 0 changed, 0 unchanged.",
        ],
    )
    assert stored(app)[0]["versions"][0]["sdkVersion"] == "any, please"


KEPT = {"downloadCount": 12, "createdAt": "2020-01-01T00:00:00.000Z", "listed": False}


@pytest.mark.parametrize("said", [{}, {"createdAt": None, "listed": None}], ids=["absent", "null"])
def test_count_creation_and_listing_stay_where_nothing_is_said(
    app_with: AppWith, said: Json
) -> None:
    app = app_with(document("acme/clock", **KEPT))
    run(app, given=lines(document("acme/clock", version(), icon="mdi:clock", **said)))
    (clock,) = stored(app)
    assert {key: clock["widget"][key] for key in (*KEPT, "icon")} == {**KEPT, "icon": "mdi:clock"}


@pytest.mark.parametrize("count", [None, 0, 5])
def test_stated_count_is_stored(app_with: AppWith, count: int | None) -> None:
    app = app_with(document("acme/clock", downloadCount=12))
    run(app, given=lines(document("acme/clock", downloadCount=count)))
    assert stored(app)[0]["widget"]["downloadCount"] == count


def test_new_widget_is_listed_and_as_old_as_its_first_version(app_with: AppWith) -> None:
    app = app_with()
    old = version("1.0.0", publishedAt="2024-02-29T23:30:00-01:00")
    run(app, given=lines(document("acme/clock", version("2.0.0"), old)))
    (clock,) = stored(app)
    assert (clock["widget"]["createdAt"], clock["widget"]["listed"]) == (
        "2024-03-01T00:30:00.000Z",
        True,
    )


BROKEN = {
    "truncated": A[:-20],
    "invalid UTF-8": A.replace(b"acme", b"ac\xffme"),
    "an encoded surrogate": A.replace(b"acme", b"ac\xed\xa0\x80me"),
    "UTF-16": A.decode().encode("utf-16-le"),
    "nested deep": b'{"widget": ' + b"[" * 100_000,
    "two on a line": A + B,
    "a number of many digits": b'{"widget": ' + b"9" * 5000 + b"}",
    "a control character": A.replace(b"acme", b"ac\x01me"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_line_that_is_not_json_is_named(app_with: AppWith, tmp_path: Path, broken: bytes) -> None:
    app = app_with()
    result = run(app, given=B + b"\n" + broken + b"\n")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {tmp_path}/given.jsonl line 2")
    assert ": is not a line of JSON in UTF-8 (" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert names(app) == []


ODD_NAMES = {"line": "a\nError: all is well", "long": "x" * 5000}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_problem_is_one_short_line_whatever_the_widget_is_called(
    app_with: AppWith, name: str
) -> None:
    (told,) = run(app_with(), given=lines(document(f"acme/{name}"))).stderr.splitlines()
    assert told.isprintable()
    assert len(told) < 600


def test_import_again_keeps_rows_and_writes_none(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with()
    run(app, DEMO)
    ids = "SELECT id, scope, name FROM widget UNION ALL SELECT id, widget_id, version FROM version"
    before = rows(app, ids)
    assert run(app, DEMO).exit_code == 0
    assert rows(app, ids) == before
    with DEMO.open("rb") as file:
        statements = writes.put_documents(read_catalog([file]))
    assert set(app.extensions["database"].write(statements)) == {0}


def test_update_keeps_the_rows_of_widget_and_versions(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version(), version("2.0.0")), document("acme/notes"))
    ids = "SELECT id, widget_id, version FROM version ORDER BY id"
    before = rows(app, ids)
    run(app, given=lines(document("acme/clock", version(license="MIT"), icon="x")))
    assert rows(app, ids) == before


def test_import_without_a_database_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    result = run(create_app({"DATABASE": path}), given=lines(document()))
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {path} does not exist. Create it with: flask init\n",
    )
    assert not path.exists()


def process(database: Path, *arguments: object, given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "flask", "import", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database)},
        input=given,
        capture_output=True,
        timeout=30,
    )


def test_process_imports_standard_input(app_with: AppWith) -> None:
    app = app_with()
    done = process(Path(app.config["DATABASE"]), "-", given=DEMO.read_bytes())
    assert (done.returncode, done.stdout) == (0, b"")
    said = done.stderr.splitlines()[-1]
    assert said == b"Imported 34 widgets and 205 versions: 34 added, 0 changed, 0 unchanged."
    assert len(names(app)) == 34


def test_process_refuses_with_exit_code_1_and_no_traceback(app_with: AppWith) -> None:
    app = app_with()
    given = lines(
        document("acme/\ud800", displayName="x"), document("acme/clock", createdAt="soon")
    )
    done = process(Path(app.config["DATABASE"]), "-", given=given)
    first, second = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert first.startswith("Error: <stdin> line 1")
    assert second.startswith("<stdin> line 2, acme/clock: createdAt must be ")
