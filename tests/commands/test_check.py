"""widget-catalog check: one line for each problem of the database."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import create_catalog, create_demo, run, run_on
from flask import Flask

AppWith = Callable[..., Flask]


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A listed widget with two versions, and an unlisted one."""
    clock = document("acme/clock", version("1.0.0"), version("1.10.0"), description="Time")
    notes = document("acme/notes", version("1.9.0"), listed=False)
    return create_catalog(tmp_path / "catalog.db", clock, notes)


def damage(path: Path, *statements: str) -> None:
    """Run the statements without checking constraints and foreign keys."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement)


def overwrite_page(path: Path, table: str) -> None:
    """Overwrite the first page of a table or index."""
    with closing(sqlite3.connect(path)) as connection:
        find = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (number,) = connection.execute(find, [table]).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xaa" * size)


def test_catalog_without_faults_is_in_order(catalog: Path) -> None:
    result = run_on(catalog, "check")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{catalog} is in order.\n"
    assert run_on(catalog, "check", "--quiet").output == ""


BAD_RANGE = (
    "hearth/scenes: version 1.2.0: sdkVersion 'latest please' is not an npm range; "
    "no SDK will match it.\n"
)


def test_demo_catalog_is_in_order_with_a_warning(tmp_path: Path) -> None:
    demo = create_demo(tmp_path / "demo.db")
    result = run_on(demo, "check")
    assert (result.exit_code, result.stdout) == (0, f"Warning: {BAD_RANGE}")
    assert result.stderr == f"{demo} is in order, with 1 warning.\n"


def test_strict_check_treats_a_warning_as_a_problem(tmp_path: Path) -> None:
    demo = create_demo(tmp_path / "demo.db")
    result = run_on(demo, "check", "--strict")
    assert (result.exit_code, result.stdout) == (1, BAD_RANGE)
    assert result.stderr == f"Error: 1 problem in {demo}.\n"


def test_json_has_the_problems_and_the_warnings(tmp_path: Path) -> None:
    demo = create_demo(tmp_path / "demo.db")
    warned = run_on(demo, "check", "--json")
    assert (warned.exit_code, json.loads(warned.stdout)) == (
        0,
        {"problems": [], "warnings": [BAD_RANGE.strip()]},
    )
    strict = run_on(demo, "check", "--json", "--strict")
    assert (strict.exit_code, json.loads(strict.stdout)) == (
        1,
        {"problems": [BAD_RANGE.strip()], "warnings": []},
    )


NO_URL = "acme/clock: version 1.10.0: bundleUrl must be an absolute http or https URL, not"
WRONG_LISTING = "its listing for search differs from the widget."
SUMMARY = "acme/clock: its summary in search results differs from the widget."
CHANGE = "its entry in the change feed is missing or wrong."
INTERVALS = "SDK range '^1.0.0': its stored intervals do not match the range."
ANY_RANGE = "acme/notes: version 1.9.0: sdkVersion 'any' is not an npm range; no SDK will match it."
ANY = "INSERT INTO sdk_range (range) VALUES ('any')"
LISTING = """
INSERT INTO listing SELECT {}, scope, '{}', 0, -1, '', '', '[]', '', '', '[]', '', '', '', ''
FROM widget """
COPIED_SUMMARY = """
INSERT INTO summary SELECT {}, head, latest, sdk_range_id, published_at, stable, stable_at
FROM summary
"""
NEW_CHANGE = "INSERT INTO change VALUES ('acme', '{}', 99, 1)"
# A statement, and the lines that it leads to.
DERIVED_FAULTS = {
    "DELETE FROM listing": [f"acme/clock: {WRONG_LISTING}"],
    "INSERT INTO listing_keyword VALUES (1, 'time')": [
        "acme/clock: its keywords for search differ from the widget's."
    ],
    "UPDATE listing SET downloads = 5": [f"acme/clock: {WRONG_LISTING}"],
    "UPDATE listing SET updated = ''": [f"acme/clock: {WRONG_LISTING}"],
    LISTING.format(2, "notes") + "WHERE id = 2": [f"acme/notes: {WRONG_LISTING}"],
    LISTING.format(9, "gone") + "WHERE id = 2": [f"acme/gone: {WRONG_LISTING}"],
    "DELETE FROM summary": [SUMMARY],
    "UPDATE summary SET head = replace(head, 'Clock', 'C')": [SUMMARY],
    "UPDATE summary SET latest = 'null'": [SUMMARY],
    "UPDATE summary SET sdk_range_id = 9": [SUMMARY],
    "UPDATE summary SET stable = 'null'": [SUMMARY],
    "UPDATE listing SET stable_license = 'X'": [f"acme/clock: {WRONG_LISTING}"],
    COPIED_SUMMARY.format(2): [SUMMARY.replace("clock", "notes")],
    COPIED_SUMMARY.format(9): [SUMMARY.replace("acme/clock", "widget 9")],
    "DELETE FROM change": [f"acme/clock: {CHANGE}"],
    "UPDATE change SET listed = 0": [f"acme/clock: {CHANGE}"],
    NEW_CHANGE.format("notes"): [f"acme/notes: {CHANGE}"],
    NEW_CHANGE.format("gone"): [f"acme/gone: {CHANGE}"],
    "DELETE FROM sdk_interval": [INTERVALS],
    "UPDATE sdk_interval SET high = 'r0019.0010.0010~'": [INTERVALS],
    "INSERT INTO sdk_interval VALUES (9, 'r', 's')": [
        "A row of sdk_interval refers to a missing sdk_range."
    ],
    "UPDATE widget SET display_name = 'Watch' WHERE id = 1": [
        f"acme/clock: {WRONG_LISTING}",
        SUMMARY,
        "acme/clock: an import would store different values for folded_name, folded_text.",
    ],
}
COPY = "INSERT INTO mirrored (widget_id, source, etag) VALUES (1, '{}', {})"
NO_ETAG = "acme/clock: etag must be 1 to 1024 printable ASCII characters, not"
SET_1_10 = "UPDATE version SET {} WHERE version = '1.10.0'"
FAULTS = {
    "UPDATE sdk_range SET range = '^1' WHERE id = 1; DELETE FROM version WHERE id < 3": [
        "Row 3 of version refers to a missing sdk_range."
    ],
    SET_1_10.format("precedence = '1.10.0'"): [
        "acme/clock: version 1.10.0: an import would store different values for precedence."
    ],
    "UPDATE version SET sha256_hash = upper(sha256_hash),"
    " published_at = replace(published_at, '.000', '') WHERE id = 3": [
        "acme/notes: version 1.9.0: an import would store different values for sha256_hash, "
        "published_at."
    ],
    SET_1_10.format("bundle_url = 'javascript:x()'"): [f"{NO_URL} 'javascript:x()'."],
    SET_1_10.format("bundle_url = 'https:///x.js'"): [f"{NO_URL} 'https:///x.js'."],
    SET_1_10.format("permissions = '[\"network\", 1]'"): [
        "acme/clock: version 1.10.0: permissions must be an array of at most 100 strings of at "
        'most 100 characters, not ["network", 1].'
    ],
    "UPDATE version SET yanked = 2 WHERE id = 3": [
        "The file is damaged: CHECK constraint failed in version.",
        "acme/notes: version 1.9.0: an import would store different values for yanked.",
    ],
    "UPDATE version SET version = '1.x' WHERE version = '1.9.0'": [
        "acme/notes: versions[0]: version must be a SemVer version such as 1.4.0, not '1.x'."
    ],
    "UPDATE widget SET download_count = 9007199254740992 WHERE id = 2": [
        "acme/notes: downloadCount must be a whole number from 0 to 9007199254740991, "
        "not 9007199254740992."
    ],
    COPY.format("ftp://up.example", "NULL"): [
        "acme/clock: source must be an absolute http or https URL, not 'ftp://up.example'."
    ],
    COPY.format("https://up.example", "'a' || char(10)"): [f"{NO_ETAG} 'a\\n'."],
    COPY.format("https://up.example", "printf('%.*c', 1025, 'x')"): [f"{NO_ETAG} '{'x' * 76}...."],
    "INSERT INTO upstream (source, options) VALUES ('up.example', '{}')": [
        "Upstream: source must be an absolute http or https URL, not 'up.example'."
    ],
    "DELETE FROM widget WHERE id = 1": [
        *(
            "Row 1 of version refers to a missing widget.",
            "Row 2 of version refers to a missing widget.",
        )
    ],
}


def check_problems(catalog: Path, lines: list[str], *options: str) -> None:
    result = run_on(catalog, "check", *options)
    assert result.stdout.splitlines() == lines
    problems = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    assert result.exit_code == 1
    assert result.stderr.endswith(f"Error: {problems} in {catalog}.\n")


@pytest.mark.parametrize(("statements", "lines"), FAULTS.items())
def test_each_fault_is_reported_in_a_line(catalog: Path, statements: str, lines: list[str]) -> None:
    damage(catalog, *statements.split("; "))
    check_problems(catalog, lines, "--repair")


@pytest.mark.parametrize(("statement", "lines"), DERIVED_FAULTS.items())
def test_each_fault_of_derived_rows_is_reported_and_repaired(
    catalog: Path, statement: str, lines: list[str]
) -> None:
    damage(catalog, statement)
    check_problems(catalog, lines)
    check_repaired(catalog)


def check_repaired(catalog: Path) -> None:
    result = run_on(catalog, "check", "--repair")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "Rebuilt the derived rows.",
        f"{catalog} is in order.",
    ]
    assert run_on(catalog, "check").exit_code == 0


def test_after_a_repair_mirrors_compare_every_widget(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version()))
    client, path = app.test_client(), "/api/v1/widgets/changes"
    since = client.get(path).json["next"]
    assert run(app, "check", "--repair").exit_code == 0
    assert client.get(f"{path}?since={since}").status_code == 410
    assert [each["name"] for each in client.get(path).json["changes"]] == ["clock"]


INDEX_FAULTS = {
    "emptied": "INSERT INTO listing_text (listing_text) VALUES ('delete-all')",
    "another text": "UPDATE listing_text SET folded_text = 'watch' WHERE rowid = 1",
    "an unlisted widget": "INSERT INTO listing_text (rowid, folded_text) VALUES (2, 'notes')",
}


@pytest.mark.parametrize("statement", INDEX_FAULTS.values(), ids=INDEX_FAULTS)
def test_text_index_that_differs_from_the_widgets_is_reported(
    catalog: Path, statement: str
) -> None:
    damage(catalog, statement)
    result = run_on(catalog, "check")
    (line,) = result.stdout.splitlines()
    assert line.startswith("The search index does not match the widgets: ")
    assert result.exit_code == 1
    check_repaired(catalog)


@pytest.mark.parametrize(
    "table", ["widget", "version", "listing", "version_newest", "summary", "sdk_range"]
)
def test_overwritten_page_is_reported(catalog: Path, table: str) -> None:
    overwrite_page(catalog, table)
    result = run_on(catalog, "check")
    # The lines before it come from SQLite and differ between its releases.
    last = result.stdout.splitlines()[-1]
    assert last == "The database cannot be read to the end: database disk image is malformed."
    assert result.exit_code == 1


def test_several_faults_are_reported_together(catalog: Path) -> None:
    damage(
        catalog,
        "UPDATE version SET bundle_url = 'ftp://x', permissions = '[null]' WHERE id = 2",
        ANY,
        "UPDATE version SET sdk_version = 'any', precedence = '' WHERE id = 3",
        "INSERT INTO version SELECT 4, 9, '3.0.0', precedence, bundle_url, bundle_size,"
        " sha256_hash, published_at, yanked, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, 1,"
        " sdk_version, NULL, '[]', NULL, NULL FROM version WHERE id = 1",
        "DELETE FROM listing",
        "DELETE FROM summary",
        "DELETE FROM sdk_interval",
        INDEX_FAULTS["emptied"],
    )
    result = run_on(catalog, "check")
    *lines, index, warning = result.stdout.splitlines()
    assert lines == [
        "Row 4 of version refers to a missing widget.",
        f"acme/clock: {WRONG_LISTING}",
        SUMMARY,
        INTERVALS,
        f"{NO_URL} 'ftp://x'.",
        "acme/clock: version 1.10.0: permissions must be an array of at most 100 strings of at most"
        " 100 characters, not [null].",
        "acme/notes: version 1.9.0: an import would store different values for precedence.",
    ]
    assert index.startswith("The search index does not match the widgets: ")
    assert warning == f"Warning: {ANY_RANGE}"
    assert (result.exit_code, result.stderr) == (1, f"Error: 8 problems in {catalog}.\n")


def test_problem_is_one_line_without_control_characters(catalog: Path) -> None:
    rename = "UPDATE widget SET name = 'a' || char(10, 27) || '[2J' WHERE id = 2"
    damage(catalog, "DROP TRIGGER widget_renamed", rename)
    (line,) = run_on(catalog, "check").stdout.splitlines()
    assert line.isprintable()


UNREADABLE = {
    "no JSON": ("network", "The file is damaged: CHECK constraint failed in version."),
    # Some releases of Python can read it, and then it is refused like any other value.
    "nested too deep to read": (
        "[" * 1500 + "]" * 1500,
        r"acme/clock: (maximum recursion depth|version .*: permissions must be an array)",
    ),
}


@pytest.mark.parametrize(("permissions", "problem"), UNREADABLE.values(), ids=UNREADABLE)
def test_permissions_that_cannot_be_parsed_are_reported(
    catalog: Path, permissions: str, problem: str
) -> None:
    damage(catalog, f"UPDATE version SET permissions = '{permissions}' WHERE id = 2")
    result = run_on(catalog, "check")
    assert re.search(problem, result.stdout)
    assert isinstance(result.exception, SystemExit)


def test_check_changes_nothing(catalog: Path) -> None:
    damage(catalog, "DELETE FROM listing", INDEX_FAULTS["emptied"])
    before = catalog.read_bytes()
    assert run_on(catalog, "check").exit_code == 1
    assert catalog.read_bytes() == before


def test_text_that_is_not_utf_8_is_a_problem(catalog: Path) -> None:
    damage(catalog, "UPDATE widget SET description = CAST(x'ff41' AS TEXT) WHERE id = 1")
    result = run_on(catalog, "check")
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, "UTF-8" in result.stdout) == (1, True)
