"""Date, commit, machine and software versions of a run."""

import json
import os
import platform
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers import JSON_SERVER, VENV
from bench.processes import ROOT


def facts() -> dict[str, Any]:
    """The facts that a reader needs to judge the figures."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _output(["git", "describe", "--always", "--dirty", "--exclude=*"]),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": platform.platform(terse=True),
            "load_average": round(os.getloadavg()[0], 2),
        },
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    runtime = {name: version(name) for name in ("flask", "flask-cors", "waitress", "werkzeug")}
    known = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version, **runtime}
    if shutil.which("node") and JSON_SERVER.exists():
        known["Node.js"] = _output(["node", "--version"])
        manifest = JSON_SERVER.parent.parent / "json-server" / "package.json"
        known["json-server"] = json.loads(manifest.read_text())["version"]
    if (VENV / "datasette").exists():
        for name in ("datasette", "sqlite-utils"):
            known[name] = _output([VENV / name, "--version"]).split()[-1]
    return known


def _processor() -> str:
    lines = _output(["lscpu"]).splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name")]
    return f"{names[0]} ({platform.machine()})" if names else platform.machine()


def _output(command: Sequence[str | Path]) -> str:
    """Standard output of a command; empty if the command does not exist."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except OSError:
        return ""
    return result.stdout.strip()
