"""The wheel: its content, and its use from an empty directory without the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import DEMO, ROOT

from catalog import __version__

pytest.importorskip("build", reason="build is not installed: make .venv/dev installs it.")
pytest.importorskip("hatchling", reason="hatchling is not installed: make .venv/dev installs it.")

# Each folder, and the name of its package in the wheel.
FOLDERS = {"catalog": "widget_catalog", "pytest_widget_catalog": "pytest_widget_catalog"}
# Neither the settings nor the modules of the process that runs the tests.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}

# Most of the modules are never imported, so they are not compiled.
INSTALL = ("install", "--quiet", "--no-index", "--no-deps", "--no-compile")
UNINSTALL = ("uninstall", "--quiet", "--yes")


def run_in(directory: Path, *command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)],
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def pip(programs: Path, *arguments: object) -> None:
    """Run pip in the environment with this bin directory; it must succeed."""
    # The option --python of pip would do the same with a second process.
    command = (programs / "python", Path(sysconfig.get_path("purelib"), "pip"))
    result = run_in(programs, *command, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, so that the sdist is complete too."""
    output = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", output, ROOT)
    result = run_in(output, *build)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = output.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the wheel installed, without a network."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    pip(environment / "bin", *INSTALL, wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    # The dependencies are those of the tests; files such as .pth are not read there.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment / "bin"


def test_the_wheel_contains_the_code_and_all_data_files(wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}": path.read_bytes()
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    expected["widget_catalog/schema.sql"] = (ROOT / "schema.sql").read_bytes()
    for path in DEMO.parent.rglob("*.*"):
        expected[f"widget_catalog/{path.relative_to(ROOT)}"] = path.read_bytes()
    shared = f"widget_catalog-{__version__}.data/data/share/widget-catalog/"
    for path in (ROOT / "deploy").rglob("*"):
        if path.is_file():
            expected[shared + str(path.relative_to(ROOT / "deploy"))] = path.read_bytes()
    for name in ("requirements.txt", "requirements/oidc.txt", "docs/operate/settings.md"):
        expected[shared + Path(name).name] = (ROOT / name).read_bytes()
    assert wheel.stat().st_size < 800_000  # bytes
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    installed = {name: body for name, body in contents.items() if ".dist-info/" not in name}
    assert installed.keys() == expected.keys()
    assert installed == expected


def test_the_installed_command_runs_its_own_code(programs: Path, tmp_path: Path) -> None:
    code = "import widget_catalog; print(widget_catalog.__file__)"
    module = run_in(tmp_path, programs / "python", "-c", code)
    assert Path(module.stdout).is_relative_to(programs.parent)
    # A folder of this name on PYTHONPATH does not hide ours.
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "__init__.py").write_text("raise SystemExit('theirs')\n")
    command = ("env", f"PYTHONPATH={tmp_path}", programs / "widget-catalog", "--version")
    assert run_in(tmp_path, *command).stdout == f"widget-catalog {__version__}\n"


def test_the_installed_service_serves_and_lists_the_demo_catalog(
    programs: Path, tmp_path: Path
) -> None:
    command = [str(programs / "widget-catalog"), "serve", "--demo", "--port", "0", "--print-json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        start = json.loads(process.stdout.readline())
        pages = {}
        for path in ("/", "/docs", "/openapi.json", "/api/v1/widgets/search?q=weather"):
            with urllib.request.urlopen(start["url"] + path, timeout=60) as response:
                pages[path] = response.read()
        process.terminate()
    listed = run_in(tmp_path, programs / "python", "-m", "widget_catalog", "list", "weather")
    assert start["database"] == str(tmp_path / "catalog.db")
    assert b'"name":"weather"' in pages["/api/v1/widgets/search?q=weather"]
    assert (listed.returncode, "acme/weather" in listed.stdout) == (0, True)


def test_the_installed_plugin_starts_the_installed_service(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "catalog.py").write_text("raise ImportError")
    test = "def test(widget_catalog): widget_catalog.publish('acme/clock', '1.0.0')\n"
    (tmp_path / "test_it.py").write_text(test)
    result = run_in(tmp_path, programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in result.stdout, result.stdout


def test_an_incomplete_installation_is_one_sentence(programs: Path, tmp_path: Path) -> None:
    (path,) = programs.parent.glob("lib/python*/site-packages/widget_catalog/schema.sql")
    moved = path.rename(path.with_suffix(".moved"))
    result = run_in(tmp_path, programs / "widget-catalog", "init")
    moved.rename(path)
    message = "This installation of the widget catalog is incomplete: schema.sql is missing."
    assert (result.returncode, result.stderr) == (1, f"Error: {message} Reinstall it.\n")
    assert list(tmp_path.iterdir()) == []


# Of somebody else, whose package is called catalog.
INFO = "other_project-1.dist-info"
PROJECT = {
    "catalog/__init__.py": "OWNER = 'other'\n",
    f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: other-project\nVersion: 1\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{INFO}/RECORD": "",
}


def test_a_project_with_a_package_catalog_and_ours_leave_each_other_whole(
    wheel: Path, programs: Path, tmp_path: Path
) -> None:
    project = tmp_path / "other_project-1-py3-none-any.whl"
    with zipfile.ZipFile(project, "w") as archive:
        for name, content in PROJECT.items():
            archive.writestr(name, content)

    def owner() -> str:
        code = "import catalog; print(catalog.OWNER)"
        return run_in(tmp_path, programs / "python", "-c", code).stdout.strip()

    def runs() -> bool:
        return run_in(tmp_path, programs / "widget-catalog", "--version").returncode == 0

    # Theirs after ours, then ours after theirs.
    pip(programs, *INSTALL, project)
    assert (owner(), runs()) == ("other", True)
    pip(programs, *UNINSTALL, "widget-catalog")
    assert owner() == "other"
    pip(programs, *INSTALL, wheel)
    assert (owner(), runs()) == ("other", True)
    pip(programs, *UNINSTALL, "other-project")
    assert (owner(), runs()) == ("", True)
