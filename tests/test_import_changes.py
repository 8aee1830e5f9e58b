"""flask import: what it adds, changes and removes, what it says of that, and a killed import."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import DEMO, ROOT
from flask import Flask

AppWith = Callable[..., Flask]

AT = "2025-01-01T00:00:00.000Z"
CLOCK = document("acme/clock", version("1.0.0"), version("2.0.0"), downloadCount=7, createdAt=AT)
NOTES = document("acme/notes", version("1.0.0"), createdAt=AT)


def file_of(app: Flask, *documents: Json) -> Path:
    file = Path(app.config["DATABASE"]).with_name("given.jsonl")
    file.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in documents))
    return file


def run(app: Flask, *arguments: object) -> Result:
    return app.test_cli_runner().invoke(args=[*map(str, arguments)])


def import_(app: Flask, *given: Any) -> list[str]:
    """Import documents with options; answers the lines that the command says."""
    options = [each for each in given if isinstance(each, str)]
    file = file_of(app, *(each for each in given if not isinstance(each, str)))
    result = run(app, "import", file, *options)
    assert (result.exit_code, result.stdout) == (0, "")
    return result.stderr.splitlines()


def exported(app: Flask) -> bytes:
    return run(app, "export").stdout_bytes


def held(app: Flask) -> dict[str, list[str]]:
    """The versions of every widget in the catalog."""
    documents = map(json.loads, exported(app).splitlines())
    return {
        f"{each['widget']['scope']}/{each['widget']['name']}": [
            entry["version"] for entry in each["versions"]
        ]
        for each in documents
    }


WIDGET_CHANGES = {
    **{"displayName": "Watch", "description": "Time", "icon": "mdi:clock", "isOfficial": False},
    **{"downloadCount": None, "createdAt": "2024-01-01T00:00:00.000Z", "listed": False},
}
VERSION_CHANGES = {
    **{"bundleUrl": "http://cdn.example.com/x.js", "bundleSize": 0, "sha256Hash": "f" * 64},
    **{"publishedAt": AT, "yanked": True, "yankedReason": "", "deprecationMessage": "Old"},
    **{"releaseNotes": "New", "displayName": "Watch", "description": "", "icon": "mdi:clock"},
    **{"minSize": {"w": 0, "h": 1}, "maxSize": {"w": 12, "h": 13}, "sdkVersion": "^1.0.0 "},
    **{"configVersion": 0, "permissions": ["network"], "license": "MIT"},
}


def test_any_field_of_a_widget_is_a_change_once(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    said = "Imported 1 widget and 0 versions: 0 added, {} changed, {} unchanged."
    for key, value in WIDGET_CHANGES.items():
        changed = {"widget": {**CLOCK["widget"], "listed": True, key: value}}
        told = [*import_(app, changed), *import_(app, changed)]
        assert told == [said.format(1, 0), said.format(0, 1)], key


def test_any_field_of_a_version_is_a_change_once(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    said = "Imported 1 widget and 2 versions: 0 added, {} changed, {} unchanged."
    for key, value in VERSION_CHANGES.items():
        changed = {**CLOCK, "versions": [version("1.0.0"), version("2.0.0", **{key: value})]}
        told = [*import_(app, changed), *import_(app, changed), *import_(app, CLOCK)]
        assert told == [said.format(1, 0), said.format(0, 1), said.format(1, 0)], key


def test_new_version_changes_its_widget(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    said = import_(app, document("acme/clock", version("3.0.0"), downloadCount=7, createdAt=AT))
    assert said == ["Imported 1 widget and 1 version: 0 added, 1 changed, 0 unchanged."]
    assert held(app) == {"acme/clock": ["3.0.0", "2.0.0", "1.0.0"]}


def test_added_changed_and_unchanged_are_counted_apart(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES, document("lab/left-alone"))
    changed = {**NOTES, "widget": {**NOTES["widget"], "icon": "mdi:note"}}
    new = [document("acme/new", version(), version("2.0.0")), document("Acme/clock")]
    said = import_(app, CLOCK, changed, *new)
    assert said == ["Imported 4 widgets and 5 versions: 2 added, 1 changed, 1 unchanged."]


SAME = {
    "a count left out": ("widget", {"downloadCount"}, {}),
    "a creation left out": ("widget", {"createdAt"}, {}),
    "5.0 for 5": ("widget", set(), {"downloadCount": 7.0}),
    "another offset": ("version", set(), {"publishedAt": "2025-01-02T04:04:05+01:00"}),
    "a hash in capitals": ("version", set(), {"sha256Hash": "0123456789ABCDEF" * 4}),
    "defaults spelled out": ("version", set(), {"permissions": [], "maxSize": {"w": 12, "h": 12}}),
}


@pytest.mark.parametrize(("part", "without", "with_"), SAME.values(), ids=SAME)
def test_another_spelling_of_the_same_is_no_change(
    app_with: AppWith, part: str, without: set[str], with_: Json
) -> None:
    app = app_with(CLOCK)
    before = exported(app)
    widget, (first, second) = CLOCK["widget"], CLOCK["versions"]
    if part == "widget":
        kept = {key: value for key, value in widget.items() if key not in without}
        widget = {**kept, **with_}
    else:
        second = {**second, **with_}
    said = import_(app, {"widget": widget, "versions": [first, second]})
    assert said == ["Imported 1 widget and 2 versions: 0 added, 0 changed, 1 unchanged."]
    assert exported(app) == before


def test_prune_removes_what_the_files_lack(app_with: AppWith) -> None:
    others = [document("acme/old", version()), document("lab/clock", listed=False)]
    app = app_with(CLOCK, NOTES, *others)
    kept = document("acme/clock", version("2.0.0"))
    assert import_(app, kept, NOTES, "--prune") == [
        "Imported 2 widgets and 2 versions: 0 added, 0 changed, 2 unchanged.",
        "Removed 2 widgets and 1 version of the others.",
    ]
    assert held(app) == {"acme/clock": ["2.0.0"], "acme/notes": ["1.0.0"]}
    assert json.loads(exported(app).splitlines()[0])["widget"]["downloadCount"] == 7
    search = app.test_client().get("/api/v1/widgets/search").json
    assert [widget["name"] for widget in search["widgets"]] == ["clock", "notes"]
    assert run(app, "check").exit_code == 0


def test_without_prune_nothing_is_removed(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    import_(app, document("acme/clock", version("2.0.0")))
    assert held(app) == {"acme/clock": ["2.0.0", "1.0.0"], "acme/notes": ["1.0.0"]}


def test_prune_by_several_files_keeps_what_any_of_them_names(
    app_with: AppWith, tmp_path: Path
) -> None:
    app = app_with(CLOCK, NOTES, document("lab/old"))
    paths = []
    for each in (CLOCK, NOTES):
        paths.append(file_of(app, each).rename(tmp_path / f"{len(paths)}.jsonl"))
    assert run(app, "import", "--prune", *paths).stderr.splitlines() == [
        "Imported 2 widgets and 3 versions: 0 added, 0 changed, 2 unchanged.",
        "Removed 1 widget and 0 versions of the others.",
    ]
    assert list(held(app)) == ["acme/clock", "acme/notes"]


def test_prune_by_an_empty_file_is_refused(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    before = exported(app)
    result = run(app, "import", "--prune", file_of(app))
    said = "Error: The files hold no widget; --prune would remove the whole catalog.\n"
    assert (result.exit_code, result.stderr) == (1, said)
    assert exported(app) == before


def test_prune_by_a_bad_file_removes_nothing(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    before = exported(app)
    bad = file_of(app, NOTES, document("acme/bad", listed="no"))
    assert run(app, "import", "--prune", bad).exit_code == 1
    assert exported(app) == before


ODD = ["a/🕰", "a/'", 'a/"\\', "a/%", "a/NULL", "a/é", "a/e\u0301", "A/é", "1/2", "a/1.0", "@a/@b"]
NUMBERS = ["1.0.0", "1.0.0+build", "1.0.0+Build", "1.0.0-0", "1.0.0-00a", "10.0.0"]


def test_prune_by_the_catalog_itself_removes_nothing(app_with: AppWith) -> None:
    app = app_with(*(document(path, *map(version, NUMBERS)) for path in ODD))
    before = exported(app)
    assert import_(app, *map(json.loads, before.splitlines()), "--prune") == [
        "Imported 11 widgets and 66 versions: 0 added, 0 changed, 11 unchanged.",
        "Removed 0 widgets and 0 versions of the others.",
    ]
    assert exported(app) == before


@pytest.mark.parametrize("near", ["acme/Clock", "acme/clóck", "acme/cloc", "clock/acme"])
def test_prune_keeps_no_widget_of_a_name_that_is_only_near(app_with: AppWith, near: str) -> None:
    app = app_with(document(near))
    said = import_(app, CLOCK, "--prune")
    assert said[1] == "Removed 1 widget and 0 versions of the others."
    assert list(held(app)) == ["acme/clock"]


@pytest.mark.parametrize("options", [[], ["--prune"]], ids=["plain", "prune"])
def test_dry_run_says_the_same_and_changes_nothing(app_with: AppWith, options: list[str]) -> None:
    app = app_with(CLOCK, NOTES, document("lab/old"))
    given = [document("acme/clock", version("3.0.0")), NOTES, document("lab/new", version())]
    before = exported(app)
    rehearsed = import_(app, *given, *options, "--dry-run")
    assert exported(app) == before
    said = import_(app, *given, *options)
    assert said[0] == "Imported 3 widgets and 3 versions: 1 added, 1 changed, 1 unchanged."
    if options:
        assert said[1] == "Removed 1 widget and 2 versions of the others."
    would = [line.replace("Imported", "Would import") for line in said]
    assert rehearsed == [line.replace("Removed", "Would remove") for line in would]


@contextmanager
def stopped(database: Path, *arguments: object, when: Callable[[], bool]) -> Iterator[None]:
    """A real process, stopped as soon as the condition holds or it ends, and killed after that."""
    with subprocess.Popen(
        [sys.executable, "-m", "flask", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database)},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            while not when() and process.poll() is None:
                pass
            process.send_signal(signal.SIGSTOP)
            yield
        finally:
            process.kill()


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_import_killed_halfway_leaves_the_catalog_as_it_was(app_with: AppWith) -> None:
    app = app_with(CLOCK, *(document(f"big/w{n}", version(), createdAt=AT) for n in range(0, 9)))
    before = exported(app)
    app.extensions["database"].close()
    notes = {"releaseNotes": "What is new in this version. " * 30}
    many = [document(f"big/w{n}", version(**notes), icon="new") for n in range(3000)]
    file, path = file_of(app, *many), Path(app.config["DATABASE"])
    log = path.with_name(f"{path.name}-wal")

    with (
        stopped(path, "import", "--prune", file, when=lambda: size(log) > 500_000),
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")  # so it was inside its transaction

    assert exported(app) == before
    assert run(app, "check").stderr == f"{path} is in order.\n"
    assert import_(app, CLOCK) == [
        "Imported 1 widget and 2 versions: 0 added, 0 changed, 1 unchanged."
    ]


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "at its first file": lambda folder: any(folder.iterdir()),
    "at its first bytes": lambda folder: sum(map(size, folder.iterdir())) > 4096,
    "as the catalog appears": lambda folder: (folder / "new.db").exists(),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_init_that_is_killed_leaves_no_catalog_or_a_whole_one(
    app_with: AppWith, tmp_path: Path, moment: Callable[[Path], bool]
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    with stopped(folder / "new.db", "init", "--demo", when=lambda: moment(folder)):
        pass
    app = app_with(DATABASE=folder / "new.db")
    if (folder / "new.db").exists():
        assert exported(app) == DEMO.read_bytes()
    assert run(app, "init", "--demo").exit_code == 0
    assert exported(app) == DEMO.read_bytes()


def test_large_import_leaves_the_text_index_in_one_piece(app_with: AppWith) -> None:
    app = app_with()
    texts = [" ".join(f"word{n * m}" for m in range(1, 40)) for n in range(1000)]
    many = [document(f"acme/widget-{n}", description=text) for n, text in enumerate(texts)]
    import_(app, *many)
    with app.extensions["database"].read() as connection:
        pieces = connection.execute("SELECT count(DISTINCT segid) FROM listing_text_idx").fetchone()
    assert pieces[0] == 1
