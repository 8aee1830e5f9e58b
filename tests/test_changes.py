"""flask yank, deprecate, unlist, official, describe, delete: what each changes, and says."""

import json
import os
import pty
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import ROOT
from flask import Flask

from catalog.documents import check_document
from catalog.store import writes

AppWith = Callable[..., Flask]
LATEST = "The latest version of acme/clock is now"
SEARCH, REGISTRY = "v1/widgets/search?scope=acme", "widgets/acme/registry.json"
DETAIL = "v1/widgets/acme/clock"
# Not in the order of their numbers: the one published last comes last.
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


def run(app: Flask, line: str) -> Result:
    return app.test_cli_runner().invoke(args=shlex.split(line))


def said(app: Flask, line: str) -> list[str]:
    """What a command that succeeds tells the operator; no change has data to print."""
    result = run(app, line)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return result.stderr.splitlines()


def refusal(app: Flask, line: str) -> str:
    """The one sentence that a command refuses with; nothing has changed then."""
    before = stored(app)
    result = run(app, line)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout, stored(app)) == (1, "", before)
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("Error: ")
    return sentence.removeprefix("Error: ")


def stored(app: Flask) -> list[Json]:
    return [json.loads(line) for line in run(app, "export").stdout.splitlines()]


def get(app: Flask, path: str) -> Json:
    return app.test_client().get(f"/api/{path}").get_json()


def each(app: Flask, key: str) -> dict[str, object]:
    """One field of every version of the clock."""
    return {entry["version"]: entry[key] for entry in get(app, DETAIL)["versions"]}


def found(app: Flask, query: str) -> list[str]:
    return [widget["name"] for widget in get(app, f"v1/widgets/search?{query}")["widgets"]]


def test_yank_and_unyank_move_the_latest_version(app: Flask) -> None:
    for number, then in [("1.1.0", "2.0.0"), ("1.0.0", "2.0.0"), ("2.0.0", "2.0.0-rc.1")]:
        told = said(app, f"yank acme/clock@{number}")
        assert told == [f"Yanked acme/clock@{number}.", f"{LATEST} {then}."]
        assert get(app, DETAIL)["latestVersion"] == then
    told = said(app, "unyank acme/clock@1.1.0")
    assert told == ["Unyanked acme/clock@1.1.0.", f"{LATEST} 1.1.0."]
    assert get(app, SEARCH)["widgets"][0]["latestVersion"]["version"] == "1.1.0"
    assert {number for number, yanked in each(app, "yanked").items() if yanked} == {
        "1.0.0",
        "2.0.0",
    }


def test_yank_of_the_only_version_leaves_none(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version()))
    assert said(app, "yank acme/clock@1.0.0")[1] == f"{LATEST} none."
    assert get(app, DETAIL)["latestVersion"] is None
    assert get(app, SEARCH)["widgets"][0]["latestVersion"] is None


def test_reason_is_kept_until_another_is_given_and_goes_with_unyank(app: Flask) -> None:
    reasons = []
    for line in ("yank --reason Bröken", "yank", "yank --reason 'It is worse'", "unyank", "yank"):
        said(app, f"{line} acme/clock@1.1.0")
        reasons.append(each(app, "yankedReason")["1.1.0"])
    assert reasons == ["Bröken", "Bröken", "It is worse", None, None]


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
def test_deprecate_and_undeprecate_take_versions_and_ranges(
    app: Flask, targets: str, numbers: set[str]
) -> None:
    told = said(app, f"deprecate {targets} 'Please update.'")
    assert sorted(told) == sorted(f"Deprecated acme/clock@{number}." for number in numbers)
    assert each(app, "deprecationMessage") == {
        number: "Please update." if number in numbers else None for number in reversed(NUMBERS)
    }
    assert len(said(app, f"undeprecate {targets}")) == len(numbers)
    assert set(each(app, "deprecationMessage").values()) == {None}


