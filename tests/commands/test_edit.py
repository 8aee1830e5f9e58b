"""Commands that change a widget or version, from yank to delete: their output and errors.

What they change is compared with a model in tests/store/test_write_sequences.py.
"""

import json
import os
import pty
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from builders import Json, document, version
from conftest import error_message, exported, run, run_line, start_command, usage_message
from flask import Flask

AppWith = Callable[..., Flask]
LATEST = "The latest version of acme/clock is now"
SEARCH = "v1/widgets/search?scope=acme"
DETAIL = "v1/widgets/acme/clock"
# In the order of publication, which is not the order of the numbers.
NUMBERS = ["1.0.0", "1.0.0+b", "2.0.0-rc.1", "2.0.0", "1.1.0"]
CLOCK = document(
    "acme/clock",
    *(version(n, publishedAt=f"202{i}-01-01T00:00:00.000Z") for i, n in enumerate(NUMBERS)),
    description="Tells the time",
    icon="mdi:clock",
    downloadCount=7,
)


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(CLOCK, document("acme/notes"))


def status_lines(app: Flask, line: str) -> list[str]:
    """Return the lines on standard error of a command that must succeed and print no data."""
    result = run_line(app, line)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return result.stderr.splitlines()


def failure(app: Flask, line: str) -> str:
    """Return the error message of a command that must fail and change nothing."""
    before = exported(app)
    message = error_message(run_line(app, line))
    assert exported(app) == before
    return message


def documents(app: Flask) -> list[Json]:
    return [json.loads(line) for line in exported(app).splitlines()]


def get(app: Flask, path: str) -> Json:
    return app.test_client().get(f"/api/{path}").get_json()


def field(app: Flask, key: str) -> dict[str, object]:
    """Return one field of every version of the clock."""
    return {entry["version"]: entry[key] for entry in get(app, DETAIL)["versions"]}


def yanked(app: Flask) -> set[str]:
    return {number for number, is_yanked in field(app, "yanked").items() if is_yanked}


def test_yank_and_unyank_move_the_latest_version(app: Flask) -> None:
    for number, then in [("1.1.0", "2.0.0"), ("2.0.0", "2.0.0-rc.1")]:
        status = status_lines(app, f"yank acme/clock@{number}")
        assert status[:2] == [f"Yanked acme/clock@{number}.", f"{LATEST} {then}."]
        assert get(app, DETAIL)["latestVersion"] == then
    status = status_lines(app, "unyank acme/clock@1.1.0")
    assert status == ["Unyanked acme/clock@1.1.0.", f"{LATEST} 1.1.0."]
    assert get(app, SEARCH)["widgets"][0]["latestVersion"]["version"] == "1.1.0"
    assert yanked(app) == {"2.0.0"}


RANGES = {
    "acme/clock@1.0.0": {"1.0.0"},
    "acme/clock@1.0.0+b": {"1.0.0+b"},
    "'acme/clock@<2.0.0'": {"1.0.0", "1.0.0+b", "1.1.0"},
    "'acme/clock@>=2.0.0-rc.0'": {"2.0.0-rc.1", "2.0.0"},
    "acme/clock@*": {"1.0.0", "1.0.0+b", "1.1.0", "2.0.0"},
    "'acme/clock@1.0.x || 2.0.0'": {"1.0.0", "1.0.0+b", "2.0.0"},
    "acme/clock@2.0.0 acme/clock@~1.1 acme/clock@^1.1": {"1.1.0", "2.0.0"},
}


@pytest.mark.parametrize(("targets", "numbers"), RANGES.items(), ids=RANGES)
def test_versions_and_ranges_are_deprecated_and_yanked(
    app: Flask, targets: str, numbers: set[str]
) -> None:
    status = status_lines(app, f"deprecate {targets} --message 'Please update.'")
    assert sorted(status) == sorted(f"Deprecated acme/clock@{number}." for number in numbers)
    assert field(app, "deprecationMessage") == {
        number: "Please update." if number in numbers else None for number in reversed(NUMBERS)
    }
    assert len(status_lines(app, f"undeprecate {targets}")) == len(numbers)
    assert set(field(app, "deprecationMessage").values()) == {None}
    status_lines(app, f"yank {targets} --reason Broken.")
    assert yanked(app) == numbers
    assert set(field(app, "yankedReason").values()) == {"Broken.", None}
    status_lines(app, f"unyank {targets}")
    assert yanked(app) == set()


