"""The commit, machine and software versions of a run."""

import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from importlib.metadata import version

from bench.processes import ROOT

# If the load average is higher at the start, other processes would skew the measurement.
IDLE_LOAD = 0.5


def commit() -> str:
    """The commit, with "-dirty" if files differ from it; "unknown" without git."""
    return _output(["git", "describe", "--always", "--dirty", "--exclude=*"]) or "unknown"


def describe() -> str:
    """Return this machine's processor, cores, memory, system, disk and software versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = " ".join(f"{name} {version(name)}," for name in ("flask", "waitress", "werkzeug"))
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.platform(terse=True)}, {_file_system()}, Python {platform.python_version()}, "
        f"{packages} SQLite {sqlite3.sqlite_version}"
    )


def find_doubts(commit: str, load: float) -> list[str]:
    """Return the reasons to doubt figures that were measured for this commit at this load."""
    doubts = []
    if commit.endswith("-dirty") or commit == "unknown":
        doubts.append("**The commit is not clean**: the measured files differ from it.")
    if load > IDLE_LOAD:
        doubts.append(f"**The machine was busy**: load average {load:.2f} at the start.")
    return doubts


def _file_system() -> str:
    """Return the file system and the disk that hold the databases."""
    columns = ["--noheadings", "--output=FSTYPE,SOURCE", f"--target={ROOT}"]
    return " on ".join(_output(["findmnt", *columns]).split())


def _processor() -> str:
    lines = _output(["lscpu"]).splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name")]
    return f"{names[0]} ({platform.machine()})" if names else platform.machine()


def _output(command: Sequence[str]) -> str:
    """Return the standard output of a command; empty if the command does not exist."""
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)
    except OSError:
        return ""
    return result.stdout.strip()
