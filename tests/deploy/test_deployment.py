"""The files in deploy/: units, user, settings, and the command of the operator."""

import http.client
import json
import os
import pwd
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from activation import start_with
from conftest import ROOT, create_demo
from programs import find_program
from users import IS_ROOT, NOBODY, nobody_can_run_python

from catalog.settings import DEFAULTS

DEPLOY = ROOT / "deploy"
SERVICES = [f"widget-catalog{name}.service" for name in ("", "-backup", "-check", "-mirror")]
UNITS = [
    *(path.name for kind in ("service", "socket", "timer") for path in DEPLOY.glob(f"*.{kind}"))
]
NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")


def run_program(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The root directory of a system with the files of deploy/ where the guide installs them."""
    units = tmp_path / "usr/lib/systemd/system"
    shutil.copytree("/usr/lib/systemd/system", units, symlinks=True)
    for name in UNITS:
        shutil.copy(DEPLOY / name, units)
    for unit in SERVICES:
        (units / f"{unit}.d").mkdir()
        shutil.copy(DEPLOY / "10-hardening.conf", units / f"{unit}.d")
    program = tmp_path / "opt/widget-catalog/bin/widget-catalog"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    for name in ("bin/sh", "usr/bin/rqlited", "opt/litestream/bin/litestream"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(0o755)
    return tmp_path


@pytest.mark.parametrize("is_cluster", [False, True], ids=["one machine", "three machines"])
def test_systemd_has_no_remark_about_the_units(system: Path, is_cluster: bool) -> None:
    analyze = find_program("systemd-analyze", "systemd")
    units = [name.replace("@", "@backup") for name in UNITS]
    folder = system / "usr/lib/systemd/system"
    if is_cluster:
        shutil.copy(DEPLOY / "cluster" / "rqlite.service", folder)
        units.append("rqlite.service")
        for unit in (*SERVICES, "widget-catalog.socket"):
            (folder / f"{unit}.d").mkdir(exist_ok=True)
            drop_in = DEPLOY / "cluster" / f"cluster-{unit.rpartition('.')[2]}.conf"
            shutil.copy(drop_in, folder / f"{unit}.d")
    else:
        shutil.copy(DEPLOY / "litestream" / "widget-catalog-litestream.service", folder)
        units.append("widget-catalog-litestream.service")
    # The exit code is 0 even for an unknown setting.
    result = run_program(analyze, "verify", f"--root={system}", *units)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_the_exposure_of_a_service_is_at_most_1_5(system: Path, name: str) -> None:
    analyze = find_program("systemd-analyze", "systemd")
    options = ("security", "--offline=true", "--no-pager", f"--root={system}")
    result = run_program(analyze, *options, name)
    (level,) = re.findall(r"Overall exposure level for \S+: (\d+\.\d)", result.stdout)
    assert float(level) <= 1.5


@NEEDS_ROOT
def test_the_user_and_its_directories_are_created(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for name, *options in (["sysusers"], ["tmpfiles", "--create"]):
        program = find_program(f"systemd-{name}", "systemd")
        with (DEPLOY / f"widget-catalog.{name}.conf").open() as configuration:
            result = run_program(program, *options, f"--root={tmp_path}", "-", stdin=configuration)
        assert result.returncode == 0, result.stderr
    (line,) = (tmp_path / "etc/passwd").read_text().splitlines()
    user, _, uid, gid, *_, shell = line.split(":")
    assert (user, shell) == ("widget-catalog", "/usr/sbin/nologin")
    for name in ("lib", "backups"):
        status = (tmp_path / "var" / name / "widget-catalog").stat()
        assert (str(status.st_uid), str(status.st_gid)) == (uid, gid)
        assert status.st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["widget-catalog.env", "cluster/cluster.env"])
def test_the_settings_file_names_only_settings(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    assert set(re.findall(r"^#?CATALOG_(\w+)=", text, re.MULTILINE)) <= set(DEFAULTS)


def test_the_guide_installs_only_packages_with_known_hashes() -> None:
    guide = (ROOT / "docs/operate/install.md").read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(r"^\S+/pip install (.*)$", guide, re.MULTILINE)
    assert len(lines) == 2
    assert all(line.startswith(("--no-deps ./", "--require-hashes ")) for line in lines)


def test_copies_on_another_machine_are_pruned_to_the_newest_files(tmp_path: Path) -> None:
    guide = (ROOT / "docs/operate/backups.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^rsync .*\n((?:.+\n)+)```", guide, re.MULTILINE)
    for kind, days in {"db": 70, "pack": 12}.items():
        for day in range(days):
            (tmp_path / f"catalog-2026{day // 28 + 1:02}{day % 28 + 1:02}T031500Z.{kind}").touch()
    (tmp_path / "notes.txt").touch()
    result = run_program("sh", "-c", lines.replace("/srv/backups/widget-catalog", str(tmp_path)))
    assert result.returncode == 0, result.stderr
    left = sorted(path.name for path in tmp_path.iterdir())
    databases = [name for name in left if name.endswith(".db")]
    assert (len(databases), databases[0]) == (60, "catalog-20260111T031500Z.db")
    assert len([name for name in left if name.endswith(".pack")]) == 10
    assert "notes.txt" in left


def test_install_and_uninstall_are_about_the_same_files() -> None:
    texts = [(DEPLOY / name).read_text(encoding="utf-8") for name in ("install", "uninstall")]
    units = [re.findall(r"^for unit in (.*); do$", text, re.MULTILINE) for text in texts]
    assert units[0] == units[1]
    assert [f"{unit}.service" for unit in units[0][0].split()] == SERVICES


def unit_program() -> tuple[str, ...]:
    """Return the arguments with which Python runs what the unit starts."""
    text = (DEPLOY / "widget-catalog.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=\S+/widget-catalog (.*)$", text, re.MULTILINE)
    return ("-m", "catalog", *line.split())


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """The socket of the socket unit."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening


def test_the_unit_does_not_create_a_missing_catalog(
    tmp_path: Path, listener: socket.socket
) -> None:
    database = tmp_path / "catalog.db"
    with start_with(database, listener, program=unit_program()) as process:
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, "does not exist" in errors) == (1, True), errors
    assert list(tmp_path.iterdir()) == []


