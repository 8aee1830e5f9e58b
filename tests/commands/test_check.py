"""widget-catalog check: one line for each problem of the database."""

import json
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


def test_strict_check_treats_a_warning_as_a_finding(tmp_path: Path) -> None:
    demo = create_demo(tmp_path / "demo.db")
    result = run_on(demo, "check", "--strict")
    assert (result.exit_code, result.stdout) == (1, BAD_RANGE)
    assert result.stderr == f"Error: 1 finding in {demo}.\n"


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


def test_every_kind_of_change_leaves_the_catalog_in_order(app_with: AppWith) -> None:
    count = {"downloadCount": 3}
    app = app_with(document("acme/clock", version(), version("2.0.0"), **count), document("a/b"))
    for command in (
        *(["yank", "acme/clock@2.0.0"], ["deprecate", "acme/clock@1.0.0", "Old"]),
        *(["describe", "acme/clock", "--display-name", "Été", "--description", "天気"],),
        *(["unlist", "acme/clock"], ["describe", "acme/clock", "--description", ""]),
        *(
            ["relist", "acme/clock"],
            ["official", "acme/clock"],
            ["official", "--off", "acme/clock"],
        ),
        *(["delete", "acme/clock@2.0.0", "--yes"], ["delete", "a/b", "--yes"]),
    ):
        assert app.test_cli_runner().invoke(args=command).exit_code == 0
        assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == 200
        assert app.test_cli_runner().invoke(args=["check"]).stdout == ""


NO_URL = "acme/clock: version 1.10.0: bundleUrl must be an absolute http or https URL, not"
WRONG_LISTING = "its listing for search differs from the widget."
SUMMARY = "acme/clock: its summary in search results differs from the widget."
CHANGE = "its last change does not say whether it is listed."
INTERVALS = "SDK range '^1.0.0': its stored intervals do not match the range."
ANY_RANGE = "acme/notes: version 1.9.0: sdkVersion 'any' is not an npm range; no SDK will match it."
ANY = "INSERT INTO sdk_range (range) VALUES ('any')"
DERIVED_FAULTS = {
    "listing row missing": (["DELETE FROM listing"], [f"acme/clock: {WRONG_LISTING}"]),
    "listing row wrong": (["UPDATE listing SET downloads = 5"], [f"acme/clock: {WRONG_LISTING}"]),
    "listing row with a wrong date": (
        ["UPDATE listing SET updated = ''"],
        [f"acme/clock: {WRONG_LISTING}"],
    ),
    "listing row too many": (
        [
            "INSERT INTO listing SELECT id, scope, name, 0, -1, created_at, '', '[]', '', "
            "folded_name, folded_text FROM widget WHERE id = 2"
        ],
        [f"acme/notes: {WRONG_LISTING}"],
    ),
    "listing row of no widget": (
        ["INSERT INTO listing VALUES (9, 'acme', 'gone', 0, -1, '', '', '[]', '', 'gone', 'x')"],
        [f"acme/gone: {WRONG_LISTING}"],
    ),
    "summary missing": (["DELETE FROM summary"], [SUMMARY]),
    "summary of another text": (
        ["UPDATE summary SET head = replace(head, 'Clock', 'C')"],
        [SUMMARY],
    ),
    "summary of another version": (["UPDATE summary SET latest = 'null'"], [SUMMARY]),
    "summary of another range": (["UPDATE summary SET sdk_range_id = 9"], [SUMMARY]),
    "summary of an unlisted widget": (
        ["INSERT INTO summary SELECT 2, head, latest, sdk_range_id FROM summary"],
        ["Search has a summary for widget 2, which is not listed."],
    ),
    "summary of no widget": (
        ["INSERT INTO summary SELECT 9, head, latest, sdk_range_id FROM summary"],
        ["Search has a summary for widget 9, which is not listed."],
    ),
    "change missing": (["DELETE FROM change"], [f"acme/clock: {CHANGE}"]),
    "change of a listed widget wrong": (
        ["UPDATE change SET listed = 0"],
        [f"acme/clock: {CHANGE}"],
    ),
    "change of an unlisted widget": (
        ["INSERT INTO change VALUES ('acme', 'notes', 99, 1)"],
        [f"acme/notes: {CHANGE}"],
    ),
    "change of no widget": (
        ["INSERT INTO change VALUES ('acme', 'gone', 99, 1)"],
        [f"acme/gone: {CHANGE}"],
    ),
    "intervals missing": (["DELETE FROM sdk_interval"], [INTERVALS]),
    "intervals wrong": (["UPDATE sdk_interval SET high = 'r0019.0010.0010~'"], [INTERVALS]),
    "intervals of no range": (
        ["INSERT INTO sdk_interval VALUES (9, 'r', 's')"],
        ["A row of sdk_interval refers to no sdk_range."],
    ),
    "folded text stale": (
        ["UPDATE widget SET display_name = 'Watch' WHERE id = 1"],
        [SUMMARY, "acme/clock: an import would store another folded_name, folded_text."],
    ),
}
FAULTS = {
    "range missing": (
        ["UPDATE sdk_range SET range = '^1' WHERE id = 1", "DELETE FROM version WHERE id < 3"],
        ["Row 3 of version refers to no sdk_range."],
    ),
    "precedence wrong": (
        ["UPDATE version SET precedence = '1.10.0' WHERE version = '1.10.0'"],
        ["acme/clock: version 1.10.0: an import would store another precedence."],
    ),
    "hash in capitals and time in seconds": (
        [
            "UPDATE version SET sha256_hash = upper(sha256_hash),"
            " published_at = replace(published_at, '.000', '') WHERE id = 3"
        ],
        ["acme/notes: version 1.9.0: an import would store another sha256_hash, published_at."],
    ),
    "script for a URL": (
        ["UPDATE version SET bundle_url = 'javascript:x()' WHERE version = '1.10.0'"],
        [f"{NO_URL} 'javascript:x()'."],
    ),
    "URL without a host": (
        ["UPDATE version SET bundle_url = 'https:///x.js' WHERE version = '1.10.0'"],
        [f"{NO_URL} 'https:///x.js'."],
    ),
    "permission not a string": (
        ["UPDATE version SET permissions = '[\"network\", 1]' WHERE version = '1.10.0'"],
        [
            "acme/clock: version 1.10.0: permissions must be an array of at most 100 strings of at "
            'most 100 characters, not ["network", 1].'
        ],
    ),
    "yanked neither 0 nor 1": (
        ["UPDATE version SET yanked = 2 WHERE id = 3"],
        [
            "The file is damaged: CHECK constraint failed in version.",
            "acme/notes: version 1.9.0: an import would store another yanked.",
        ],
    ),
    "version not SemVer": (
        ["UPDATE version SET version = '1.x' WHERE version = '1.9.0'"],
        ["acme/notes: versions[0]: version must be a SemVer version such as 1.4.0, not '1.x'."],
    ),
    "count beyond JavaScript": (
        ["UPDATE widget SET download_count = 9007199254740992 WHERE id = 2"],
        [
            "acme/notes: downloadCount must be a whole number from 0 to 9007199254740991, "
            "not 9007199254740992."
        ],
    ),
    "versions without a widget": (
        ["DELETE FROM widget WHERE id = 1"],
        ["Row 1 of version refers to no widget.", "Row 2 of version refers to no widget."],
    ),
}