def test_a_prerelease_that_becomes_the_latest_version_is_named(app: Flask) -> None:
    line = "yank acme/clock@1.1.0 acme/clock@2.0.0"
    assert status_lines(app, f"{line} --dry-run")[-2:] == [
        "The latest version of acme/clock would be 2.0.0-rc.1.",
        "It is a prerelease; clients that send stable=true would get 1.0.0+b.",
    ]
    stable = "It is a prerelease; clients that send stable=true get"
    assert status_lines(app, line)[-2:] == [f"{LATEST} 2.0.0-rc.1.", f"{stable} 1.0.0+b."]
    # Its latest version stays the same.
    assert status_lines(app, "yank acme/clock@1.0.0") == ["Yanked acme/clock@1.0.0."]
    status_lines(app, "unyank acme/clock@2.0.0")
    status_lines(app, "yank acme/clock@1.0.0+b")
    assert status_lines(app, "delete acme/clock@2.0.0 --yes")[-1] == f"{stable} no version."


DRY_RUNS = {
    "yank acme/clock@1.1.0 acme/clock@1.0.0": [
        "Would yank acme/clock@1.1.0.",
        "acme/clock@1.0.0 is already yanked.",
        "The latest version of acme/clock would be 2.0.0.",
    ],
    "yank 'acme/clock@>=2.0.0'": ["Would yank acme/clock@2.0.0."],
    "unyank acme/clock@1.0.0 acme/clock@2.0.0": [
        "Would unyank acme/clock@1.0.0.",
        "acme/clock@2.0.0 is not yanked.",
    ],
    "deprecate acme/clock@1.1.0 acme/clock@2.0.0 --message Old.": [
        "Would deprecate acme/clock@1.1.0.",
        "acme/clock@2.0.0 already has this warning.",
    ],
    "undeprecate acme/clock@2.0.0 acme/clock@1.1.0": [
        "Would undeprecate acme/clock@2.0.0.",
        "acme/clock@1.1.0 has no warning.",
    ],
}


@pytest.mark.parametrize(("line", "status"), DRY_RUNS.items(), ids=DRY_RUNS)
def test_dry_run_prints_what_would_change_and_changes_nothing(
    app: Flask, line: str, status: list[str]
) -> None:
    status_lines(app, "yank acme/clock@1.0.0")
    status_lines(app, "deprecate acme/clock@2.0.0 --message Old.")
    before = documents(app)
    assert status_lines(app, f"{line} --dry-run") == status
    assert documents(app) == before


UNDONE_BY = {"yank {}": "unyank {}", "deprecate {} --message Old.": "undeprecate {}"}


@pytest.mark.parametrize(("line", "undo"), UNDONE_BY.items(), ids=UNDONE_BY)
def test_versions_change_in_one_transaction(app: Flask, line: str, undo: str) -> None:
    targets = "acme/clock@1.0.0 acme/clock@1.1.0 acme/clock@2.0.0"
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as connection:
        for each in (line, undo):
            # The last of the versions cannot be written.
            connection.execute(
                "CREATE TRIGGER refuse BEFORE UPDATE ON version WHEN new.version LIKE '2.%' "
                "BEGIN SELECT raise(ABORT, 'refused'); END"
            )
            assert failure(app, each.format(targets)) == f"{app.config['DATABASE']}: refused."
            connection.execute("DROP TRIGGER refuse")
            status_lines(app, each.format(targets))


def test_delete_removes_one_version_and_prints_the_latest(app: Flask) -> None:
    status = status_lines(app, "delete acme/clock@1.1.0 --yes")
    assert (status[0], status[-1]) == ("Deleted acme/clock@1.1.0.", f"{LATEST} 2.0.0.")
    assert list(field(app, "version")) == ["2.0.0", "2.0.0-rc.1", "1.0.0+b", "1.0.0"]


