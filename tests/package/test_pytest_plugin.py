"""The pytest plugin in another project, which has an app.py and a catalog package of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

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


def run_pytest(project: Path, code: str, *options: str, **settings: str) -> str:
    """Return the output of tests, run as in an environment where the plugin is installed."""
    (project / "test_project.py").write_text(code)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{project}{os.pathsep}{ROOT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_DEBUG_TEMPROOT": str(project.parent),
        **settings,
    }
    command = [*PYTEST, *options]
    result = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120
    )
    return result.stdout + result.stderr


@pytest.mark.parametrize("options", ["-W error", "-p xdist -n 2"])
def test_a_project_with_modules_of_the_same_names_uses_the_fixtures(
    project: Path, options: str
) -> None:
    settings = {"CATALOG_DATABASE": "/nowhere", "CATALOG_REQUEST_TIMEOUT": "none"}
    output = run_pytest(project, EXAMPLE, *options.split(), **settings)
    assert "9 passed" in output, output


def test_a_plugin_without_its_service_fails_the_test_at_setup_with_the_reason(
    project: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "pytest_widget_catalog", tmp_path / "lib" / "pytest_widget_catalog")
    code = "def test_first_use(widget_catalog): pass\n"
    output = run_pytest(project, code, PYTHONPATH=str(tmp_path / "lib"))
    assert "1 error" in output, output
    assert (
        "widget-catalog ended with exit code 1: ModuleNotFoundError: No module named 'catalog'"
    ) in output