def request(listening: socket.socket, method: str, path: str) -> tuple[int, bytes]:
    """Send a request on a new connection; return the status and the body of its response."""
    host, port = listening.getsockname()
    with closing(http.client.HTTPConnection(host, port, timeout=30)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()


def test_a_restart_during_the_installs_of_8_clients_loses_none(
    tmp_path: Path, listener: socket.socket
) -> None:
    database = create_demo(tmp_path / "catalog.db")
    (before,) = read_count(database)
    has_begun = threading.Event()
    first = start_with(database, listener, program=unit_program())

    def install() -> list[int]:
        statuses = []
        for _ in range(20):
            statuses.append(request(listener, "POST", "/api/v1/widgets/acme/clock")[0])
            has_begun.set()
        return statuses

    with ThreadPoolExecutor(8) as clients:
        pending = [clients.submit(install) for _ in range(8)]
        assert has_begun.wait(30)
        first.terminate()
        first.communicate(timeout=30)
        second = start_with(database, listener, program=unit_program())
        statuses = [status for each in pending for status in each.result()]
    second.terminate()
    second.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (0, 0)
    assert statuses == [200] * 160
    assert read_count(database) == (before + 160,)


def read_count(database: Path) -> tuple[int]:
    query = "SELECT download_count FROM widget WHERE scope = 'acme' AND name = 'clock'"
    with closing(sqlite3.connect(database)) as connection:
        row: tuple[int] = connection.execute(query).fetchone()
    return row


class Operator:
    """A user with a private home directory who runs the command on the catalog of the service."""

    def __init__(self, directory: Path) -> None:
        self.user = pwd.getpwnam("daemon")
        self.state, self.home = directory / "state", directory / "home"
        for path, owner in ((self.state, NOBODY), (self.home, self.user.pw_uid)):
            path.mkdir(0o700)
            os.chown(path, owner, owner)
        venv.create(directory / "environment", symlinks=True)
        (packages,) = (directory / "environment").glob("lib/python*/site-packages")
        (packages / "paths.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        program = directory / "environment/bin/widget-catalog"
        program.write_text(
            "from runpy import run_module\n\nrun_module('catalog', None, '__main__')\n"
        )
        settings = directory / "settings.env"
        settings.write_text(
            "# A comment\n"
            f' CATALOG_DATABASE="{self.state}/catalog.db" \n'
            "CATALOG_BUNDLE_URL=https://cdn.example/$HOME/{version}.js\n"
        )
        text = (DEPLOY / "widget-catalog").read_text(encoding="utf-8")
        values = {
            "program": directory / "environment/bin",
            "settings": settings,
            "user": NOBODY,
        }
        for name, value in values.items():
            text, count = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
            assert count == 1
        self.command = directory / "widget-catalog"
        self.command.write_text(text, encoding="utf-8")
        self.command.chmod(0o755)

    def run(self, *arguments: str, given: str = "", **variables: str) -> tuple[int, str]:
        """Run the command as sudo does; return its exit code and what it printed."""
        result = run_program(
            self.command,
            *arguments,
            cwd=self.home,
            input=given,
            env={"PATH": os.environ["PATH"], "SUDO_USER": self.user.pw_name} | variables,
        )
        return result.returncode, result.stdout + result.stderr


@pytest.fixture(scope="module")
def operator() -> Iterator[Operator]:
    for name in ("setpriv", sys.executable):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    if not nobody_can_run_python():
        pytest.skip("the user nobody cannot run the service here")
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    try:
        operator = Operator(directory)
        code, output = operator.run("init")
        assert (code, output) == (
            0,
            f"Created {operator.state}/catalog.db with 0 widgets and 0 versions.\n",
        )
        yield operator
    finally:
        shutil.rmtree(directory)


MANIFEST = {
    "scope": "acme",
    "name": "clock",
    "version": "1.0.0",
    "displayName": "World Clock",
    "sdkVersion": "^1.0.0",
}


@NEEDS_ROOT
def test_the_operator_publishes_with_the_settings_of_the_service(operator: Operator) -> None:
    (operator.state.parent / "clock.js").write_text("export default 1")
    bundle = str(operator.state.parent / "clock.js")
    assert operator.run("publish", "-", bundle, given=json.dumps(MANIFEST)) == (
        0,
        "Published acme/clock@1.0.0.\nThe latest version of acme/clock is now 1.0.0.\n",
    )
    # Values of the settings are not expanded.
    assert "https://cdn.example/$HOME/1.0.0.js" in operator.run("show", "acme/clock@1.0.0")[1]
    owners = {path.stat().st_uid for path in operator.state.rglob("*")}
    assert owners == {NOBODY}


@NEEDS_ROOT
def test_private_files_are_passed_as_standard_input_and_output(operator: Operator) -> None:
    code, catalog = operator.run("export")
    assert code == 0
    for arguments, given in (
        (["import", "-"], catalog),
        (["outdated", "-", "--sdk", "1.0.0"], ""),
        (["unpack", "-", "--yes"], operator.run("pack", "-", "--quiet")[1]),
    ):
        code, output = operator.run(*arguments, given=given)
        assert code == 0, output
    backup = str(operator.state / "backup.db")
    for arguments in (["backup", backup], ["restore", backup, "--yes"]):
        code, output = operator.run(*arguments)
        assert code == 0, output
    assert {path.stat().st_uid for path in operator.state.iterdir()} == {NOBODY}
    assert not list(operator.home.iterdir())


@NEEDS_ROOT
@pytest.mark.parametrize("variables", [{}, {"SUDO_USER": ""}], ids=["sudo", "root"])
def test_the_record_names_who_ran_the_command(
    operator: Operator, variables: dict[str, str]
) -> None:
    name = "root" if variables else operator.user.pw_name
    widget = {"scope": "acme", "name": name, "displayName": "Clock"}
    code, output = operator.run("import", "-", given=json.dumps({"widget": widget}), **variables)
    assert code == 0, output
    last = json.loads(operator.run("log", "--json")[1])[-1]
    assert (last["kind"], last["actor"], last["action"]) == ("local", name, "import")


@NEEDS_ROOT
@pytest.mark.parametrize("command", ["backup", "pack"])
def test_dated_backups_are_in_a_directory_of_the_service(operator: Operator, command: str) -> None:
    directory = operator.state / command
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    code, output = operator.run(command, "--dir", str(directory), "--keep", "1")
    assert code == 0, output
    assert [path.stat().st_uid for path in directory.iterdir()] == [NOBODY]


@NEEDS_ROOT
def test_files_are_opened_as_the_user_of_the_service(operator: Operator) -> None:
    secret = operator.state.parent / "secret"
    secret.touch(0o600)
    target = operator.home / "x"
    for arguments in (["import", secret], ["restore", secret], ["export", target]):
        code, output = operator.run(*map(str, arguments))
        assert (code != 0, "Permission denied" in output or "not readable" in output) == (
            True,
            True,
        )


@NEEDS_ROOT
def test_programs_in_the_path_of_the_caller_do_not_run(operator: Operator) -> None:
    programs = operator.home / "bin"
    programs.mkdir()
    for name in ("id", "setpriv"):
        (programs / name).write_text("#!/bin/sh\necho 'This runs as root.'\n")
        (programs / name).chmod(0o755)
    code, output = operator.run("list", PATH=f"{programs}:{os.environ['PATH']}")
    assert (code, "as root" in output) == (0, False), output


def test_without_root_and_sudo_the_command_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    text = (DEPLOY / "widget-catalog").read_text(encoding="utf-8")
    text = re.sub(r"^PATH=.*$", f"PATH={tmp_path}", text, flags=re.MULTILINE)
    command = tmp_path / "widget-catalog"
    command.write_text(text, encoding="utf-8")
    result = run_program("/bin/sh", command, "list")
    assert (result.returncode, result.stderr) == (
        1,
        "Error: Run this as root, or install sudo.\n",
    )