@pytest.mark.parametrize("target", ["acme/clock", "acme/clock@1.1.0"])
def test_delete_without_a_terminal_is_an_error(app: Flask, target: str) -> None:
    message = failure(app, f"delete {target}")
    assert message.startswith(f"Delete {target}")
    assert message.endswith(" Standard input is not a terminal; use --yes to confirm.")


def test_delete_does_not_ask_about_what_is_missing(app: Flask) -> None:
    assert failure(app, "delete acme/clock@9.9.9") == "There is no version acme/clock@9.9.9."


REPEATED = {
    "yank acme/clock@1.1.0 --reason Bad": "acme/clock@1.1.0 is already yanked.",
    "unyank acme/clock@1.1.0": "acme/clock@1.1.0 is not yanked.",
    "deprecate acme/clock@1.1.0 --message Old": "acme/clock@1.1.0 already has this warning.",
    "undeprecate acme/clock@1.1.0": "acme/clock@1.1.0 has no warning.",
    "unlist acme/clock": "Nothing to change: acme/clock is unlisted.",
    "relist acme/clock": "Nothing to change: acme/clock is listed.",
    "official acme/clock": "Nothing to change: acme/clock is official.",
    "official --off acme/clock": "Nothing to change: acme/clock is not official.",
    "describe acme/clock --icon x": "Nothing to change.",
}


@pytest.mark.parametrize(("line", "status"), REPEATED.items(), ids=REPEATED)
def test_repeated_command_prints_so_and_changes_nothing(app: Flask, line: str, status: str) -> None:
    status_lines(app, line)
    before = documents(app)
    assert status_lines(app, line)[0] == status
    assert documents(app) == before


VERSION_COMMANDS = [
    "yank {}",
    "unyank {}",
    "deprecate {} --message Old",
    "undeprecate {}",
    "delete {} --yes",
]
WIDGET_COMMANDS = [
    "unlist {}",
    "relist {}",
    "official {}",
    "official {} --off",
    "describe {} --icon x",
]


@pytest.mark.parametrize("line", [*WIDGET_COMMANDS, "delete {} --yes"])
def test_missing_widget_is_an_error_that_names_it(app: Flask, line: str) -> None:
    message = failure(app, line.format("acme/klock"))
    assert message == "There is no widget acme/klock. Did you mean acme/clock?"


@pytest.mark.parametrize("line", VERSION_COMMANDS)
def test_missing_version_is_an_error_that_names_it(app: Flask, line: str) -> None:
    message = failure(app, line.format("acme/clock@3.0.0"))
    assert message == "There is no version acme/clock@3.0.0."
    assert failure(app, line.format("acme/other@3.0.0")) == "There is no widget acme/other."


ERRORS = {
    "deprecate 'acme/clock@>2.0.0' --message x": "There is no version acme/clock@>2.0.0.",
    "undeprecate acme/notes@*": "There is no version acme/notes@*.",
    "deprecate acme/clock@* acme/clock@9.0.0 --message x": "There is no version acme/clock@9.0.0.",
    "yank 'acme/clock@>2.0.0'": "There is no version acme/clock@>2.0.0.",
    "yank acme/clock@1.1.0 acme/clock@9.0.0": "There is no version acme/clock@9.0.0.",
}


@pytest.mark.parametrize(("line", "message"), ERRORS.items(), ids=ERRORS)
def test_missing_target_changes_nothing(app: Flask, line: str, message: str) -> None:
    assert failure(app, line) == message