def test_deprecate_changes_a_message_and_says_where_it_stands_already(app: Flask) -> None:
    said(app, "deprecate acme/clock@2.0.0 New.")
    said(app, "deprecate acme/clock@1.1.0 Old.")
    told = said(app, "deprecate 'acme/clock@>1.0.0' New.")
    assert set(told) == {
        "Deprecated acme/clock@1.1.0.",
        "acme/clock@2.0.0 already has this warning.",
    }
    assert each(app, "deprecationMessage")["1.1.0"] == "New."
    assert get(app, DETAIL)["latestVersion"] == "1.1.0"


def test_unlisted_widget_is_seen_again_with_all_it_had_after_relist(app: Flask) -> None:
    before, seen = stored(app), get(app, DETAIL)
    assert said(app, "unlist acme/clock") == ["acme/clock is unlisted."]
    assert get(app, DETAIL) == {"error": "There is no widget 'acme/clock'."}
    assert (found(app, "scope=acme"), found(app, "q=time")) == (["notes"], [])
    assert [widget["name"] for widget in get(app, REGISTRY)["widgets"]] == ["notes"]
    assert said(app, "relist acme/clock") == ["acme/clock is listed."]
    assert (stored(app), get(app, DETAIL), found(app, "q=time")) == (before, seen, ["clock"])


@pytest.mark.parametrize("known", [True, False, None])
@pytest.mark.parametrize("wanted", [True, False])
def test_official_and_unofficial_mark_a_widget(
    app_with: AppWith, wanted: bool, known: bool | None
) -> None:
    app = app_with(document("acme/clock", isOfficial=known))
    command, state = ("official", "is") if wanted else ("unofficial", "is not")
    already = " already" if known is wanted else ""
    assert said(app, f"{command} acme/clock") == [f"acme/clock {state} official{already}."]
    assert get(app, DETAIL)["widget"]["isOfficial"] is wanted
    assert found(app, f"official={json.dumps(wanted)}") == ["clock"]


def test_describe_changes_only_what_is_given(app: Flask) -> None:
    looks = {"displayName": "Clock", "description": "Tells the time", "icon": "mdi:clock"}
    for key, option, value in [
        ("displayName", "--display-name", "Ünï Tower"),
        ("description", "--description", "Bells\nand hands"),
        ("icon", "--icon", "mdi:bell"),
    ]:
        looks[key] = value
        told = said(app, f"describe acme/clock {option} '{value}'")
        assert told == ["acme/clock is described."]
        widget = get(app, DETAIL)["widget"]
        assert {name: widget[name] for name in looks} == looks
        assert set(each(app, key).values()) == {value}
    words = ("uni", "bells", "clock", "time")
    assert [found(app, f"q={word}") for word in words] == [["clock"], ["clock"], [], []]


def test_describe_with_nothing_in_quotes_removes_description_and_icon(app: Flask) -> None:
    said(app, "describe acme/clock --description '' --icon ''")
    widget = get(app, DETAIL)["widget"]
    assert (widget["displayName"], widget["description"], widget["icon"]) == ("Clock", None, None)
    assert found(app, "q=time") == []


def test_describe_leaves_the_looks_that_a_version_has_of_its_own(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version(displayName="Own"), version("2.0.0")))
    said(app, "describe acme/clock --display-name New")
    assert each(app, "displayName") == {"2.0.0": "New", "1.0.0": "Own"}


def test_delete_removes_one_version_and_shows_what_is_latest(app: Flask) -> None:
    told = said(app, "delete acme/clock@1.1.0 --yes")
    assert (told[0], told[-1]) == ("Deleted acme/clock@1.1.0.", f"{LATEST} 2.0.0.")
    assert list(each(app, "version")) == ["2.0.0", "2.0.0-rc.1", "1.0.0+b", "1.0.0"]


def test_delete_removes_a_widget_with_its_versions(app: Flask) -> None:
    assert said(app, "delete acme/clock --yes")[0] == "Deleted acme/clock."
    assert [each["widget"]["name"] for each in stored(app)] == ["notes"]
    assert (found(app, "q=time"), get(app, "stats")["versions"]) == ([], 0)
    assert run(app, "check").exit_code == 0


