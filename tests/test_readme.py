"""The README says what happens: its lines are run as written and its answers compared."""

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

from app import DEFAULTS, create_app

README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
MARK = "--- end of answer ---"


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def lines_and_answers(text: str) -> list[tuple[str, str]]:
    """Each line after a $ with what the README shows below it, in order."""
    pairs = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, answer = part.partition("\n")
            pairs.append((line, answer))
    return pairs


def checkout(directory: Path) -> Path:
    """A directory with the service in it, as a clone has it."""
    for name in ("app.py", "catalog", "schema.sql", "seed"):
        (directory / name).symlink_to(ROOT / name)
    (directory / ".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (directory / ".venv" / part).symlink_to(Path(sys.prefix) / part)
    return directory


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_line_of_the_endpoints_section_gives_the_answer_shown(tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    pairs = lines_and_answers(section("Endpoints"))
    given = [(line, run(line.replace(ADDRESS, server.url), tmp_path)) for line, _ in pairs]
    server.stop()
    assert given == pairs
    assert len(given) == 17


def test_make_run_says_what_the_start_section_shows(tmp_path: Path) -> None:
    (run_line, shown), _ = lines_and_answers(section("Start"))
    directory = checkout(tmp_path)
    for name in ("Makefile", "requirements.txt"):
        (directory / name).symlink_to(ROOT / name)
    (directory / ".venv" / "run").touch()  # what says that the requirements are installed
    process = subprocess.Popen(
        ["bash", "-c", f"exec 2>&1; exec {run_line}"],
        cwd=directory,
        # Without what make hands on to a make below it, which would tell more.
        env={key: value for key, value in os.environ.items() if "MAKE" not in key}
        | {"CATALOG_PORT": "0"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline() + process.stdout.readline()
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=10)
    assert re.sub(r":\d+$", ":8080", said.rstrip()) == shown.rstrip()


def test_every_line_of_the_operators_section_gives_the_answer_shown(tmp_path: Path) -> None:
    pairs = lines_and_answers(section("Operate it"))
    # One shell runs them all, since they set and define what later ones use.
    script = "".join(f"{line}\necho '{MARK}'\n" for line, _ in pairs)
    answers = run(script, checkout(tmp_path)).split(f"{MARK}\n")[:-1]
    assert list(zip([line for line, _ in pairs], answers, strict=True)) == pairs
    assert len(pairs) == 20


def test_every_line_of_the_mirror_section_gives_the_answer_shown(tmp_path: Path) -> None:
    *pairs, (serve_line, served) = lines_and_answers(section("Mirror a catalog"))
    server = Server(create_demo(tmp_path / "catalog.db"))
    script = "".join(f"{line}\necho '{MARK}'\n" for line, _ in pairs)
    said = run(script.replace(ADDRESS, server.url), checkout(tmp_path))
    server.stop()
    answers = said.replace(server.url, ADDRESS).split(f"{MARK}\n")[:-1]
    assert list(zip([line for line, _ in pairs], answers, strict=True)) == pairs
    assert len(pairs) == 3
    mirror = Server(tmp_path / "mirror.db")
    listed = mirror.request("GET", "/api/stats")[1]
    mirror.stop()
    assert json.loads(listed)["widgets"] == 33
    assert serve_line == ".venv/bin/flask serve"
    assert served == f"Serving mirror.db on {ADDRESS.replace('8080', '8081')}\n"


def run(script: str, directory: Path) -> str:
    """What bash says, on both outputs, when it runs the script in the directory."""
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ran.stdout


def test_the_test_suite_example_passes_as_written(tmp_path: Path) -> None:
    (example,) = blocks(section("In your test suite"), "python")
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"],
        cwd=checkout(tmp_path),
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_example_document_can_be_imported(tmp_path: Path) -> None:
    (example,) = blocks(section("Catalog files"), "json")
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


def test_the_table_of_settings_names_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `CATALOG_(\w+)` \| `([^`]*)` \|", section("Settings"), re.MULTILINE)
    assert dict(rows) == DEFAULTS


def test_the_layout_names_every_module() -> None:
    parts = {path.name for path in (ROOT / "catalog").glob("*[!_].py")} | {"commands/"}
    assert set(re.findall(r"^  (\w+(?:\.py|/)) ", section("Layout"), re.MULTILINE)) == parts


def test_the_table_of_commands_names_every_command() -> None:
    named = set(re.findall(r"`flask (\w+)", section("Operate it")))
    assert named == set(create_app().cli.commands)


def test_make_help_lists_every_target_with_its_purpose() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    ran = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"^  make (\S+) +\S", ran.stdout, re.MULTILINE) == phony.split()
