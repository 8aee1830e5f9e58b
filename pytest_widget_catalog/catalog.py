"""The catalog that a test uses, and the processes that serve catalogs."""

import base64
import http.client
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal
from urllib.parse import parse_qsl

PACKAGES = Path(__file__).absolute().parent.parent
# The service is next to this package: widget_catalog if installed, catalog in a checkout.
SERVICE = "widget_catalog" if (PACKAGES / "widget_catalog").is_dir() else "catalog"
# Isolated mode (-I) ignores the working directory and PYTHONPATH, so that no module in the tested
# project can replace a module of the service.
START = f"import sys; sys.path.append(sys.argv.pop(1)); from {SERVICE}.__main__ import main; main()"

CONTROL_TIMEOUT = 60  # seconds

# The path of a JSON Lines or SQLite file, or one or more widget documents.
Source = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Mapping[str, Any]]


class WidgetCatalogError(Exception):
    """The service could not do what the test requested; the message gives the reason."""


@dataclass(frozen=True)
class RequestRecord:
    """A request that the service received."""

    method: str
    path: str
    # The first value of each query parameter.
    query: dict[str, str]
    # Header names are in lower case.
    headers: dict[str, str]
    # None if the connection was closed without a response.
    status: int | None


class WidgetCatalog:
    """A catalog that `widget-catalog serve --testing` serves to one test after another.

    Tests name a widget "scope/name" and a version "scope/name@version". Every method raises
    WidgetCatalogError if the service rejects the request or has ended.
    """

    def __init__(self, parent: Path) -> None:
        """Start the service with its files below this directory; it ends with this process."""
        directory = Path(mkdtemp(dir=parent))
        self._log = directory / "server.log"
        command = [sys.executable, "-I", "-c", START, str(PACKAGES), "serve", "--testing"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env={**os.environ, "TMPDIR": str(directory)},
                # Ctrl+C must not reach the service, which ends with the session.
                start_new_session=True,
            )
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise self._end_error()
        start = json.loads(line)
        self.url: str = start["url"]
        self.database = Path(start["database"])
        self.pid: int = start["pid"]
        self._start: Mapping[str, Any] = {}

    def publish(
        self,
        name: str,
        version: str,
        *,
        sdk: str | None = None,
        bundle: str | bytes | None = None,
        **fields: Any,
    ) -> None:
        """Publish a version; the first version creates the widget.

        Fields are named as in the API, such as displayName, license, publishedAt or isOfficial; sdk
        is short for sdkVersion. Omitted fields default to valid values. Each version is published a
        second after the previous one. The service stores and serves the bundle, unless a bundleUrl
        is given.
        """
        if isinstance(bundle, bytes):
            fields["bundleBase64"] = base64.b64encode(bundle).decode()
        elif bundle is not None:
            fields["bundle"] = bundle
        self._control("publish", widget=name, version=version, sdk=sdk, **fields)

    def describe(self, widget: str, *, picture: bytes | None = None, **fields: Any) -> None:
        """Set a widget's descriptive fields, such as its readme, homepage and picture.

        Fields are named as in the API, such as readme, homepage, displayName or description. None
        removes a field, and so does an empty picture. A picture is PNG, JPEG, WebP or AVIF.
        """
        if picture is not None:
            fields["pictureBase64"] = base64.b64encode(picture).decode()
        self._control("describe", target=widget, **fields)

    def yank(self, version: str, reason: str | None = None) -> None:
        """Withdraw a version."""
        self._control("yank", target=version, reason=reason)

    def unyank(self, version: str) -> None:
        """Make a yanked version available again."""
        self._control("unyank", target=version)

    def deprecate(self, version: str, message: str) -> None:
        """Set a warning on a version, or on a range of versions such as acme/clock@<2.0.0."""
        self._control("deprecate", target=version, message=message)

    def unlist(self, widget: str) -> None:
        """Hide a widget from the API."""
        self._control("unlist", target=widget)

    def relist(self, widget: str) -> None:
        """Show an unlisted widget again."""
        self._control("relist", target=widget)

    def delete(self, widget_or_version: str) -> None:
        """Delete a widget or a version."""
        self._control("delete", target=widget_or_version)

    def installs(self, widget: str) -> int:
        """Return a widget's install count."""
        return int(self._control("installs", target=widget)["installs"])

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests that the service received, in the order of their responses."""
        return [
            RequestRecord(**{**record, "query": dict(reversed(parse_qsl(record["query"], True)))})
            for record in self._control("requests")["requests"]
        ]

    def clear_requests(self) -> None:
        """Delete the recorded requests."""
        self._control("clear")

    def fail_next(
        self,
        n: int | None = None,
        status: int = 503,
        retry_after: int | str | None = None,
        path: str | None = None,
        method: str | None = None,
        until: Literal["reset"] | None = None,
    ) -> None:
        """Make the next n requests fail with this status; retry_after sets the Retry-After header.

        n is 1 by default. path and method restrict which requests are affected. until="reset",
        instead of n, affects all requests until the test ends or resets the catalog. These
        arguments work in the same way in drop_connection(), cut_off() and damage().
        """
        which = {"path": path, "method": method, "until": until}
        self._control("fail", count=n, status=status, retryAfter=retry_after, **which)

    def drop_connection(
        self,
        n: int | None = None,
        *,
        path: str | None = None,
        method: str | None = None,
        until: Literal["reset"] | None = None,
    ) -> None:
        """For each of the next n requests, close the connection without a response."""
        self._control("drop", count=n, path=path, method=method, until=until)

    def cut_off(
        self,
        n: int | None = None,
        *,
        path: str | None = None,
        method: str | None = None,
        until: Literal["reset"] | None = None,
    ) -> None:
        """For each of the next n requests, close the connection after half of the response body."""
        self._control("cut", count=n, path=path, method=method, until=until)

    def damage(
        self,
        n: int | None = None,
        *,
        path: str | None = None,
        method: str | None = None,
        until: Literal["reset"] | None = None,
    ) -> None:
        """Change a byte in each of the next n responses, so that a bundle has a different hash."""
        self._control("damage", count=n, path=path, method=method, until=until)

    def delay(self, seconds: float, path: str | None = None) -> None:
        """Delay each response from now on; 0 ends the delay."""
        self._control("delay", seconds=seconds, path=path)

    def reset(self, start: Mapping[str, Any] | None = None) -> None:
        """Restore the catalog's initial state for the test, and delete the recorded requests."""
        self._start = self._start if start is None else start
        self._control("reset", **self._start)

    def close(self) -> None:
        """End the service, which removes its files; the fixtures call this."""
        # The service ends when its standard input is closed.
        self._process.communicate()

    def _control(self, action: str, **arguments: Any) -> Any:
        """Send a control request and return its result."""
        address = self.url.partition("://")[2]
        server = http.client.HTTPConnection(address, timeout=CONTROL_TIMEOUT)
        try:
            with closing(server) as connection:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", f"/_testing/{action}", json.dumps(arguments), headers)
                response = connection.getresponse()
                result = json.load(response)
        except TimeoutError:
            raise WidgetCatalogError(
                f"widget-catalog did not respond to {action} within {CONTROL_TIMEOUT} seconds."
            ) from None
        except (ConnectionError, http.client.HTTPException):
            raise self._end_error() from None
        if response.status != http.HTTPStatus.OK:
            raise WidgetCatalogError(result["error"])
        return result

    def _end_error(self) -> WidgetCatalogError:
        """Return an error that says how the service ended, with the last line of its log."""
        self.close()
        code = self._process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = self._log.read_text(encoding="utf-8", errors="replace").rstrip().split("\n")[-1]
        return WidgetCatalogError(f"widget-catalog {how}: {last}".rstrip(": "))