NEITHER = "is neither a version nor a range of versions."
WRONG_USAGE = {
    "yank acme/clock@": f"is not of the form scope/name@version: '' {NEITHER}",
    "unyank acme/clock@soon": f"is not of the form scope/name@version: 'soon' {NEITHER}",
    "deprecate acme/clock@soon --message x": f"'soon' {NEITHER}",
    "deprecate acme/clock@* --message ''": (
        "The message is empty. To remove a warning, use undeprecate."
    ),
    "deprecate acme/clock@1.0.0 --replaced-by acme/clock": (
        "acme/clock cannot be replaced by itself."
    ),
    "show acme": "'acme' is not of the form scope/name or scope/name@version.",
    "show acme/clock@": f"'' {NEITHER}",
    "show acme/clock@soon": f"'soon' {NEITHER}",
    "delete acme/clock@1.x --yes": "'1.x' is not a version such as 1.4.0.",
    "delete acme/clock@ --yes": "'' is not a version such as 1.4.0.",
    "describe acme/clock --display-name '' --icon x": "The display name must not be empty.",
    "check --server https://widgets.example": "check does not support --server.",
}


@pytest.mark.parametrize(("line", "message"), WRONG_USAGE.items(), ids=WRONG_USAGE)
def test_wrong_usage_exits_with_status_2_and_changes_nothing(
    app: Flask, line: str, message: str
) -> None:
    before = exported(app)
    assert usage_message(run_line(app, line)).endswith(message)
    assert exported(app) == before


def test_another_reason_or_warning_is_an_update(app: Flask) -> None:
    status_lines(app, "yank acme/clock@1.1.0 --reason Slow")
    status_lines(app, "deprecate acme/clock@2.0.0 --message First")
    would = status_lines(app, "yank acme/clock@1.1.0 --reason Broken --dry-run")
    assert would == ["Would update the reason of acme/clock@1.1.0."]
    updated = status_lines(app, "yank acme/clock@1.1.0 --reason Broken")
    assert updated == ["Updated the reason of acme/clock@1.1.0."]
    assert status_lines(app, "deprecate acme/clock@2.0.0 --message Second") == [
        "Updated the warning of acme/clock@2.0.0."
    ]
    assert status_lines(app, "unyank acme/clock@1.1.0")[0] == "Unyanked acme/clock@1.1.0."


@pytest.mark.parametrize("path", ["acme/a@b", "a@b/clock", "@acme/clock", "acme/@clock", "acme/a@"])
def test_names_may_contain_an_at_sign(app_with: AppWith, path: str) -> None:
    app = app_with(document(path, version(), version("2.0.0")))
    assert status_lines(app, f"yank {path}@1.0.0")[0] == f"Yanked {path}@1.0.0."
    assert status_lines(app, f"unlist {path}") == [f"{path} is unlisted."]
    assert status_lines(app, f"delete {path}@1.0.0 --yes")[0] == f"Deleted {path}@1.0.0."
    assert status_lines(app, f"delete {path} --yes")[0] == f"Deleted {path}."
    assert documents(app) == []


