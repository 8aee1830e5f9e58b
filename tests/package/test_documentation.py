"""README, CONTRIBUTING and docs/: every console line is run as written, its output compared."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Server, create_demo, run
from document_lines import (
    assert_outputs,
    blocks,
    checkout,
    console_lines,
    page,
    run_make,
)
from flask import Flask

from app import create_app
from catalog.settings import DEFAULTS

DOCS = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS]
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def section(title: str) -> str:
    """Return a section of the README."""
    return page("README.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


# Each test states how many lines it runs at least, so that no change of format hides any.


@NEEDS_CURL
@pytest.mark.parametrize(
    ("name", "lines", "served"),
    [
        *(("api", 15, "catalog.db"), ("publishing", 11, "catalog.db")),
        # Pages that create their own catalog.db.
        *(("commands", 18, "other.db"), ("backups", 9, "other.db")),
    ],
)
def test_every_line_of_the_page_gives_the_output_shown(
    tmp_path: Path, name: str, lines: int, served: str
) -> None:
    pairs = console_lines(page(f"docs/{name}.md"))
    with Server(create_demo(tmp_path / served)) as server:
        assert_outputs(pairs, checkout(tmp_path), server.url)
    assert len(pairs) >= lines


GUIDE = "".join(map(section, ("Three things to try", "Publish", "Mirror")))


@NEEDS_CURL
@pytest.mark.parametrize(
    ("text", "lines", "widgets"),
    [(GUIDE, 8, 34), (page("docs/mirror.md"), 3, 33)],
    ids=["README", "mirror"],
)
def test_every_line_that_leads_to_a_mirror_gives_the_output_shown(
    tmp_path: Path, text: str, lines: int, widgets: int
) -> None:
    *pairs, (last, output) = console_lines(text)
    with Server(create_demo(tmp_path / "catalog.db")) as server:
        assert_outputs(pairs, checkout(tmp_path), server.url)
    assert len(pairs) >= lines
    # The last line starts the mirror; here it has a free port.
    assert last.endswith("widget-catalog serve")
    assert output == "Serving mirror.db on http://127.0.0.1:8081\n"
    with Server(tmp_path / "mirror.db") as mirror:
        _, stats = mirror.request("GET", "/api/stats")
    assert json.loads(stats)["widgets"] == widgets


def test_make_run_prints_what_the_quick_start_shows(tmp_path: Path) -> None:
    (run_line, shown), *_ = console_lines(page("README.md"))
    directory = checkout(tmp_path)
    (directory / "requirements.txt").symlink_to(ROOT / "requirements.txt")
    # The file that marks the requirements as installed.
    (directory / ".venv" / "run").touch()
    process = subprocess.Popen(
        ["bash", "-c", f"exec 2>&1; exec {run_line}"],
        cwd=directory,
        # Without the variables of `make test`, which would change the output of this make.
        env={key: value for key, value in os.environ.items() if "MAKE" not in key}
        | {"CATALOG_PORT": "0"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = process.stdout.readline() + process.stdout.readline()
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=10)
    # The lines after them are for a terminal.
    assert (
        re.sub(r":\d+$", ":8080", printed.rstrip()) == "".join(shown.splitlines(True)[:2]).rstrip()
    )


def test_the_examples_for_pytest_pass_as_written(tmp_path: Path) -> None:
    for number, name in enumerate(("README.md", "docs/testing.md")):
        example = blocks(page(name), "python")[0]
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    options = ("-q", "-p", "no:cacheprovider", "-p", "pytest_widget_catalog")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=checkout(tmp_path),
        # Loading the plugins takes longer than the test.
        env={**os.environ, "PYTHONPATH": ".", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "4 passed" in result.stdout, result.stdout + result.stderr


def test_the_example_document_can_be_imported(app_with: Callable[..., Flask]) -> None:
    (example,) = blocks(page("docs/commands.md"), "json")
    result = run(app_with(), "import", "-", stdin=example)
    assert result.exit_code == 0
    assert result.stderr == "Imported 1 widget and 1 version: 1 added, 0 changed, 0 unchanged.\n"


def settings_in(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `CATALOG_(\w+)` \| `([^`]*)` \|", text, re.MULTILINE))


def test_settings_have_the_defaults_that_the_pages_name() -> None:
    assert settings_in(page("docs/settings.md")) == DEFAULTS
    assert settings_in(section("Settings you will touch")).items() <= DEFAULTS.items()


def test_the_commands_page_names_every_command() -> None:
    cells = re.findall(r"^\| (.*?) \| ", page("docs/commands.md").split("\n## All")[1], re.M)
    first = cells[cells.index("Command") + 1 : cells.index("Option of `serve`")]
    named = {name for cell in first for name in re.findall(r"`(\w+)", cell)}
    others = {"completion", "login", "logout", "revoke", "rotate"}
    assert named == set(create_app().cli.commands) | others


def test_readme_and_changelog_are_short_and_the_readme_links_every_page() -> None:
    readme = page("README.md")
    assert len(readme.splitlines()) <= 200
    assert max(len(each.splitlines()) for each in page("CHANGELOG.md").split("\n## ")) <= 70
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", readme))


def test_the_contributing_page_names_every_folder() -> None:
    (tree,) = blocks(page("CONTRIBUTING.md"), "text")
    packages = [path.parent for path in (ROOT / "catalog").glob("*/__init__.py")]
    folders = {"catalog", "pytest_widget_catalog", "seed", "tests", "bench", "deploy", "docs"} | {
        path.name for path in packages
    }
    assert set(re.findall(r"^ *(\w+)/ +\S", tree, re.MULTILINE)) == folders


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_and_path_of_the_repository_exists(name: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page(name))
    paths = re.findall(r"`((?:catalog|tests|bench|deploy|docs|seed)/[\w./-]+)`", page(name))
    links = [each for each in targets if not (ROOT / name).parent.joinpath(each).exists()]
    # The benchmark creates its working directory.
    missing = [each for each in paths if not (ROOT / each).exists() and ".work" not in each]
    assert (links, missing) == ([], [])


@pytest.mark.parametrize("name", PAGES)
def test_no_page_installs_the_package_by_a_name_that_others_may_own(name: str) -> None:
    lines = re.findall(r"pip install [^`\n]*(?<!/)\bwidget-catalog\b[^`\n]*", page(name))
    assert [line for line in lines if "--no-index" not in line] == []


def test_make_help_lists_every_target_with_its_purpose() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", page("Makefile"), re.MULTILINE)
    printed = run_make("help", ROOT)
    assert re.findall(r"^  make (\S+) +\S", printed, re.MULTILINE) == phony.split()


def test_the_command_of_a_clone_runs_its_catalog_in_any_directory(tmp_path: Path) -> None:
    clone, elsewhere = tmp_path / "a clone", tmp_path / "elsewhere"
    for folder in (clone, elsewhere / "catalog"):
        folder.mkdir(parents=True)
    (elsewhere / "catalog" / "__init__.py").write_text("raise ImportError")
    command = checkout(clone) / ".venv" / "bin" / "widget-catalog"
    result = subprocess.run(
        [command, "show", "a b"], cwd=elsewhere, capture_output=True, text=True, timeout=30
    )
    assert result.stderr.endswith("'a b' is not of the form scope/name or scope/name@version.\n")
