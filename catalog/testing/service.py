"""serve --testing: prepares the catalog, and ends the service with the process that started it."""

import logging
import os
import select
import shutil
import stat
import sys
import threading
from pathlib import Path
from typing import NoReturn

import click
from flask import Flask

from .requests import ControlRequests


def prepare(app: Flask, directory: Path, start: str) -> None:
    """Create the catalog in the directory, and let requests below /_testing/ control it."""
    if app.extensions["database"].path.parent != directory:
        # This is not a temporary catalog, and tests would overwrite it.
        raise click.UsageError("--testing is an option of widget-catalog, not of flask.")
    if app.config["HOST"] not in ("127.0.0.1", "::1", "localhost"):
        # Anyone who can connect can change the catalog.
        raise click.UsageError("With --testing, --host must be 127.0.0.1, ::1 or localhost.")
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        # A socket from systemd may be reachable from other machines.
        raise click.UsageError("--testing does not support sockets from systemd.")
    app.wsgi_app = ControlRequests(app, start)  # type: ignore[method-assign]
    threading.Thread(target=end_with_parent, args=(directory,), daemon=True).start()


def end_with_parent(directory: Path) -> NoReturn:
    """Remove the directory and end the process when its parent ends or closes standard input.

    The parent may be only a shell or a launcher. If standard input is a pipe, it closes when the
    process that opened it ends. Logging stops first, because requests may fail while the directory
    is removed.
    """
    parent, kind = os.getppid(), stat.S_IFMT(os.fstat(0).st_mode) if sys.stdin else 0
    inputs = [0] if kind in (stat.S_IFIFO, stat.S_IFSOCK) else []
    while os.getppid() == parent:
        readable, _, _ = select.select(inputs, [], [], 1)
        if readable and not os.read(0, 4096):
            break
    logging.disable()
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)