@pytest.mark.parametrize("target", ["acme/clock", "acme/clock@1.1.0"])
def test_delete_without_a_terminal_is_refused(app: Flask, target: str) -> None:
    told = refusal(app, f"delete {target}")
    assert told.startswith(f"Delete {target}")
    assert told.endswith(" Standard input is not a terminal; use --yes to confirm.")


REPEATED = {
    "yank acme/clock@1.1.0 --reason Bad": "acme/clock@1.1.0 is already yanked.",
    "unyank acme/clock@1.1.0": "acme/clock@1.1.0 is not yanked.",
    "deprecate acme/clock@1.1.0 Old": "acme/clock@1.1.0 already has this warning.",
    "undeprecate acme/clock@1.1.0": "acme/clock@1.1.0 has no warning.",
    "unlist acme/clock": "acme/clock is unlisted already.",
    "relist acme/clock": "acme/clock is listed already.",
    "describe acme/clock --icon x": "acme/clock is already described like this.",
}


@pytest.mark.parametrize(("line", "told"), REPEATED.items(), ids=REPEATED)
def test_nothing_to_do_is_said_and_changes_nothing(app: Flask, line: str, told: str) -> None:
    said(app, line)
    before = stored(app)
    assert said(app, line)[0] == told
    assert stored(app) == before


OF_VERSIONS = ["yank {}", "unyank {}", "deprecate {} Old", "undeprecate {}", "delete {} --yes"]
OF_WIDGETS = ["unlist {}", "relist {}", "official {}", "unofficial {}", "describe {} --icon x"]


@pytest.mark.parametrize("line", [*OF_WIDGETS, "delete {} --yes"])
def test_widget_that_is_missing_is_refused_by_its_name(app: Flask, line: str) -> None:
    assert refusal(app, line.format("acme/klock")) == "There is no widget acme/klock."


@pytest.mark.parametrize("line", OF_VERSIONS)
def test_version_that_is_missing_is_refused_by_its_name(app: Flask, line: str) -> None:
    told = refusal(app, line.format("acme/clock@3.0.0"))
    assert told == "There is no version acme/clock@3.0.0."
    assert refusal(app, line.format("acme/klock@3.0.0")) == "There is no widget acme/klock."


REFUSED = {
    "deprecate 'acme/clock@>2.0.0' x": "There is no version acme/clock@>2.0.0.",
    "undeprecate acme/notes@*": "There is no version acme/notes@*.",
    "deprecate acme/clock@* acme/clock@9.0.0 x": "There is no version acme/clock@9.0.0.",
    "deprecate acme/clock@soon x": "'soon' is neither a version nor a range of versions.",
    "deprecate acme/clock@* ''": "The message is empty; flask undeprecate removes a warning.",
    "yank 'acme/clock@<2.0.0'": "'<2.0.0' is not a version such as 1.4.0.",
    "delete acme/clock@1.x --yes": "'1.x' is not a version such as 1.4.0.",
    "delete acme/clock@ --yes": "'' is not a version such as 1.4.0.",
    "describe acme/clock --display-name '' --icon x": "The display name must not be empty.",
}


@pytest.mark.parametrize(("line", "told"), REFUSED.items(), ids=REFUSED)
def test_change_that_cannot_be_made_is_refused_whole(app: Flask, line: str, told: str) -> None:
    assert refusal(app, line) == told


MISUSED = [
    *("yank acme/clock", "unlist acme/clock@1.1.0", "official clock", "relist acme/"),
    *("unofficial a/b/c", "deprecate acme/clock@1.1.0", "describe acme/clock", "delete"),
    *("unyank acme/clock@1.1.0 acme/clock@2.0.0", "undeprecate acme/clock@1.1.0 --reason x"),
]


@pytest.mark.parametrize("line", MISUSED)
def test_wrong_usage_is_exit_code_2(app: Flask, line: str) -> None:
    before = stored(app)
    result = run(app, line)
    assert (result.exit_code, result.stdout, stored(app)) == (2, "", before)
    assert result.stderr.startswith("Usage: ")


