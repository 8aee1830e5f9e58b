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

import command_reference
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

from catalog.settings import DEFAULTS

DOCS = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *DOCS]
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def section(title: str) -> str:
    """Return a section of the README."""
    return page("README.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


# Each test states how many lines it runs at least, so that no change of format hides any.


@NEEDS_CURL
@pytest.mark.parametrize(
    ("name", "lines", "served"),
    [
        *(
            ("reference/api", 15, "catalog.db"),
            ("publish", 11, "catalog.db"),
            ("reference/files", 2, "catalog.db"),
            ("start", 5, "catalog.db"),
        ),
        # Pages that create their own catalog.db.
        *(("reference/commands", 45, "catalog.db"), ("operate/backups", 8, "other.db")),
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
    [(GUIDE, 8, 34), (page("docs/mirror.md").split("\n## ")[0], 3, 33)],
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


def test_the_walk_through_to_a_network_without_internet_gives_the_output_shown(
    tmp_path: Path,
) -> None:
    text = page("docs/mirror.md").split("\n## A network without internet\n")[1].split("\n## ")[0]
    pairs = console_lines(text)
    with Server(create_demo(tmp_path / "catalog.db")) as server:
        assert_outputs(pairs, checkout(tmp_path), server.url)
    assert len(pairs) >= 15


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
    process.communicate(timeout=60)
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
    _, example = blocks(page("docs/reference/files.md"), "json")
    result = run(app_with(), "import", "-", stdin=example)
    assert result.exit_code == 0
    assert result.stderr == "Imported 1 widget and 1 version: 1 added, 0 changed, 0 unchanged.\n"


def settings_in(text: str) -> dict[str, str]:
    """Return the defaults in the tables; the word none stands for an empty one."""
    return dict(re.findall(r"^\| `CATALOG_(\w+)` \| (?:`([^`]+)`|none) \|", text, re.MULTILINE))


def test_settings_have_the_defaults_that_the_pages_name() -> None:
    assert settings_in(page("docs/operate/settings.md")) == DEFAULTS
    assert settings_in(section("Operate it")).items() <= DEFAULTS.items()


def test_the_reference_of_commands_is_what_their_help_says() -> None:
    page_now = page("docs/reference/commands.md")
    assert page_now == command_reference.render_page(page_now), "run make reference"
    assert command_reference.find_incomplete(page_now) == []


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) < 150


def test_the_index_links_every_page_on_one_screen() -> None:
    index = page("docs/README.md")
    linked = [f"docs/{target}" for target in re.findall(r"\]\(([^)#]+)", index)]
    assert sorted(linked) == sorted(each for each in DOCS if each != "docs/README.md")
    assert len(index.splitlines()) <= 45


def test_the_contributing_page_names_every_folder() -> None:
    (tree,) = blocks(page("CONTRIBUTING.md"), "text")
    found = [
        *(ROOT / "catalog").glob("*/__init__.py"),
        *(ROOT / "catalog/store").glob("*/__init__.py"),
    ]
    packages = [path.parent for path in found]
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


def anchors(name: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page(name), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_to_a_heading_leads_to_one(name: str) -> None:
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page(name)):
        linked = os.path.relpath((ROOT / name).parent / target, ROOT) if target else name
        if anchor not in anchors(linked):
            missing.append(f"{linked}#{anchor}")
    assert missing == []


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
