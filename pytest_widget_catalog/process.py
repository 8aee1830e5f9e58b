"""The server process of a test session, and the pipe to it."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).absolute().parent.parent
# The service is beside this package: installed as widget_catalog, in a checkout as catalog.
SERVICE = "widget_catalog" if (PACKAGES / "widget_catalog").is_dir() else "catalog"
# In isolated mode (-I), neither the working directory nor PYTHONPATH is searched, so that no module
# of the project takes the place of one of the service.
BOOTSTRAP = f"""
import sys
sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1])
del sys.argv[1]
from {SERVICE}.testing.server import main
main()
"""
# Settings of the environment are not for the tests.
SETTING_PREFIXES = ("CATALOG_", "FLASK_", "LISTEN_")


class WidgetCatalogError(Exception):
    """The server did not do what the test requested; the message says why."""


class ServerProcess:
    """A process that serves the catalogs of a session. It ends when this one does."""

    def __init__(self, directory: Path) -> None:
        """Start the process; raise WidgetCatalogError if it does not start."""
        self._lock = threading.Lock()
        self._log = directory / "server.log"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(SETTING_PREFIXES)
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", BOOTSTRAP, str(PACKAGES), str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=environment,
                text=True,
                encoding="utf-8",
                # Ctrl+C must not reach it: it ends with the session.
                start_new_session=True,
            )
        if not (self._process.stdin and self._process.stdout):
            raise AssertionError
        self._input, self._output = self._process.stdin, self._process.stdout
        try:
            self._read_reply()
        except WidgetCatalogError:
            self.close()
            raise

    def request(self, action: str, **arguments: Any) -> Any:
        """Return the result of an action; raise WidgetCatalogError with the server's error."""
        with self._lock:
            try:
                self._input.write(json.dumps({"action": action, "arguments": arguments}) + "\n")
                self._input.flush()
            except (OSError, ValueError):
                raise WidgetCatalogError(self._explain_end()) from None
            return self._read_reply()

    def _read_reply(self) -> Any:
        line = self._output.readline()
        if not line:
            raise WidgetCatalogError(self._explain_end())
        reply = json.loads(line)
        if "error" in reply:
            raise WidgetCatalogError(reply["error"])
        return reply["result"]

    def _explain_end(self) -> str:
        """Return how the process has ended, with the last line that it wrote."""
        code = self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line), "")
        return f"The server of widget-catalog {how}{': ' if last else '.'}{last}"

    def close(self) -> None:
        """End the process and all its services."""
        # What could not be sent to a process that has ended is lost.
        with suppress(OSError):
            self._input.close()
        self._output.close()
        self._process.wait()