@pytest.mark.parametrize("path", ["acme/a@b", "a@b/clock", "@acme/clock", "acme/@clock"])
def test_widget_with_an_at_sign_in_its_names_can_be_changed(app_with: AppWith, path: str) -> None:
    app = app_with(document(path, version(), version("2.0.0")))
    assert said(app, f"yank {path}@1.0.0")[0] == f"Yanked {path}@1.0.0."
    assert said(app, f"unlist {path}") == [f"{path} is unlisted."]
    assert said(app, f"delete {path}@1.0.0 --yes")[0] == f"Deleted {path}@1.0.0."
    assert said(app, f"delete {path} --yes")[0] == f"Deleted {path}."
    assert stored(app) == []


VISIBLE = ["yank acme/clock@1.1.0", "deprecate acme/clock@1.1.0 Old", "official acme/clock"]
VISIBLE += ["describe acme/clock --icon x", "delete acme/clock@1.1.0 --yes", "unlist acme/clock"]


@pytest.mark.parametrize("line", VISIBLE)
def test_change_is_in_every_answer_at_once_under_another_etag(app: Flask, line: str) -> None:
    client = app.test_client()
    known = {
        path: client.get(f"/api/{path}").headers["ETag"] for path in (SEARCH, DETAIL, REGISTRY)
    }
    said(app, line)
    again = [
        client.get(f"/api/{path}", headers={"If-None-Match": etag}).status_code
        for path, etag in known.items()
    ]
    assert again == [200, 404 if line.startswith("unlist") else 200, 200]


@contextmanager
def at_terminal(app: Flask, line: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A real process with a person's terminal for its input; what is written there it reads."""
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "flask", *shlex.split(line)],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(app.config["DATABASE"])},
        stdin=its_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(its_end)
        try:
            yield terminal, process
        finally:
            process.kill()  # a test that fails leaves no process to wait for
            os.close(terminal)


@pytest.mark.parametrize(
    ("answer", "code", "told", "left"),
    [(b"y\n", 0, "Deleted acme/clock.", 1), (b"n\n", 1, "Error: Nothing was changed.", 2)],
    ids=["yes", "no"],
)
def test_delete_asks_at_a_terminal(
    app: Flask, answer: bytes, code: int, told: str, left: int
) -> None:
    with at_terminal(app, "delete acme/clock") as (terminal, process):
        os.write(terminal, answer)
        output, errors = process.communicate(timeout=30)
    asked = "Delete acme/clock, its versions and its install count permanently? [y/N]: "
    assert (process.returncode, output) == (code, b"")
    assert errors.decode().startswith(f"{asked}{told}\n")
    assert len(stored(app)) == left


def test_delete_removes_nothing_that_came_to_the_catalog_before_the_answer(
    app_with: AppWith,
) -> None:
    app = app_with(document("acme/clock"))
    with at_terminal(app, "delete acme/clock") as (terminal, process):
        asked = b""
        while not asked.endswith(b"[y/N]: "):
            asked += process.stderr.read(1) or b"[y/N]: "
        # SQLite gives the new row the number of the one that is gone.
        said(app, "delete acme/clock --yes")
        app.extensions["database"].write(
            writes.put_document(check_document(document("acme/notes")))
        )
        os.write(terminal, b"y\n")
        process.communicate(timeout=30)
    assert [each["widget"]["name"] for each in stored(app)] == ["notes"]


def test_describe_keeps_what_another_process_set_while_it_waited(app: Flask) -> None:
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with at_terminal(app, "describe acme/clock --icon mdi:bell") as (_, process):
            assert process.stderr.readline() == b"The database is busy; waiting.\n"
            other.execute("UPDATE widget SET description = 'Bells' WHERE name = 'clock'")
            other.execute("COMMIT")
            process.communicate(timeout=30)
    widget = get(app, DETAIL)["widget"]
    assert (widget["icon"], widget["description"]) == ("mdi:bell", "Bells")


def test_forgotten_message_is_wrong_usage_and_no_warning(app: Flask) -> None:
    before = stored(app)
    result = run(app, "deprecate acme/clock@1.0.0 acme/clock@1.1.0")
    assert (result.exit_code, stored(app)) == (2, before)
    assert result.stderr.endswith("Error: The MESSAGE is missing at the end.\n")
