"""What all commands share: help, silence, where they speak, how they refuse and how they wait."""

import json
import os
import pty
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from builders import document, version
from click.testing import Result
from conftest import ROOT
from flask import Flask

from app import create_app

AppWith = Callable[..., Flask]
# A line for each command that succeeds on the catalog below, in the directory of its files.
LINES = {
    "init": "init",
    "publish": "publish clock.json clock.js --bundle-url https://cdn.example.com/clock.js",
    "yank": "yank acme/clock@1.0.0",
    "unyank": "unyank acme/clock@2.0.0",
    "deprecate": "deprecate acme/clock@1.0.0 'Please update.'",
    "undeprecate": "undeprecate acme/clock@2.0.0",
    "unlist": "unlist acme/clock",
    "relist": "relist acme/clock",
    "official": "official acme/clock",
    "unofficial": "unofficial acme/clock",
    "describe": "describe acme/clock --icon mdi:bell",
    "delete": "delete acme/clock --yes",
    "list": "list clock",
    "show": "show acme/clock",
    "import": "import more.jsonl",
    "export": "export",
    "check": "check",
    "backup": "backup copy.db",
    "restore": "restore older.db --yes",
    "gc": "gc",
    "pack": "pack all.pack",
    "unpack": "unpack older.pack --yes",
}
ELSEWHERE = ("mirror", "serve")  # need a network; test_mirror.py and test_server.py have them
WITH_DATA = {"list", "show", "export"}
WITHOUT_NEWS = {"show", "export"}
BYTE = "\udcff"  # what Python makes of an argument's byte 0xFF, which no UTF-8 text has


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the lines above read, in the current directory."""
    monkeypatch.chdir(tmp_path)
    names = {"scope": "acme", "name": "clock", "version": "3.0.0", "sdkVersion": "*"}
    Path("clock.json").write_text(json.dumps(names), encoding="utf-8")
    Path("clock.js").touch()
    Path("more.jsonl").write_text(json.dumps(document("acme/notes")), encoding="utf-8")


@pytest.fixture
def app(app_with: AppWith, files: None) -> Flask:
    """The catalog that the lines above succeed on, with a backup and a pack of it."""
    later = version("2.0.0", yanked=True, deprecationMessage="Old.")
    made = app_with(document("acme/clock", version(), later))
    assert run(made, "backup older.db").exit_code == 0
    assert run(made, "pack older.pack").exit_code == 0
    return made


def run(app: Flask, line: str) -> Result:
    return app.test_cli_runner().invoke(args=shlex.split(line))


def process(database: Path, line: str, **keywords: object) -> "subprocess.Popen[str]":
    """The line as a real process, its words as bytes wherever they are no text."""
    return subprocess.Popen(
        [sys.executable, "-m", "flask", *map(os.fsencode, shlex.split(line))],
        env={**os.environ, "FLASK_APP": str(ROOT / "app.py"), "CATALOG_DATABASE": str(database)},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords},
    )


def exported(app: Flask) -> str:
    return run(app, "export").stdout


def test_the_lines_are_of_every_command() -> None:
    assert {*LINES, *ELSEWHERE} == set(create_app().cli.commands)


@pytest.mark.parametrize("name", [*LINES, *ELSEWHERE])
def test_help_says_what_the_command_does(name: str) -> None:
    result = create_app().test_cli_runner().invoke(args=[name, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    usage, summary = result.stdout.split("\n\n")[:2]
    assert re.match(rf"Usage: \S+ {name} \[OPTIONS\]", usage)
    assert re.fullmatch(r"  [A-Z].{5,60}\.", summary)
    assert "-q, --quiet" in result.stdout


@pytest.mark.parametrize("name", LINES)
def test_only_data_is_on_standard_output_and_quiet_leaves_nothing_else(
    app: Flask, name: str
) -> None:
    said = run(app, LINES[name])
    run(app, "restore older.db --yes")
    quiet = run(app, f"{LINES[name]} --quiet")
    assert (said.exit_code, quiet.exit_code) == (0, 0)
    assert bool(said.stdout) is bool(quiet.stdout) is (name in WITH_DATA)
    assert bool(said.stderr) is (name not in WITHOUT_NEWS)
    assert quiet.stderr == ""


def test_quiet_leaves_errors(app: Flask) -> None:
    result = run(app, "unlist -q acme/klock")
    assert (result.exit_code, result.stderr) == (1, "Error: There is no widget acme/klock.\n")


@pytest.mark.parametrize("name", [*LINES, *ELSEWHERE])
def test_unknown_option_is_wrong_usage(name: str) -> None:
    result = run(create_app(), f"{LINES.get(name, name)} --loud")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.match(rf"Usage: \S+ {name} (.|\n)*\nError: No such option", result.stderr)


NEEDY = [*(name for name in LINES if name not in ("init", "restore", "unpack")), "serve"]


@pytest.mark.parametrize("name", NEEDY)
def test_missing_database_is_one_sentence_and_is_not_made(files: None, name: str) -> None:
    result = run(create_app({"DATABASE": "none.db"}), LINES.get(name, name))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: none.db does not exist. Create it with: flask init\n"
    assert not Path("none.db").exists()
    assert not Path("copy.db").exists()


@pytest.mark.parametrize("name", ["init", *NEEDY])
def test_database_that_is_another_file_is_one_sentence(files: None, name: str) -> None:
    Path("other.db").write_bytes(b"not a database, " * 100)
    result = run(create_app({"DATABASE": "other.db"}), LINES.get(name, name))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: other.db cannot be opened: file is not a database.\n"
    assert Path("other.db").read_bytes() == b"not a database, " * 100


ODD_BYTES = {
    f"list {BYTE}": (2, "is not a string of Unicode text without NUL."),
    f"list --scope {BYTE}": (2, "is not a string of Unicode text without NUL."),
    f"show acme/{BYTE}": (2, r"'acme/\udcff' is not of the form scope/name."),
    f"yank acme/clock@{BYTE}": (1, r"'\udcff' is not a version such as 1.4.0."),
    f"deprecate acme/clock@{BYTE} x": (1, "is neither a version nor a range of versions."),
    f"yank acme/clock@1.0.0 --reason {BYTE}": (2, "is not a string of Unicode text without NUL."),
    f"deprecate acme/clock@1.0.0 {BYTE}": (2, "is not a string of Unicode text without NUL."),
    f"describe acme/clock --icon {BYTE}": (2, "is not a string of Unicode text without NUL."),
    f"import {BYTE}.jsonl": (2, "No such file or directory"),
    f"backup {BYTE}.db": (0, f"to {BYTE}.db."),
    f"export {BYTE}.jsonl": (0, ""),
}


@pytest.mark.parametrize(("line", "answer"), ODD_BYTES.items(), ids=map(ascii, ODD_BYTES))
def test_bytes_that_are_no_text_are_taken_or_refused_in_a_sentence(
    app: Flask, line: str, answer: tuple[int, str]
) -> None:
    before = exported(app)
    result = run(app, line)
    assert isinstance(result.exception, SystemExit | None), result.exception
    code, told = answer
    assert result.exit_code == code
    assert result.stderr.rstrip("\n").endswith(told.replace(BYTE, r"\udcff"))
    assert exported(app) == before


def test_process_takes_names_of_files_in_any_bytes(app: Flask, tmp_path: Path) -> None:
    Path("older.db").rename(f"older{BYTE}.db")
    with process(tmp_path / f"{BYTE}.db", f"restore older{BYTE}.db") as done:
        told = done.stderr.read()
    assert (done.returncode, told) == (
        0,
        f"Restored {tmp_path}/\\xff.db from older\\udcff.db.\n",
    )
    assert (tmp_path / f"{BYTE}.db").exists()


def at_terminal(app: Flask, line: str, **settings: str) -> str:
    """What a terminal shows when a real process has it for both outputs."""
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "CATALOG_DATABASE": str(app.config["DATABASE"]), **settings}
    command = [sys.executable, "-m", "flask", *shlex.split(line)]
    shown = b""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=its_end, stderr=its_end):
        os.close(its_end)
        with suppress(OSError), open(terminal, "rb", buffering=0) as screen:
            while read := screen.read(4096):
                shown += read
    return shown.decode()


def test_terminal_gets_no_colour_with_no_color(app: Flask) -> None:
    shown = at_terminal(app, "list", NO_COLOR="1", TERM="xterm-256color")
    assert "acme/clock" in shown
    assert "\x1b" not in shown


def test_busy_database_is_waited_for_with_a_word(app: Flask) -> None:
    before = exported(app)
    database = app.config["DATABASE"]
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        waiting = process(database, "unlist acme/clock")
        first = waiting.stderr.readline()
        meanwhile = exported(app)
        holder.execute("ROLLBACK")
        with waiting:
            rest = waiting.stderr.read()
    assert (first, rest) == ("The database is busy; waiting.\n", "acme/clock is unlisted.\n")
    assert waiting.returncode == 0
    assert meanwhile == before
    assert json.loads(exported(app))["widget"]["listed"] is False


@pytest.mark.parametrize("line", ["list", "show acme/clock", "export", "backup copy.db"])
def test_reading_does_not_wait_for_a_writer(app: Flask, line: str) -> None:
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        holder.execute("DELETE FROM widget")
        result = run(app, line)
    assert result.exit_code == 0
    assert "busy" not in result.stderr


CLOSED = {
    "delete acme/clock <&-": (1, "Standard input is not a terminal; use --yes to confirm.\n"),
    "import more.jsonl 2>&-": (0, ""),
    "list >&-": (0, "1 widget.\n"),
}


@pytest.mark.parametrize(("line", "answer"), CLOSED.items(), ids=CLOSED)
def test_closed_input_or_output_is_no_reason_to_fall_over(
    app: Flask, line: str, answer: tuple[int, str]
) -> None:
    environment = {"FLASK_APP": str(ROOT / "app.py"), "CATALOG_DATABASE": app.config["DATABASE"]}
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m flask {line}', sys.executable],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr.splitlines(keepends=True)[1:]) == (answer[0], [])
    assert done.stderr.endswith(answer[1])
    assert len(exported(app).splitlines()) == (2 if line.startswith("import") else 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_disk_under_standard_output_is_a_sentence(app: Flask) -> None:
    with open("/dev/full", "w") as full:
        done = process(app.config["DATABASE"], "list", stdout=full)
    with done:
        told = done.stderr.read()
    assert done.returncode == 1
    assert re.fullmatch(r"Error: (?!None).*No space left on device\.\n", told)


def test_output_that_knows_few_scripts_gets_escapes(app_with: Callable[..., Flask]) -> None:
    app = app_with(document("acme/tenki", displayName="天気"))
    listed = subprocess.run(
        [sys.executable, "-m", "flask", "list"],
        cwd=ROOT,
        env={
            **os.environ,
            "CATALOG_DATABASE": str(app.config["DATABASE"]),
            "PYTHONIOENCODING": "latin-1",
        },
        capture_output=True,
        timeout=30,
    )
    assert (listed.returncode, listed.stderr) == (0, b"1 widget.\n")
    assert b"\\u5929\\u6c17" in listed.stdout
