"""widget-catalog: help, sections, --database, suggestions, completion, mistyped settings."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from builders import document, version
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result
from conftest import ROOT, create_catalog, start_command

from app import create_app
from catalog import __version__
from catalog.__main__ import cli

PROGRAM = (sys.executable, "-m", "catalog")
CLOCK = document(
    "acme/clock",
    version("1.0.0"),
    version("1.1.0", publishedAt="2025-02-02T03:04:05.000Z"),
    displayName="World Clock",
)
WEATHER = document("acme/weather", version())


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return create_catalog(tmp_path / "mine.db", CLOCK, WEATHER)


def run_program(database: Path, *arguments: str) -> Result:
    """Run widget-catalog in this process."""
    return CliRunner().invoke(cli, ["--database", str(database), *arguments])


def start_program(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m catalog` as a process."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=30,
    )


def complete(line: str, **settings: str) -> list[str]:
    """Return the words with which bash can continue the line."""
    words = {"COMP_WORDS": f"widget-catalog {line}", "COMP_CWORD": str(len(line.split(" ")))}
    result = start_program(_WIDGET_CATALOG_COMPLETE="bash_complete", **words, **settings)
    assert result.stderr == ""
    return re.findall("^plain,(.+)$", result.stdout, re.MULTILINE)


def test_help_needs_no_database_and_lists_every_command_in_a_section() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    sections = result.stdout.split("\n\n")[3:]
    titles = [section.splitlines()[0] for section in sections]
    named = [name for text in sections for name in re.findall(r"^  (\S+)  +\S", text, re.M)]
    assert (result.exit_code, result.stderr) == (0, "")
    assert titles == [
        "Options:",
        "Serve:",
        "Publish:",
        "Inspect:",
        "Maintain:",
        "Mirror:",
        "Access:",
        "Other:",
    ]
    commands = [name for name in named if not name.startswith("-")]
    listed = create_app().cli.commands.keys() - {"cluster", "migrate"}
    assert sorted(commands) == sorted([*listed, "completion"])


@pytest.mark.parametrize("rqlite", ["", "http://127.0.0.1:4001"])
def test_help_lists_the_commands_of_a_cluster_only_for_one(rqlite: str) -> None:
    result = start_program("--help", CATALOG_RQLITE=rqlite)
    named = set(re.findall(r"^  (\S+)  +\S", result.stdout, re.M))
    assert {"cluster", "migrate"} & named == ({"cluster", "migrate"} if rqlite else set())


@pytest.mark.parametrize("arguments", [["-h"], ["serve", "-h"]], ids=" ".join)
def test_h_prints_help(arguments: list[str]) -> None:
    # As a process: click keeps the help option of a command as it was when first used.
    result = start_program(*arguments)
    assert (result.returncode, "-h, --help" in result.stdout) == (0, True)


def test_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"widget-catalog {__version__}\n")


@pytest.mark.parametrize(
    "line",
    ["--database {0} -q list", "list --database {0} -q", "-q list --database {0}"],
)
def test_the_common_options_stand_before_or_after_the_command(database: Path, line: str) -> None:
    result = CliRunner().invoke(cli, line.format(database).split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert "acme/weather" in result.stdout


def test_every_command_takes_the_common_options(database: Path) -> None:
    for name, command in cli.commands.items():
        assert isinstance(command, click.Command)
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--server", "--ca", "--database", "--quiet"} <= options, name


def test_the_database_option_overrides_the_setting(database: Path, tmp_path: Path) -> None:
    other = create_catalog(tmp_path / "other.db")
    result = start_program("--database", str(database), "list", CATALOG_DATABASE=str(other))
    assert (result.returncode, result.stderr) == (0, "2 widgets.\n")


def test_an_unknown_command_suggests_a_known_one() -> None:
    result = CliRunner().invoke(cli, ["publsh"])
    assert result.exit_code == 2
    assert "No such command 'publsh'." in result.stderr
    assert "Did you mean 'publish'?" in result.stderr


@pytest.mark.parametrize("path", ["acme/clok", "acm/clock"])
def test_an_unknown_widget_suggests_the_nearest_one(database: Path, path: str) -> None:
    result = run_program(database, "show", path)
    message = f"Error: There is no widget {path}. Did you mean acme/clock?\n"
    assert (result.exit_code, result.stderr) == (1, message)


def test_an_unknown_widget_unlike_all_others_suggests_none(database: Path) -> None:
    result = run_program(database, "show", "acme/notes")
    assert result.stderr == "Error: There is no widget acme/notes.\n"


def test_an_invalid_setting_is_one_sentence() -> None:
    result = CliRunner().invoke(cli, ["list"], env={"CATALOG_PORT": "x"})
    message = "Error: CATALOG_PORT must be a whole number from 0 to 65535, not 'x'.\n"
    assert (result.exit_code, result.stderr) == (1, message)


def test_a_command_imports_neither_flask_nor_the_http_client_nor_tls(database: Path) -> None:
    code = """