class Catalogs:
    """The catalogs in a test session, each served by a process that one test after another uses."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._idle: list[WidgetCatalog] = []

    @contextmanager
    def serve(self, **start: Any) -> Iterator[WidgetCatalog]:
        """Yield a catalog with this start state."""
        # A test may have killed its catalog's process.
        self._idle = [each for each in self._idle if each._process.poll() is None]
        catalog = self._idle.pop() if self._idle else WidgetCatalog(self._directory)
        try:
            catalog.reset(start)
            yield catalog
        finally:
            self._idle.append(catalog)

    def serve_content(self, source: Source) -> AbstractContextManager[WidgetCatalog]:
        """Yield a catalog with the content of a file, or with these widget documents."""
        if isinstance(source, str | os.PathLike):
            return self.serve(file=os.path.abspath(source))
        return self.serve(documents=[source] if isinstance(source, Mapping) else list(source))

    def save(self, **start: Any) -> Path:
        """Return a new SQLite file with this start state, with its bundles next to it."""
        path = Path(mkdtemp(dir=self._directory), "catalog.db")
        with self.serve(**start) as catalog:
            served, copy = sqlite3.connect(catalog.database), sqlite3.connect(path)
            with closing(served), closing(copy):
                served.backup(copy)
            shutil.copytree(f"{catalog.database}-bundles", f"{path}-bundles")
        return path

    def close(self) -> None:
        """End all processes."""
        for catalog in self._idle:
            catalog.close()
