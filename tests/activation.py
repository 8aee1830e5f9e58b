"""Starts the service as systemd does for a socket unit, with listening sockets passed to it."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent

APP = ("app.py",)
# Puts the descriptors at 3 and above, then becomes the service: LISTEN_PID names this process.
WRAPPER = """
import fcntl, os, sys
descriptors = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in sys.argv[1].split(",")]
for number, descriptor in enumerate(descriptors, 3):
    os.dup2(descriptor, number)
environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(descriptors)), **os.environ}
os.execve(sys.executable, [sys.executable, *sys.argv[2:]], environment)
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
        "CATALOG_PORT": "0",
        "CATALOG_LOG_LEVEL": "error",
    }
    numbers = ",".join(map(str, descriptors))
    return subprocess.Popen(
        [sys.executable, "-c", WRAPPER, numbers, *program],
        cwd=ROOT,
        env={**os.environ, **settings, **environment},
        pass_fds=descriptors,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
