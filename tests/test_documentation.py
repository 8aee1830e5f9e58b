"""README and docs/: every console line is run as written and its output compared."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Server, create_demo

from app import create_app
from catalog.settings import DEFAULTS

URL = "http://127.0.0.1:8080"
MARK = "--- end of output ---"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(title: str) -> str:
    """A section of the README."""
    return page("README.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def console_lines(text: str) -> list[tuple[str, str]]:
    """Each command line after a $ with the output shown below it, in order."""
    pairs = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            pairs.append((line, output))
    return pairs


def checkout(directory: Path) -> Path:
    """A directory with the service in it, as a clone has it."""
    for name in ("app.py", "catalog", "schema.sql", "seed"):
        (directory / name).symlink_to(ROOT / name)
    (directory / ".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (directory / ".venv" / part).symlink_to(Path(sys.prefix) / part)
    return directory


def run(script: str, directory: Path) -> str:
    """The output of a bash script on both streams."""
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return ran.stdout


def run_lines(lines: list[str], directory: Path, url: str = URL) -> list[str]:
    """The output of each line; one shell runs them all, since they set what later ones use."""
    script = "".join(f"{line}\necho '{MARK}'\n" for line in lines)
    output = run(script.replace(URL, url), directory).replace(url, URL)
    return output.split(f"{MARK}\n")[:-1]


# The text, and how many lines it has at least, so that none is skipped by a change of format.
DEMO_TEXTS = {
    "README.md": (section("Search, and count an install"), 3),
    "docs/api.md": (page("docs/api.md"), 17),
}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("text", "least"), DEMO_TEXTS.values(), ids=DEMO_TEXTS)
def test_every_request_shown_gives_the_response_shown(
    tmp_path: Path, text: str, least: int
) -> None:
    pairs = console_lines(text)
    server = Server(create_demo(tmp_path / "catalog.db"))
    outputs = run_lines([line for line, _ in pairs], tmp_path, server.url)
    server.stop()
    assert list(zip([line for line, _ in pairs], outputs, strict=True)) == pairs
    assert len(pairs) >= least


COMMAND_TEXTS = {
    "README.md": (section("Publish"), 6),
    "docs/commands.md": (page("docs/commands.md"), 20),
}


@pytest.mark.parametrize(("text", "least"), COMMAND_TEXTS.values(), ids=COMMAND_TEXTS)
def test_every_command_shown_gives_the_output_shown(tmp_path: Path, text: str, least: int) -> None:
    pairs = console_lines(text)
    outputs = run_lines([line for line, _ in pairs], checkout(tmp_path))
    assert list(zip([line for line, _ in pairs], outputs, strict=True)) == pairs
    assert len(pairs) >= least


MIRROR_TEXTS = {"README.md": section("Mirror"), "docs/mirror.md": page("docs/mirror.md")}


@pytest.mark.parametrize("text", MIRROR_TEXTS.values(), ids=MIRROR_TEXTS)
def test_every_line_of_a_mirror_gives_the_output_shown(tmp_path: Path, text: str) -> None:
    *pairs, (serve_line, served) = console_lines(text)
    server = Server(create_demo(tmp_path / "catalog.db"))
    outputs = run_lines([line for line, _ in pairs], checkout(tmp_path), server.url)
    server.stop()
    assert list(zip([line for line, _ in pairs], outputs, strict=True)) == pairs
    mirror = Server(tmp_path / "mirror.db")
    stats = mirror.request("GET", "/api/stats")[1]
    mirror.stop()
    assert json.loads(stats)["widgets"] == 33
    assert serve_line == ".venv/bin/flask serve"
    assert served == f"Serving mirror.db on {URL.replace('8080', '8081')}\n"


def test_make_run_prints_what_the_quick_start_shows(tmp_path: Path) -> None:
    ((run_line, shown),) = console_lines(section("Quick start"))
    directory = checkout(tmp_path)
    for name in ("Makefile", "requirements.txt"):
        (directory / name).symlink_to(ROOT / name)
    # Says that the requirements are installed.
    (directory / ".venv" / "run").touch()
    process = subprocess.Popen(
        ["bash", "-c", f"exec 2>&1; exec {run_line}"],
        cwd=directory,
        # Without the variables of an outer make, which would make this one print more.
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
    assert re.sub(r":\d+$", ":8080", printed.rstrip()) == shown.rstrip()


def test_the_test_suite_example_passes_as_written(tmp_path: Path) -> None:
    (example,) = blocks(page("docs/testing.md"), "python")
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"],
        cwd=checkout(tmp_path),
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_example_document_can_be_imported(tmp_path: Path) -> None:
    (example,) = blocks(page("docs/catalog-files.md"), "json")
    environment = {**os.environ, "CATALOG_DATABASE": str(tmp_path / "catalog.db")}
    flask = [sys.executable, "-m", "flask"]
    subprocess.run([*flask, "init"], cwd=ROOT, env=environment, check=True, capture_output=True)
    ran = subprocess.run(
        [*flask, "import", "-"],
        cwd=ROOT,
        env=environment,
        input=example,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ran.returncode == 0
    assert ran.stderr == "Imported 1 widget and 1 version: 1 added, 0 changed, 0 unchanged.\n"


def settings_in(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `CATALOG_(\w+)` \| `([^`]*)` \|", text, re.MULTILINE))


def test_the_settings_page_names_every_setting_with_its_default() -> None:
    assert settings_in(page("docs/settings.md")) == DEFAULTS


def test_the_readme_names_the_defaults_of_its_settings() -> None:
    assert settings_in(section("Settings you will touch")).items() <= DEFAULTS.items()


def test_the_commands_page_names_every_command() -> None:
    named = set(re.findall(r"`flask (\w+)", page("docs/commands.md")))
    assert named == set(create_app().cli.commands)


def test_the_readme_is_short_and_links_every_page() -> None:
    readme = page("README.md")
    assert len(readme.splitlines()) <= 200
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", readme))


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", *sorted(p.name for p in (ROOT / "docs").glob("*.md"))]
)
def test_every_relative_link_leads_to_a_file(name: str) -> None:
    path = ROOT / name if (ROOT / name).exists() else ROOT / "docs" / name
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


def test_the_architecture_page_names_every_module() -> None:
    paths = (path.relative_to(ROOT / "catalog") for path in (ROOT / "catalog").rglob("*[!_].py"))
    modules = {str(path.with_suffix("")) for path in paths}
    (tree,) = blocks(page("docs/architecture.md"), "text")
    folders = re.findall(r"^  (\w+)/ +(.+(?:\n {14}.+)*)", tree, re.MULTILINE)
    named = {f"{folder}/{name}" for folder, names in folders for name in re.findall(r"\w+", names)}
    named |= set(re.findall(r"^  (\w+)\.py", tree, re.MULTILINE))
    assert modules == named


def test_make_help_lists_every_target_with_its_purpose() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", page("Makefile"), re.MULTILINE)
    ran = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^  make (\S+) +\S", ran.stdout, re.MULTILINE) == phony.split()