def check_findings(catalog: Path, lines: list[str], *options: str) -> None:
    result = run_on(catalog, "check", *options)
    assert result.stdout.splitlines() == lines
    findings = "1 finding" if len(lines) == 1 else f"{len(lines)} findings"
    assert result.exit_code == 1
    assert result.stderr.endswith(f"Error: {findings} in {catalog}.\n")


@pytest.mark.parametrize(("statements", "lines"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_reported_in_a_line(
    catalog: Path, statements: list[str], lines: list[str]
) -> None:
    damage(catalog, *statements)
    check_findings(catalog, lines, "--repair")


@pytest.mark.parametrize(("statements", "lines"), DERIVED_FAULTS.values(), ids=DERIVED_FAULTS)
def test_each_fault_of_derived_rows_is_reported_and_repaired(
    catalog: Path, statements: list[str], lines: list[str]
) -> None:
    damage(catalog, *statements)
    check_findings(catalog, lines)
    check_repaired(catalog)


def check_repaired(catalog: Path) -> None:
    result = run_on(catalog, "check", "--repair")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "Wrote the derived rows again.",
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
        "Row 4 of version refers to no widget.",
        f"acme/clock: {WRONG_LISTING}",
        SUMMARY,
        INTERVALS,
        f"{NO_URL} 'ftp://x'.",
        "acme/clock: version 1.10.0: permissions must be an array of at most 100 strings of at most"
        " 100 characters, not [null].",
        "acme/notes: version 1.9.0: an import would store another precedence.",
    ]
    assert index.startswith("The search index does not match the widgets: ")
    assert warning == f"Warning: {ANY_RANGE}"
    assert (result.exit_code, result.stderr) == (1, f"Error: 8 findings in {catalog}.\n")


def test_finding_is_one_line_without_control_characters(catalog: Path) -> None:
    rename = "UPDATE widget SET name = 'a' || char(10, 27) || '[2J' WHERE id = 2"
    damage(catalog, "DROP TRIGGER widget_renamed", rename)
    (line,) = run_on(catalog, "check").stdout.splitlines()
    assert line.isprintable()


UNREADABLE = {
    "no JSON": ("network", "The file is damaged: CHECK constraint failed in version."),
    "nested too deep to read": ("[" * 1500 + "]" * 1500, "acme/clock: maximum recursion depth"),
}


@pytest.mark.parametrize(("permissions", "finding"), UNREADABLE.values(), ids=UNREADABLE)
def test_permissions_that_cannot_be_parsed_are_reported(
    catalog: Path, permissions: str, finding: str
) -> None:
    damage(catalog, f"UPDATE version SET permissions = '{permissions}' WHERE id = 2")
    result = run_on(catalog, "check")
    assert finding in result.stdout
    assert isinstance(result.exception, SystemExit)


def test_check_changes_nothing(catalog: Path) -> None:
    damage(catalog, "DELETE FROM listing", INDEX_FAULTS["emptied"])
    before = catalog.read_bytes()
    assert run_on(catalog, "check").exit_code == 1
    assert catalog.read_bytes() == before


def test_text_that_is_not_utf_8_is_a_finding(catalog: Path) -> None:
    damage(catalog, "UPDATE widget SET description = CAST(x'ff41' AS TEXT) WHERE id = 1")
    result = run_on(catalog, "check")
    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, "UTF-8" in result.stdout) == (1, True)
