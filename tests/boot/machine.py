"""A machine that a real systemd boots, in namespaces of its own, with the service installed."""

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from conftest import ROOT
from programs import find_program

BOOT = Path(__file__).parent / "boot.sh"
SECONDS_TO_BOOT = 60
PYTHON = "/usr/bin/python3"
DEPENDENCIES = (
    *("blinker", "click", "flask", "flask_cors", "itsdangerous", "jinja2", "markdown_it"),
    *("markupsafe", "mdurl", "prometheus_client", "semver", "urllib3", "waitress", "werkzeug"),
)
# The release before this one, from its guide: a clone with an environment in it.
RELEASE_1_0_0 = "2b3bc7468469a2dbaf52ddf5dc3abd006e642cbb"
FLASK = """#!/opt/widget-catalog/.venv/bin/python
from flask.cli import main
main()
"""


def run_program(*command: object) -> bytes:
    result = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, check=False)
    if result.returncode != 0:
        pytest.fail(f"{command}\n{result.stdout.decode()}{result.stderr.decode()}")
    return result.stdout


def create_environment(directory: Path) -> None:
    """Create an environment with the packages that the service needs, without a network."""
    # That of the tests may be in a home directory, which the units do not see.
    run_program(PYTHON, "-m", "venv", "--without-pip", directory)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in DEPENDENCIES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        without_bytecode = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(spec.origin).parent, packages / name, ignore=without_bytecode)
    # As pip does: the service cannot.
    run_program(PYTHON, "-m", "compileall", "-q", packages)


def install_wheel(directory: Path) -> None:
    """Install the wheel of this checkout."""
    create_environment(directory)
    with tempfile.TemporaryDirectory() as output:
        build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", output, ROOT)
        run_program(sys.executable, *build)
        pip = ("-m", "pip", "--python", directory / "bin" / "python", "install", "--quiet")
        run_program(sys.executable, *pip, "--no-index", "--no-deps", *Path(output).glob("*.whl"))
    program = directory / "bin" / "widget-catalog"
    text = program.read_text(encoding="utf-8")
    program.write_text(text.replace(str(directory), f"/opt/{directory.name}"), encoding="utf-8")


def install_1_0_0(directory: Path) -> None:
    """Install release 1.0.0 as its guide says, with its unit in the directory."""
    directory.mkdir()
    files = ("app.py", "catalog", "schema.sql", "seed", "docs/deployment.md")
    archive = run_program("git", "archive", RELEASE_1_0_0, *files)
    subprocess.run(["tar", "--extract", f"--directory={directory}"], input=archive, check=True)
    create_environment(directory / ".venv")
    (directory / ".venv/bin/flask").write_text(FLASK, encoding="utf-8")
    (directory / ".venv/bin/flask").chmod(0o755)
    guide = (directory / "docs/deployment.md").read_text(encoding="utf-8")
    unit = guide.split("```ini\n")[1].split("```")[0]
    (directory / "widget-catalog.service").write_text(unit, encoding="utf-8")


@cache
def installed(install: Callable[[Path], None], name: str) -> Path:
    """Return a directory in which a release is installed, to be copied to /opt."""
    directory = Path(tempfile.mkdtemp(prefix="release-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, directory)
    install(directory / name)
    return directory / name


class Machine:
    """A booted machine; run() runs a script in it as root."""

    def __init__(self, prepare: str) -> None:
        """Boot it; prepare is a script, whose variable root is the new root directory."""
        find_program("systemctl", "systemd")
        release = installed(install_wheel, "widget-catalog-1.1.0")
        self.directory = Path(tempfile.mkdtemp(prefix="boot-", dir="/var/tmp"))
        (self.directory / "prepare").write_text(
            f'set -eu\nroot=$1\ncp -a {release} "$root/opt/"\n'
            f'rm -rf "$root/etc/nginx/sites-enabled"\n{prepare}\n'
        )
        namespaces = ("--pid", "--mount", "--net", "--uts", "--ipc")
        with (self.directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                ["unshare", "--fork", "--kill-child", *namespaces, "sh", BOOT, self.directory],
                stdout=log,
                stderr=log,
            )
        self._pid = self._wait_for_systemd()

    def _wait_for_systemd(self) -> str:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        deadline = time.monotonic() + SECONDS_TO_BOOT
        while self._process.poll() is None and time.monotonic() < deadline:
            pid = children.read_text().strip()
            if pid and self._enter(pid, "systemctl is-active basic.target").returncode == 0:
                return pid
            time.sleep(0.05)
        log = (self.directory / "log").read_text()
        self.close()
        # As without root, in a container without privileges, or without cgroups of version 2.
        pytest.fail(f"systemd does not boot here: {log}")

    def _enter(self, pid: str, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", "--target", pid, "--all", "--root", "sh", "-c", f"cd /\n{script}"],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def try_run(self, script: str) -> tuple[int, str]:
        """Run the lines until one fails; return the exit code and everything that was printed."""
        result = self._enter(self._pid, f"set -eu\n{script}")
        return result.returncode, result.stdout + result.stderr

    def run(self, script: str) -> str:
        """Run the lines, of which none may fail; return everything that was printed."""
        code, output = self.try_run(script)
        if code != 0:
            journal = self.try_run("journalctl --no-pager --lines 50")[1]
            pytest.fail(f"{script}\n{output}\n{journal}")
        return output

    def close(self) -> None:
        """End all processes of the machine, and remove what it left."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with suppress(OSError, ValueError):
            # The end of the first process is the end of all others.
            os.kill(int(children.read_text()), signal.SIGKILL)
        self._process.wait(20)
        name = f"widget-catalog-boot-{self.directory.name}"
        mounted = subprocess.run(
            ["findmnt", "--noheadings", "--list", "--types", "cgroup2", "--output", "TARGET"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        for target in mounted:
            for folder, *_ in os.walk(Path(target) / name, topdown=False):
                os.rmdir(folder)
        shutil.rmtree(self.directory)