import sys
from catalog.__main__ import cli
cli.main(["list"], standalone_mode=False)
print({"flask", "werkzeug", "jinja2", "waitress", "urllib3", "ssl"} & set(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.stdout.endswith("\nset()\n")


# A variable for commands that use a service is none of them.
UNKNOWN_SETTINGS: dict[str, str | None] = {
    "CATALOG_PROT": "CATALOG_PROT is not a setting. Did you mean CATALOG_PORT?",
    "CATALOG_LOGLEVEL": "CATALOG_LOGLEVEL is not a setting. Did you mean CATALOG_LOG_LEVEL?",
    **dict.fromkeys(("CATALOG_TOKEN", "CATALOG_SERVER", "CATALOG_CA")),
    "CATALOG_X": "CATALOG_X is not a setting. It has no effect.",
}


@pytest.mark.parametrize(("name", "message"), UNKNOWN_SETTINGS.items(), ids=UNKNOWN_SETTINGS)
def test_a_mistyped_setting_is_logged_with_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    message: str | None,
) -> None:
    monkeypatch.setenv(name, "1")
    create_app()
    warning = ("catalog.settings", logging.WARNING, message)
    assert caplog.record_tuples == ([warning] if message else [])


def test_a_command_prints_a_mistyped_setting_once(database: Path) -> None:
    settings = {"CATALOG_PROT": "1", "CATALOG_DATABASE": str(database)}
    result = start_program("list", **settings)
    with start_command(database, "list", settings={"CATALOG_PROT": "1"}) as flask:
        flask_errors = flask.stderr.read()
    assert result.stderr == f"{UNKNOWN_SETTINGS['CATALOG_PROT']}\n2 widgets.\n"
    assert flask_errors == result.stderr


COMPLETED = {
    "unl": ["unlist"],
    "--data": ["--database"],
    "serve --pri": ["--print-json"],
    "unlist acme/": ["acme/clock", "acme/weather"],
    "show acme/c": ["acme/clock"],
    "yank a": ["acme/clock@", "acme/weather@"],
    "yank acme/c": ["acme/clock@1.1.0", "acme/clock@1.0.0"],
    "yank acme/clock@1.1": ["acme/clock@1.1.0"],
    "delete acme/cl": ["acme/clock"],
    "delete acme/clock@": ["acme/clock@1.1.0", "acme/clock@1.0.0"],
    "unlist other/": [],
    "--server https://widgets.example yan": ["yank"],
    "--server https://widgets.example yank a": [],
}


def test_lines_are_completed_with_commands_options_widgets_and_versions(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_DATABASE", str(database))
    completer = BashComplete(cli, {}, "widget-catalog", "_WIDGET_CATALOG_COMPLETE")
    found = {}
    for line in COMPLETED:
        *before, incomplete = line.split(" ")
        found[line] = [item.value for item in completer.get_completions(before, incomplete)]
    assert found == COMPLETED


def test_without_a_database_nothing_is_completed_or_created(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    assert complete("unlist ", CATALOG_DATABASE=str(missing), CATALOG_PROT="1") == []
    assert not missing.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_WIDGET_CATALOG_COMPLETE={shell}_complete" in result.stdout


def test_bash_completes_a_version_with_the_script(database: Path, tmp_path: Path) -> None:
    program = tmp_path / "widget-catalog"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    script = """
source <(widget-catalog completion bash)
[[ $COMP_WORDBREAKS != *@* ]] || exit 1
COMP_WORDS=(widget-catalog yank acme/clock@1.1) COMP_CWORD=2
_widget_catalog_completion widget-catalog
echo "${COMPREPLY[@]}"
"""
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CATALOG_DATABASE": str(database)}
    result = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (result.stdout, result.stderr) == ("acme/clock@1.1.0\n", "")
