"""widget-catalog import: counts of changes, --prune, --dry-run, and imports that are killed."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from builders import Json, document, version
from conftest import (
    DEMO,
    ROOT,
    Limits,
    Server,
    create_catalog,
    error_message,
    exported,
    run,
    start_command,
)
from flask import Flask

from app import create_app
from catalog.domain.documents import check_document
from catalog.files.checked_documents import BATCH_SIZE, check_files
from catalog.store.connection.transaction import Actor
from catalog.store.write.bundle_files import BundleFiles
from catalog.store.write.imports import import_documents

AppWith = Callable[..., Flask]

AT = "2025-01-01T00:00:00.000Z"
CLOCK = document("acme/clock", version("1.0.0"), version("2.0.0"), downloadCount=7, createdAt=AT)
NOTES = document("acme/notes", version("1.0.0"), createdAt=AT)


def write_file(app: Flask, *documents: Json) -> Path:
    file = Path(app.config["DATABASE"]).with_name("input.jsonl")
    file.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in documents))
    return file


def import_(app: Flask, *documents_and_options: Any) -> list[str]:
    """Import documents with options; return the lines that the command prints."""
    options = [each for each in documents_and_options if isinstance(each, str)]
    documents = [each for each in documents_and_options if not isinstance(each, str)]
    result = run(app, "import", write_file(app, *documents), *options)
    assert (result.exit_code, result.stdout) == (0, "")
    return result.stderr.splitlines()


def versions_by_widget(app: Flask) -> dict[str, list[str]]:
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


def test_any_changed_field_of_a_widget_is_counted_once(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    status = "Imported 1 widget and 0 versions: 0 added, {} changed, {} unchanged."
    for key, value in WIDGET_CHANGES.items():
        changed = {"widget": {**CLOCK["widget"], "listed": True, key: value}}
        printed = [*import_(app, changed), *import_(app, changed)]
        assert printed == [status.format(1, 0), status.format(0, 1)], key


def test_any_changed_field_of_a_version_is_counted_once(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    status = "Imported 1 widget and 2 versions: 0 added, {} changed, {} unchanged."
    for key, value in VERSION_CHANGES.items():
        changed = {**CLOCK, "versions": [version("1.0.0"), version("2.0.0", **{key: value})]}
        printed = [*import_(app, changed), *import_(app, changed), *import_(app, CLOCK)]
        assert printed == [status.format(1, 0), status.format(0, 1), status.format(1, 0)], key


def test_added_changed_and_unchanged_widgets_are_counted(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES, document("lab/left-alone"))
    changed = {**NOTES, "widget": {**NOTES["widget"], "icon": "mdi:note"}}
    new = [document("acme/new", version(), version("2.0.0")), document("Acme/clock")]
    printed = import_(app, CLOCK, changed, *new)
    assert printed == ["Imported 4 widgets and 5 versions: 2 added, 1 changed, 1 unchanged."]


SPELLINGS = {
    "absent count": ("widget", {"downloadCount"}, {}),
    "absent creation time": ("widget", {"createdAt"}, {}),
    "5.0 for 5": ("widget", set(), {"downloadCount": 7.0}),
    "another UTC offset": ("version", set(), {"publishedAt": "2025-01-02T04:04:05+01:00"}),
    "hash in upper case": ("version", set(), {"sha256Hash": "0123456789ABCDEF" * 4}),
    "explicit defaults": ("version", set(), {"permissions": [], "maxSize": {"w": 12, "h": 12}}),
}


@pytest.mark.parametrize(("part", "without", "with_"), SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_of_the_same_value_is_not_a_change(
    app_with: AppWith, part: str, without: set[str], with_: Json
) -> None:
    app = app_with(CLOCK)
    before = exported(app)
    widget, (first, second) = CLOCK["widget"], CLOCK["versions"]
    if part == "widget":
        rest = {key: value for key, value in widget.items() if key not in without}
        widget = {**rest, **with_}
    else:
        second = {**second, **with_}
    printed = import_(app, {"widget": widget, "versions": [first, second]})
    assert printed == ["Imported 1 widget and 2 versions: 0 added, 0 changed, 1 unchanged."]
    assert exported(app) == before


def test_prune_removes_widgets_and_versions_that_the_file_lacks(app_with: AppWith) -> None:
    others = [document("acme/old", version()), document("lab/clock", listed=False)]
    app = app_with(CLOCK, NOTES, *others)
    clock = document("acme/clock", version("2.0.0"))
    assert import_(app, clock, NOTES, "--prune", "--yes") == [
        "Imported 2 widgets and 2 versions: 0 added, 1 changed, 1 unchanged.",
        "Removed 2 widgets and 1 version that are not in the files.",
    ]
    assert versions_by_widget(app) == {"acme/clock": ["2.0.0"], "acme/notes": ["1.0.0"]}
    assert json.loads(exported(app).splitlines()[0])["widget"]["downloadCount"] == 7
    search = app.test_client().get("/api/v1/widgets/search").json
    assert [widget["name"] for widget in search["widgets"]] == ["clock", "notes"]
    assert run(app, "check").exit_code == 0


def test_prune_keeps_the_widgets_of_all_files(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with(CLOCK, NOTES, document("lab/old"))
    paths: list[Path] = []
    for each in (CLOCK, NOTES):
        paths.append(write_file(app, each).rename(tmp_path / f"{len(paths)}.jsonl"))
    assert run(app, "import", "--prune", "--yes", *paths).stderr.splitlines() == [
        "Imported 2 widgets and 3 versions: 0 added, 0 changed, 2 unchanged.",
        "Removed 1 widget and 0 versions that are not in the files.",
    ]
    assert list(versions_by_widget(app)) == ["acme/clock", "acme/notes"]


def test_prune_that_only_removes_widgets_is_recorded_as_an_import(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    import_(app, CLOCK, "--prune", "--yes")
    entries = json.loads(run(app, "log", "--json").stdout)
    summaries = [each for each in entries if each["action"] == "import" and not each["scope"]]
    assert [each["after"] for each in summaries] == [{"widgets": 1, "versions": 2}]


def test_prune_with_an_empty_file_is_an_error(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES)
    before = exported(app)
    result = run(app, "import", "--prune", write_file(app))
    message = "The files contain no widgets; --prune would remove the whole catalog."
    assert error_message(result) == message
    assert exported(app) == before


@pytest.mark.parametrize("similar", ["acme/Clock", "acme/clóck", "acme/cloc", "clock/acme"])
def test_prune_removes_widgets_with_similar_names(app_with: AppWith, similar: str) -> None:
    app = app_with(document(similar))
    printed = import_(app, CLOCK, "--prune", "--yes")
    assert printed[1] == "Removed 1 widget and 0 versions that are not in the files."
    assert list(versions_by_widget(app)) == ["acme/clock"]


@pytest.mark.parametrize("options", [[], ["--prune", "--yes"]], ids=["plain", "prune"])
def test_dry_run_prints_the_same_and_changes_nothing(app_with: AppWith, options: list[str]) -> None:
    app = app_with(CLOCK, NOTES, document("lab/old"))
    changes = [document("acme/clock", version("3.0.0")), NOTES, document("lab/new", version())]
    before = exported(app)
    dry_run = import_(app, *changes, *options, "--dry-run")
    assert exported(app) == before
    printed = import_(app, *changes, *options)
    assert printed[0] == "Imported 3 widgets and 3 versions: 1 added, 1 changed, 1 unchanged."
    if options:
        assert printed[1] == "Removed 1 widget and 2 versions that are not in the files."
    would = [line.replace("Imported", "Would import") for line in printed]
    assert dry_run == [line.replace("Removed", "Would remove") for line in would]


# The kernel kills a process that writes more to a file than its limit allows: here in the middle of
# the work, at any speed of the machine. Python ignores that signal by default.
LIMITED = """
import signal
from flask.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
main()
"""


def run_until_killed(database: Path, *arguments: object, max_file_bytes: int) -> None:
    """Run a command that is killed when a file that it writes exceeds the limit."""

    def set_limits() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))

    process = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=set_limits,
        capture_output=True,
        timeout=60,
    )
    assert process.returncode == -signal.SIGXFSZ, process.stderr


def test_import_that_is_killed_while_it_validates_changes_nothing(app_with: AppWith) -> None:
    app = app_with(CLOCK, *(document(f"big/w{n}", version(), createdAt=AT) for n in range(9)))
    before = exported(app)
    app.extensions["database"].close()
    notes = {"releaseNotes": "What is new in this version. " * 30}
    many = [document(f"big/w{n}", version(**notes), icon="new") for n in range(3000)]
    file, path = write_file(app, *many), Path(app.config["DATABASE"])

    # The documents that were validated are in a temporary file, which exceeds the limit first.
    run_until_killed(path, "import", "--prune", "--yes", file, max_file_bytes=500_000)

    assert exported(app) == before
    assert run(app, "check").stderr == f"{path} is in order.\n"
    assert import_(app, CLOCK) == [
        "Imported 1 widget and 2 versions: 0 added, 0 changed, 1 unchanged."
    ]


# The process kills itself when it would write the third batch of documents. With --prune, it reads
# all batches once before.
KILLED_IN_THE_THIRD_BATCH = """
import os, signal, sys
from catalog.files.checked_documents import CheckedFiles
batches = CheckedFiles.batches
readings = []
def killed(checked):
    readings.append(checked)
    for number, batch in enumerate(batches(checked)):
        if number == 2 and len(readings) > sys.argv.count("--prune"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch
CheckedFiles.batches = killed
"""


def test_killed_import_leaves_complete_widgets_and_completes_when_it_runs_again(
    app_with: AppWith, limits: Limits
) -> None:
    app = app_with(CLOCK, document("lab/old", version()))
    app.extensions["database"].close()
    # The first two batches are written.
    first, total = 2 * BATCH_SIZE, 2 * BATCH_SIZE + 50
    many = [document(f"acme/w{n:03}", version(), version("2.0.0")) for n in range(total)]
    file = write_file(app, *many)
    process = start_command(
        app.config["DATABASE"],
        *("import", file),
        settings=limits.run(KILLED_IN_THE_THIRD_BATCH),
        cwd=ROOT,
    )
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == -signal.SIGKILL
    both = ["2.0.0", "1.0.0"]
    written = {f"acme/w{n:03}": both for n in range(first)}
    stored = {"acme/clock": both, **written, "lab/old": ["1.0.0"]}
    assert {path: sorted(each)[::-1] for path, each in versions_by_widget(app).items()} == stored
    entries = json.loads(run(app, "log", "--json").stdout)
    assert [each["after"] for each in entries] == [{"widgets": total, "versions": 2 * total}]

    assert import_(app, *many, "--prune", "--yes") == [
        f"Imported {total} widgets and {2 * total} versions: 50 added, 0 changed, "
        f"{first} unchanged.",
        "Removed 2 widgets and 0 versions that are not in the files.",
    ]
    assert list(versions_by_widget(app)) == [f"acme/w{n:03}" for n in range(total)]
    assert run(app, "check").exit_code == 0


def test_killed_import_with_prune_has_removed_nothing(app_with: AppWith, limits: Limits) -> None:
    app = app_with(CLOCK, document("lab/old", version()))
    app.extensions["database"].close()
    # acme/clock, in the first batch, lacks a version.
    others = [document(f"acme/w{n}") for n in range(2 * BATCH_SIZE)]
    many = [document("acme/clock", version()), *others]
    process = start_command(
        app.config["DATABASE"],
        *("import", "--prune", "--yes", write_file(app, *many)),
        settings=limits.run(KILLED_IN_THE_THIRD_BATCH),
        cwd=ROOT,
    )
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    versions = versions_by_widget(app)
    assert sorted(versions["acme/clock"]) == ["1.0.0", "2.0.0"]
    assert versions["lab/old"] == ["1.0.0"]


def test_prune_without_a_terminal_needs_yes(app_with: AppWith) -> None:
    app = app_with(CLOCK, NOTES, document("lab/old", version()))
    before = exported(app)
    result = run(app, "import", "--prune", write_file(app, document("acme/clock", version())))
    assert error_message(result) == (
        "2 widgets and 1 version of other widgets are not in the files. Remove them? Standard "
        "input is not a terminal; use --yes to confirm."
    )
    assert exported(app) == before


def test_prune_that_removes_nothing_does_not_ask(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    assert import_(app, CLOCK, NOTES, "--prune") == [
        "Imported 2 widgets and 3 versions: 1 added, 0 changed, 1 unchanged.",
        "Removed 0 widgets and 0 versions that are not in the files.",
    ]


def download_count(app: Flask) -> int | None:
    count: int | None = json.loads(exported(app).splitlines()[0])["widget"]["downloadCount"]
    return count


@pytest.mark.parametrize(
    ("given", "after", "set_to"), [(6, 7, 6), (7, 7, 7), (8, 8, 8), (0, 7, 0), (None, 7, None)]
)
def test_count_of_a_file_lowers_a_counter_only_with_set_counts(
    app_with: AppWith, given: int | None, after: int, set_to: int | None
) -> None:
    app = app_with(CLOCK)
    changed = document("acme/clock", downloadCount=given)
    import_(app, changed)
    assert download_count(app) == after
    import_(app, changed, "--set-counts")
    assert download_count(app) == set_to


def test_count_of_a_file_sets_a_counter_that_is_null(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", downloadCount=None))
    import_(app, document("acme/clock", downloadCount=3))
    assert download_count(app) == 3


def test_installs_are_counted_between_the_batches_of_an_import(app_with: AppWith) -> None:
    app = app_with(document("acme/clock"))
    service = create_app({"DATABASE": app.config["DATABASE"]})
    statuses: list[int] = []

    def install(done: int) -> None:
        statuses.append(service.test_client().post("/api/v1/widgets/acme/clock").status_code)

    # Its own count is lower than the one that installs have reached.
    many = [document(f"acme/w{n}") for n in range(2 * BATCH_SIZE)]
    many.append(document("acme/clock", downloadCount=1))
    with write_file(app, *many).open("rb") as file, TemporaryFile() as spool:
        checked = check_files([file], spool, check_document, lambda batch, size: None)
        database = app.extensions["database"]
        bundle_files = BundleFiles(database, app.extensions["bundles"], [])
        actor = Actor("local", "x")
        import_documents(database, bundle_files, actor, checked.batches(), {}, install)
    service.extensions["database"].close()
    assert statuses == [200, 200, 200]
    assert download_count(app) == 3


# The process prints a line when it writes the second batch of documents.
PRINTS_THAT_IT_WRITES = """
from catalog.files.checked_documents import CheckedFiles
batches = CheckedFiles.batches
def announced(checked):
    for number, batch in enumerate(batches(checked)):
        if number == 1:
            print("writing", flush=True)
        yield batch
CheckedFiles.batches = announced
"""


def test_no_install_is_refused_beside_an_import_of_12000_widgets(
    app_with: AppWith, tmp_path: Path, limits: Limits
) -> None:
    database = create_catalog(tmp_path / "served.db", document("acme/clock"))
    file = tmp_path / "large.jsonl"
    line = json.dumps(document("acme/w00000", version(), description="Shows the time. " * 20))
    file.write_text("".join(f"{line.replace('w00000', f'w{n:05}')}\n" for n in range(12_000)))
    with Server(database) as server:
        settings = limits.run(PRINTS_THAT_IT_WRITES)
        process = start_command(database, "import", file, settings=settings, cwd=ROOT)
        assert process.stdout
        assert process.stdout.readline() == "writing\n"
        responses = [server.request("POST", "/api/v1/widgets/acme/clock") for _ in range(84)]
        _, printed = process.communicate(timeout=300)
    assert (process.returncode, "12000 added" in printed) == (0, True)
    assert [response.status for response, _ in responses] == [200] * 84
    assert download_count(app_with(DATABASE=database)) == 84


@pytest.mark.parametrize("max_file_bytes", [0, 4096, 100_000])
def test_killed_init_leaves_no_catalog(
    app_with: AppWith, tmp_path: Path, max_file_bytes: int
) -> None:
    path = tmp_path / "new" / "new.db"
    path.parent.mkdir()
    run_until_killed(path, "init", "--demo", max_file_bytes=max_file_bytes)
    assert not path.exists()
    app = app_with(DATABASE=path)
    assert run(app, "init", "--demo").exit_code == 0
    assert exported(app) == DEMO.read_bytes()


def test_large_import_merges_the_search_index(app_with: AppWith) -> None:
    app = app_with()
    texts = [" ".join(f"word{n * m}" for m in range(1, 40)) for n in range(1000)]
    many = [document(f"acme/widget-{n}", description=text) for n, text in enumerate(texts)]
    import_(app, *many)
    with app.extensions["database"].read() as connection:
        sql = "SELECT count(DISTINCT segid) FROM listing_text_idx"
        (segments,) = connection.execute(sql).fetchone()
    assert segments == 1
