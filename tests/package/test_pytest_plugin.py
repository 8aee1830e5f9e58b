"""The pytest plugin in another project, which has an app.py and a catalog package of its own."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, wait_for_end

DASHBOARD = """
import json
import urllib.request

def newest(url, widget, sdk):
    scope, name = widget.split("/")
    query = f"{url}/api/v1/widgets/search?scope={scope}&compatSdk={sdk}"
    with urllib.request.urlopen(query) as response:
        (entry,) = [each for each in json.load(response)["widgets"] if each["name"] == name]
    install = urllib.request.Request(f"{url}/api/v1/widgets/{widget}", method="POST")
    urllib.request.urlopen(install).close()
    return entry["latestCompatibleVersion"]["version"]
"""

EXAMPLE = """
import sqlite3
import sys

import app
import catalog
import my_dashboard
import pytest

def test_update_is_offered(widget_catalog):
    widget_catalog.publish("acme/clock", "1.0.0", sdk="^1.0.0")
    widget_catalog.publish("acme/clock", "2.0.0", sdk="^2.0.0")
    assert my_dashboard.newest(widget_catalog.url, "acme/clock", sdk="1.4.0") == "1.0.0"
    widget_catalog.yank("acme/clock@1.0.0", reason="Broken.")
    widget_catalog.fail_next(2, status=503, retry_after=1)
    widget_catalog.delay(0.2)
    assert widget_catalog.installs("acme/clock") == 1
    assert widget_catalog.requests[-1].path == "/api/v1/widgets/acme/clock"

def test_the_modules_are_those_of_the_project():
    assert (app.OWNER, catalog.OWNER) == ("project", "project")
    assert not {"flask", "waitress"} & sys.modules.keys()

def test_the_other_fixtures(widget_catalog_demo, widget_catalog_file, widget_catalog_from):
    assert my_dashboard.newest(widget_catalog_demo.url, "acme/weather", sdk="1.4.0") == "2.6.0"
    copies = [widget_catalog_from(widget_catalog_file), widget_catalog_from([])]
    assert len({catalog.url for catalog in (widget_catalog_demo, *copies)}) == 3
    assert copies[0].installs("acme/weather") == widget_catalog_demo.installs("acme/weather") - 1

@pytest.mark.parametrize("number", range(6))
def test_each_test_has_an_empty_catalog(widget_catalog, number):
    widget_catalog.publish("acme/clock", "1.0.0")
"""

# Loading the plugins that are installed would take longer than the tests.
PYTEST = (sys.executable, "-m", "pytest", "-p", "pytest_widget_catalog", "-p", "no:cacheprovider")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with modules that have the same names as those of the service."""
    directory = tmp_path / "project"
    (directory / "catalog").mkdir(parents=True)
    for name in ("app.py", "catalog/__init__.py"):
        (directory / name).write_text('OWNER = "project"\n')
    (directory / "my_dashboard.py").write_text(DASHBOARD)
    return directory


def start_pytest(project: Path, code: str, *options: str, **popen: Any) -> subprocess.Popen[str]:
    """Start the tests of the code, as in an environment where the plugin is installed."""
    (project / "test_project.py").write_text(code)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_DEBUG_TEMPROOT": str(project.parent),
        **popen.pop("env", {}),
    }
    return subprocess.Popen(
        [*PYTEST, *options],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **popen,
    )


def run_pytest(project: Path, code: str, *options: str, **popen: Any) -> str:
    """Return the output of the tests of the code."""
    output, _ = start_pytest(project, code, *options, **popen).communicate(timeout=120)
    return output


def test_a_project_with_modules_of_the_same_names_uses_the_fixtures(project: Path) -> None:
    settings = {"CATALOG_DATABASE": "/nowhere", "CATALOG_REQUEST_TIMEOUT": "none"}
    output = run_pytest(project, EXAMPLE, "-W", "error", env=settings)
    assert "9 passed" in output, output


def test_workers_of_xdist_have_servers_of_their_own(project: Path) -> None:
    output = run_pytest(project, EXAMPLE, "-p", "xdist", "-n", "2")
    assert "9 passed" in output, output


def test_the_example_is_that_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## Test against it\n")[1]
    example = section.split("```python\n")[1].split("```")[0]
    lines = {line.strip() for line in EXAMPLE.splitlines()}
    assert [line for line in example.splitlines() if line.strip() not in lines] == []


WAITING = """
import sys

def test_waits(widget_catalog):
    print("pid", widget_catalog.pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_run_leaves_no_process(project: Path) -> None:
    with start_pytest(project, WAITING, "-s", stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "pid " in line)
        process.kill()
        wait_for_end(int(line.split()[-1]))


FIRST_USE = "def test_first_use(widget_catalog): pass\n"


def test_a_service_that_cannot_start_fails_the_test_at_setup_with_its_message(
    project: Path,
) -> None:
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    output = run_pytest(project, FIRST_USE, preexec_fn=allow_few_files)
    assert "1 error" in output, output
    assert "CATALOG_MAX_CONNECTIONS 200 needs" in output
    assert "this system allows 64." in output


def test_a_plugin_without_its_service_fails_the_test_at_setup_with_the_reason(
    project: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "pytest_widget_catalog", tmp_path / "lib" / "pytest_widget_catalog")
    output = run_pytest(project, FIRST_USE, env={"PYTHONPATH": str(tmp_path / "lib")})
    assert "1 error" in output, output
    assert (
        "The server of widget-catalog ended with exit code 1: "
        "ModuleNotFoundError: No module named 'catalog'"
    ) in output