@contextmanager
def start_at_terminal(app: Flask, line: str) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Start a command whose standard input is a terminal; yield the other end and the process."""
    terminal, process_end = pty.openpty()
    arguments = (app.config["DATABASE"], *shlex.split(line))
    with start_command(*arguments, stdin=process_end, text=False) as process:
        os.close(process_end)
        try:
            yield terminal, process
        finally:
            # If the test has failed, the process may still wait for input.
            process.kill()
            os.close(terminal)


@pytest.mark.parametrize(
    ("reply", "code", "status", "widgets"),
    [(b"y\n", 0, "Deleted acme/clock.", 1), (b"n\n", 1, "Error: Nothing was changed.", 2)],
    ids=["yes", "no"],
)
def test_delete_asks_at_a_terminal(
    app: Flask, reply: bytes, code: int, status: str, widgets: int
) -> None:
    with start_at_terminal(app, "delete acme/clock") as (terminal, process):
        os.write(terminal, reply)
        output, errors = process.communicate(timeout=30)
    question = "Delete acme/clock, its versions and its install count permanently? [y/N]: "
    assert (process.returncode, output) == (code, b"")
    assert errors.decode().startswith(f"{question}{status}\n")
    assert len(documents(app)) == widgets


def test_delete_does_not_remove_a_widget_added_while_it_asks(
    app_with: AppWith, tmp_path: Path
) -> None:
    app = app_with(document("acme/clock"))
    (tmp_path / "notes.jsonl").write_text(json.dumps(document("acme/notes")), encoding="utf-8")
    with start_at_terminal(app, "delete acme/clock") as (terminal, process):
        question = b""
        while not question.endswith(b"[y/N]: "):
            question += process.stderr.read(1) or b"[y/N]: "
        # SQLite may give the new widget the row id of the deleted one.
        status_lines(app, "delete acme/clock --yes")
        status_lines(app, f"import {tmp_path / 'notes.jsonl'}")
        os.write(terminal, b"y\n")
        process.communicate(timeout=30)
    assert [line["widget"]["name"] for line in documents(app)] == ["notes"]


def test_describe_keeps_a_change_made_while_it_waits(app: Flask) -> None:
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with start_at_terminal(app, "describe acme/clock --icon mdi:bell") as (_, process):
            assert process.stderr.readline() == b"The database is busy; waiting.\n"
            other.execute("UPDATE widget SET description = 'Bells' WHERE name = 'clock'")
            other.execute("COMMIT")
            process.communicate(timeout=30)
    widget = get(app, DETAIL)["widget"]
    assert (widget["icon"], widget["description"]) == ("mdi:bell", "Bells")


USAGE_ERRORS = {
    "deprecate acme/clock@1.0.0": "Specify --message, --replaced-by or both.",
    "deprecate --message Old.": "Missing argument 'VERSION...'.",
    "deprecate acme/clock@1.0.0 Old.": "Invalid value for 'VERSION...': 'Old.' is not of the form "
    "scope/name@version.",
    "deprecate acme/clock --message Old.": "Invalid value for 'VERSION...': 'acme/clock' is not of "
    "the form scope/name@version; for all releases, use acme/clock@*.",
    "yank acme/clock": "Invalid value for 'VERSION...': 'acme/clock' is not of the form "
    "scope/name@version; for all releases, use acme/clock@*.",
    "yank clock": "Invalid value for 'VERSION...': 'clock' is not of the form scope/name@version.",
    "describe acme/clock": "Specify at least one option.",
    **{
        f"{command} {name}": f"Invalid value for 'WIDGET': '{name}' is not of the form scope/name."
        for command in ("unlist", "relist", "official")
        for name in ("acme/clock@1.1.0", "acme/", "a/b/c")
    },
}


@pytest.mark.parametrize(("line", "message"), USAGE_ERRORS.items(), ids=USAGE_ERRORS)
def test_wrong_usage_says_what_is_missing(app: Flask, line: str, message: str) -> None:
    before = documents(app)
    result = run_line(app, line)
    assert (result.exit_code, documents(app)) == (2, before)
    assert result.stderr.endswith(f"\nError: {message}\n")


@pytest.mark.parametrize("message", ["Use acme/clock@2.0.0", "N/A", "and/or", "Mail a@1.0.0"])
def test_message_may_mention_a_version(app: Flask, message: str) -> None:
    status_lines(app, f"deprecate acme/clock@1.0.0 --message '{message}'")
    assert field(app, "deprecationMessage")["1.0.0"] == message


def test_a_warning_that_makes_a_widget_too_large_is_refused(app_with: AppWith) -> None:
    notes = "x" * 5_700
    versions = [version(f"1.{number}.0", releaseNotes=notes) for number in range(1_700)]
    app = app_with(document("acme/clock", *versions))
    message = error_message(run(app, "deprecate", "acme/clock@*", "--message", "x" * 4_000))
    assert message.startswith("acme/clock is too large (1700 versions, 17")
    assert message.endswith("; at most 10000 versions and 16777216 bytes are allowed.")
    assert run(app, "deprecate", "acme/clock@1.1.0", "--message", "x" * 10_000).exit_code == 0


def test_many_ranges_of_a_widget_with_many_versions_are_refused(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", *(version(f"1.{n}.0") for n in range(1_000))))
    ranges = [f"acme/clock@>1.{number}.0" for number in range(60)]
    message = error_message(run(app, "yank", *ranges))
    assert message == "acme/clock has 1000 versions; name fewer than 60 ranges at once."
    assert run(app, "yank", *ranges[:2]).exit_code == 0
