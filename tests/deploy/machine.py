"""A machine that a real systemd boots, in namespaces of its own, with the service installed."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import ROOT
from programs import find_program
from users import IS_ROOT

BOOT = Path(__file__).parent / "boot.sh"
SECONDS_TO_BOOT = 60
PYTHON = "/usr/bin/python3"
DEPENDENCIES = (
    *("blinker", "click", "flask", "flask_cors", "itsdangerous", "jinja2", "markdown_it"),
    *("markupsafe", "mdurl", "prometheus_client", "semver", "urllib3", "waitress", "werkzeug"),
)
PROGRAM = """#!{python}
import runpy, sys
sys.path.insert(0, "{packages}")
sys.argv[0] = "widget-catalog"
runpy.run_module("catalog", run_name="__main__", alter_sys=False)
"""


def install_release(directory: Path) -> None:
    """Install what the wheel installs, without a network."""
    # That of the tests may be in a home directory, which the units do not see.
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", directory], check=True)
    without_bytecode = shutil.ignore_patterns("__pycache__")
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in DEPENDENCIES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(Path(spec.origin).parent, packages / name, ignore=without_bytecode)
    shutil.copytree(ROOT / "catalog", packages / "catalog", ignore=without_bytecode)
    shutil.copy(ROOT / "schema.sql", packages / "catalog")
    shutil.copytree(ROOT / "seed", packages / "catalog" / "seed")
    # As pip does: the service cannot.
    subprocess.run([PYTHON, "-m", "compileall", "-q", packages], check=True)
    shutil.copytree(ROOT / "deploy", directory / "share" / "widget-catalog")
    program = directory / "bin" / "widget-catalog"
    final = Path("/opt") / directory.name
    program.write_text(
        PROGRAM.format(
            python=final / "bin/python", packages=final / packages.relative_to(directory)
        )
    )
    program.chmod(0o755)


class Machine:
    """A booted machine; run() runs a script in it as root."""

    def __init__(self, prepare: str) -> None:
        """Boot it; prepare is a script, whose variable root is the new root directory."""
        find_program("systemctl", "systemd")
        if not IS_ROOT:
            pytest.skip("only root can boot a machine")
        if not Path(PYTHON).exists():
            pytest.skip(f"there is no {PYTHON}")
        self.directory = Path(tempfile.mkdtemp(prefix="boot-", dir="/var/tmp"))
        release = self.directory / "widget-catalog-1.1.0"
        install_release(release)
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
        # As in a container without privileges, or without cgroups of version 2.
        pytest.skip(f"systemd does not boot here: {log}")

    def _enter(self, pid: str, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["nsenter", "--target", pid, "--all", "--root", "sh", "-c", f"cd /\n{script}"],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
            timeout=120,
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
