"""serve --testing: its settings, its catalog, and its end with the process that started it."""

import logging
import os
import select
import shutil
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click
from flask import Flask

from ..settings import DEFAULTS


def testing_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --testing; its value is the directory of the catalog, or None."""
    text = "Serve a temporary catalog, controlled by tests through requests below /_testing/."
    option = click.option("--testing", is_flag=True, callback=_use_temporary_catalog, help=text)
    return option(function)


def _use_temporary_catalog(
    context: click.Context, option: click.Parameter, is_testing: bool
) -> Path | None:
    """Give the application, which is not created yet, a catalog and settings of its own."""
    if not is_testing or context.resilient_parsing:
        return None
    if "DATABASE" in context.obj.data:
        raise click.UsageError("--testing has a catalog of its own: leave out --database.")
    files = TemporaryDirectory(prefix="widget-catalog-", ignore_cleanup_errors=True)
    directory = Path(context.with_resource(files))
    # They take precedence over the environment, which is not that of a test. A test needs few
    # connections, and some systems allow a process few open files.
    settings = {"DATABASE": str(directory / "catalog.db"), "PORT": "0", "MAX_CONNECTIONS": "200"}
    context.obj.data.update({**DEFAULTS, **settings})
    return directory


def prepare(app: Flask, directory: Path, start: str) -> None:
    """Create the catalog in the directory, and let requests below /_testing/ control it."""
    # Other commands do not need it.
    from .requests import TestRequests

    if app.extensions["database"].path.parent != directory:
        # It would be reset.
        raise click.UsageError("--testing is an option of widget-catalog, not of flask.")
    if app.config["HOST"] not in ("127.0.0.1", "::1", "localhost"):
        # Whoever can connect can change the catalog.
        raise click.UsageError("With --testing, --host must be 127.0.0.1, ::1 or localhost.")
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        # They may be open to other machines.
        raise click.UsageError("--testing takes no sockets from systemd.")
    app.wsgi_app = TestRequests(app, start)  # type: ignore[method-assign]
    threading.Thread(target=end_with_parent, args=(directory,), daemon=True).start()


def end_with_parent(directory: Path) -> NoReturn:
    """Remove the directory and end the process when its parent ends or closes standard input.

    A pipe also ends with the starter of a shell or a launcher. No missing file is logged then.
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
