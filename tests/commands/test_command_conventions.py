"""Common to all commands: help, --quiet, output streams, errors, and waiting for a lock."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
from builders import document, version
from click.testing import CliRunner
from command_lines import LINES
from conftest import ROOT, create_catalog, exported, run_at_terminal, run_line, start_command
from flask import Flask

from app import create_app
from catalog.commands import COMMANDS

AppWith = Callable[..., Flask]
# They need a network: see test_mirror.py, test_server.py, test_health.py and test_cluster.py.
NETWORK_COMMANDS = ("mirror", "serve", "health", "cluster", "login", "logout", "whoami")
DATA_COMMANDS = {"list", "show", "outdated", "export", "token", "trust", "log"}
COMMANDS_WITHOUT_STATUS = {"show", "export", "log"}
# Python decodes the byte 0xFF, which is not valid UTF-8, in an argument to this.
BYTE = "\udcff"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a directory with the files that LINES read."""
    monkeypatch.chdir(tmp_path)
    names = {"scope": "acme", "name": "clock", "version": "3.0.0", "sdkVersion": "*"}
    Path("clock.json").write_text(json.dumps(names), encoding="utf-8")
    Path("clock.js").write_text("export default 1", encoding="utf-8")
    Path("installed.txt").write_text("acme/clock@2.0.0\n", encoding="utf-8")
    Path("more.jsonl").write_text(json.dumps(document("acme/notes")), encoding="utf-8")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the catalog for LINES, and with backups and a pack of it, to be copied."""
    folder = tmp_path_factory.mktemp("prepared")
    later = version("2.0.0", yanked=True, deprecationMessage="Old.")
    path = create_catalog(folder / "catalog.db", document("acme/clock", version(), later))
    app = create_app({"DATABASE": path})
    for line in ("backup {}/older.db", "pack {}/older.pack", "backup --dir {}/backups"):
        assert run_line(app, line.format(folder)).exit_code == 0
    app.extensions["database"].close()
    return folder


@pytest.fixture
def app(prepared: Path, tmp_path: Path, files: None) -> Iterator[Flask]:
    """The catalog for LINES, with backups and a pack of it."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    app = create_app({"DATABASE": tmp_path / "catalog.db"})
    yield app
    app.extensions["database"].close()


def test_lines_exist_for_every_command() -> None:
    assert {*LINES, *NETWORK_COMMANDS} == set(create_app().cli.commands)


