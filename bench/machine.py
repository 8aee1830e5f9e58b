"""When and on what the benchmark ran, and the versions of all that took part."""

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
    """Everything that a reader needs to judge the figures by."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _said(["git", "describe", "--always", "--dirty", "--exclude=*"]),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": platform.platform(terse=True),
            "load at the start": round(os.getloadavg()[0], 2),
        },
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    ours = {name: version(name) for name in ("flask", "flask-cors", "waitress", "werkzeug")}
    known = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version, **ours}
    if shutil.which("node") and JSON_SERVER.exists():
        known["Node.js"] = _said(["node", "--version"])
        manifest = JSON_SERVER.parent.parent / "json-server" / "package.json"
        known["json-server"] = json.loads(manifest.read_text())["version"]
    if (VENV / "datasette").exists():
        for name in ("datasette", "sqlite-utils"):
            known[name] = _said([VENV / name, "--version"]).split()[-1]
    return known


def _processor() -> str:
    lines = _said(["lscpu"]).splitlines()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name")]
    return f"{named[0]} ({platform.machine()})" if named else platform.machine()


def _said(command: Sequence[str | Path]) -> str:
    """What a command prints; nothing where it cannot be run, as git in a copy without history."""
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except OSError:
        return ""
    return ran.stdout.strip()
