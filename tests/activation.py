"""Starts the service as systemd does for a socket unit, with listening sockets passed to it."""

import os
import socket
import subprocess
from pathlib import Path
from typing import IO

from prepared_processes import start_python

ROOT = Path(__file__).parent.parent

APP = ("app.py",)
# Puts the descriptors at 3 and above, then runs the service: LISTEN_PID names this process.
WRAPPER = """
import fcntl, os, runpy, sys
_, numbers, *program = sys.argv
descriptors = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in numbers.split(",")]
for number, descriptor in enumerate(descriptors, 3):
    os.dup2(descriptor, number)
listen = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(descriptors))}
os.environ.update({**listen, **os.environ})
if program[0] == "-m":
    sys.argv = program[1:]
    runpy.run_module(program[1], run_name="__main__", alter_sys=True)
else:
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")
"""


def start_with(
    database: Path,
    *passed: socket.socket | IO[bytes],
    program: tuple[str, ...] = APP,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start the service with these descriptors; the environment can override LISTEN_FDS."""
    descriptors = [each.fileno() for each in passed]
    settings = {
        "CATALOG_DATABASE": str(database),
        "CATALOG_LOG_LEVEL": "error",
    }
    numbers = ",".join(map(str, descriptors))
    process: subprocess.Popen[str] = start_python(
        ["-c", WRAPPER, numbers, *program],
        {**os.environ, **settings, **environment},
        cwd=ROOT,
        pass_fds=descriptors,
    )
    return process