@pytest.mark.parametrize("name", [*LINES, *NETWORK_COMMANDS])
def test_help_begins_with_a_short_summary(name: str) -> None:
    result = create_app().test_cli_runner().invoke(args=[name, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    usage, summary = result.stdout.split("\n\n")[:2]
    assert re.match(rf"Usage: \S+ {name} \[OPTIONS\]", usage)
    assert re.fullmatch(r"  [A-Z].{5,60}\.", summary)
    assert "-q, --quiet" in result.stdout


@pytest.mark.parametrize("name", LINES)
def test_standard_output_is_only_data_and_quiet_drops_the_rest(app: Flask, name: str) -> None:
    usual = run_line(app, LINES[name])
    run_line(app, "restore older.db --yes")
    quiet = run_line(app, f"{LINES[name]} --quiet")
    assert (usual.exit_code, quiet.exit_code) == (0, 0)
    assert bool(usual.stdout) is bool(quiet.stdout) is (name in DATA_COMMANDS)
    assert bool(usual.stderr) is (name not in COMMANDS_WITHOUT_STATUS)
    assert quiet.stderr == ""


def test_quiet_prints_errors(app: Flask) -> None:
    result = run_line(app, "unlist -q acme/klock")
    message = "There is no widget acme/klock. Did you mean acme/clock?"
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


@pytest.mark.parametrize("name", [*LINES, *NETWORK_COMMANDS])
def test_unknown_option_is_wrong_usage(name: str) -> None:
    result = run_line(create_app(), f"{LINES.get(name, name)} --loud")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.match(rf"Usage: \S+ {name} (.|\n)*\nError: No such option", result.stderr)


DATABASE_COMMANDS = [
    *(name for name in LINES if name not in ("init", "restore", "drill", "unpack")),
    "serve",
]


@pytest.mark.parametrize("name", DATABASE_COMMANDS)
def test_missing_database_is_an_error_and_is_not_created(files: None, name: str) -> None:
    result = run_line(create_app({"DATABASE": "none.db", "PORT": 0}), LINES.get(name, name))
    assert (result.exit_code, result.stdout) == (1, "")
    message = "none.db does not exist. Create it with: widget-catalog init"
    if getattr(COMMANDS[name], "remote", False):
        message += "; for the catalog of a service, use --server URL."
    assert result.stderr == f"Error: {message}\n"
    assert not Path("none.db").exists()
    assert not Path("copy.db").exists()


@pytest.mark.parametrize("name", ["init", *DATABASE_COMMANDS])
def test_file_that_is_not_a_database_is_an_error(files: None, name: str) -> None:
    Path("other.db").write_bytes(b"not a database, " * 100)
    result = run_line(create_app({"DATABASE": "other.db", "PORT": 0}), LINES.get(name, name))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: other.db cannot be opened: file is not a database.\n"
    assert Path("other.db").read_bytes() == b"not a database, " * 100


ODD_BYTES = {
    f"list {BYTE}": (2, "is not a Unicode string without NUL characters."),
    f"list --scope {BYTE}": (2, "printable characters without a slash, not . or ..."),
    f"show acme/{BYTE}": (2, r"'acme/\udcff' is not of the form scope/name or scope/name@version."),
    f"show acme/clock@{BYTE}": (2, f"'{BYTE}' is neither a version nor a range of versions."),
    f"delete acme/clock@{BYTE} --yes": (2, f"'{BYTE}' is not a version such as 1.4.0."),
    f"yank acme/clock@{BYTE}": (2, r"'\udcff' is neither a version nor a range of versions."),
    f"deprecate acme/clock@{BYTE} --message x": (
        2,
        "is neither a version nor a range of versions.",
    ),
    f"yank acme/clock@1.0.0 --reason {BYTE}": (
        2,
        "is not a Unicode string without NUL characters.",
    ),
    f"deprecate acme/clock@1.0.0 --message {BYTE}": (
        2,
        "is not a Unicode string without NUL characters.",
    ),
    f"describe acme/clock --icon {BYTE}": (2, "is not a Unicode string without NUL characters."),
    f"import {BYTE}.jsonl": (2, "No such file or directory"),
    f"backup {BYTE}.db": (0, f"to {BYTE}.db."),
    f"export {BYTE}.jsonl": (0, f"to {BYTE}.jsonl."),
}


@pytest.mark.parametrize(("line", "expected"), ODD_BYTES.items(), ids=map(ascii, ODD_BYTES))
def test_arguments_that_are_not_utf_8_never_cause_a_traceback(
    app: Flask, line: str, expected: tuple[int, str]
) -> None:
    before = exported(app)
    result = run_line(app, line)
    assert isinstance(result.exception, SystemExit | None), result.exception
    code, message = expected
    assert result.exit_code == code
    assert result.stderr.rstrip("\n").endswith(message.replace(BYTE, r"\udcff"))
    assert exported(app) == before


def test_file_names_may_be_any_bytes(app: Flask, tmp_path: Path) -> None:
    Path("older.db").rename(f"older{BYTE}.db")
    with start_command(tmp_path / f"{BYTE}.db", "restore", f"older{BYTE}.db") as process:
        status = process.stderr.read()
    assert process.returncode == 0
    assert status == f"Restored {tmp_path}/\\xff.db from older\\udcff.db.\n"
    assert (tmp_path / f"{BYTE}.db").exists()


def test_output_has_no_colours(app: Flask) -> None:
    output = run_at_terminal(app.config["DATABASE"], "list", TERM="xterm-256color")
    assert "acme/clock" in output
    assert "\x1b" not in output


def test_command_prints_that_it_waits_for_a_busy_database(app: Flask) -> None:
    before = exported(app)
    database = app.config["DATABASE"]
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        process = start_command(database, "unlist", "acme/clock")
        first = process.stderr.readline()
        meanwhile = exported(app)
        other.execute("ROLLBACK")
        with process:
            rest = process.stderr.read()
    assert (first, rest) == ("The database is busy; waiting.\n", "acme/clock is unlisted.\n")
    assert process.returncode == 0
    assert meanwhile == before
    assert json.loads(exported(app))["widget"]["listed"] is False


@pytest.mark.parametrize("line", ["list", "show acme/clock", "export", "backup copy.db"])
def test_reading_does_not_wait_for_a_writer(app: Flask, line: str) -> None:
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM widget")
        result = run_line(app, line)
    assert result.exit_code == 0
    assert "busy" not in result.stderr


CLOSED = {
    "delete acme/clock <&-": (1, "Standard input is not a terminal; use --yes to confirm.\n"),
    "import more.jsonl 2>&-": (0, ""),
    "list >&-": (0, "1 widget.\n"),
}


@pytest.mark.parametrize(("line", "expected"), CLOSED.items(), ids=CLOSED)
def test_closed_standard_streams_cause_no_traceback(
    app: Flask, line: str, expected: tuple[int, str]
) -> None:
    environment = {"FLASK_APP": str(ROOT / "app.py"), "CATALOG_DATABASE": app.config["DATABASE"]}
    result = subprocess.run(
        ["sh", "-c", f'exec "$0" -m flask {line}', sys.executable],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (result.returncode, result.stderr.splitlines()[1:]) == (expected[0], [])
    assert result.stderr.endswith(expected[1])
    assert len(exported(app).splitlines()) == (2 if line.startswith("import") else 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_disk_is_an_error(app: Flask) -> None:
    with open("/dev/full", "w") as full:
        process = start_command(app.config["DATABASE"], "list", stdout=full)
    with process:
        message = process.stderr.read()
    assert process.returncode == 1
    assert re.fullmatch(r"Error: (?!None).*No space left on device\.\n", message)


def test_characters_outside_the_output_encoding_are_escaped(app_with: AppWith) -> None:
    app = app_with(document("acme/tenki", displayName="天気"))
    settings = {"PYTHONIOENCODING": "latin-1"}
    with start_command(app.config["DATABASE"], "list", settings=settings, text=False) as process:
        output, status = process.communicate(timeout=30)
    assert (process.returncode, status) == (0, b"1 widget.\n")
    assert b"\\u5929\\u6c17" in output


def test_commands_also_run_in_another_click_group(app: Flask) -> None:
    group = click.Group("other", commands=COMMANDS)
    variables = {"CATALOG_DATABASE": str(app.config["DATABASE"])}
    result = CliRunner().invoke(group, ["unlist", "acme/clock"], env=variables)
    assert (result.exit_code, result.stderr) == (0, "acme/clock is unlisted.\n")
    assert json.loads(exported(app))["widget"]["listed"] is False
