"""The catalog that a test uses: what it can do with it and read from it."""

import base64
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pytest_widget_catalog.process import ServerProcess, WidgetCatalogError

# A catalog file or the SQLite file of a catalog; or widget documents.
Source = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class RequestRecord:
    """A request that the service received."""

    method: str
    path: str
    # The first value of each parameter.
    query: dict[str, str]
    # With names in lower case.
    headers: dict[str, str]
    # None if the connection was closed without a response.
    status: int | None


class WidgetCatalog:
    """A catalog that is served on a port of its own, from a file of its own.

    WIDGET is "scope/name", VERSION is "scope/name@version". Every method raises WidgetCatalogError
    if the service refuses it, or has ended.
    """

    def __init__(self, server: ServerProcess, directory: Path, source: str) -> None:
        self._server = server
        reply = server.request("start", directory=str(directory), source=source)
        self.database = Path(reply["database"])
        self.url: str = reply["url"]
        # The process that serves this catalog.
        self.pid: int = reply["service"]

    def publish(
        self,
        name: str,
        version: str,
        *,
        sdk: str = "^1.0.0",
        bundle: str | bytes | None = None,
        **fields: Any,
    ) -> None:
        """Publish a version; the first one creates the widget.

        Fields have the names of the API, such as displayName, license, publishedAt or isOfficial.
        Those not given have valid values. Each version is published a second after the last one.
        The bundle is stored and served, unless a bundleUrl is given.
        """
        content = bundle.encode() if isinstance(bundle, str) else bundle
        self._request(
            "publish",
            name=name,
            version=version,
            bundle=None if content is None else base64.b64encode(content).decode(),
            fields={"sdkVersion": sdk, **fields},
        )

    def yank(self, version: str, reason: str | None = None) -> None:
        """Withdraw a version."""
        self._run("yank", *([] if reason is None else [f"--reason={reason}"]), "--", version)

    def unyank(self, version: str) -> None:
        """Make a yanked version available again."""
        self._run("unyank", "--", version)

    def deprecate(self, version: str, message: str) -> None:
        """Set a warning on a version, or on a range of versions such as acme/clock@<2.0.0."""
        self._run("deprecate", "--", version, message)

    def unlist(self, widget: str) -> None:
        """Hide a widget from the API."""
        self._run("unlist", "--", widget)

    def relist(self, widget: str) -> None:
        """Show an unlisted widget again."""
        self._run("relist", "--", widget)

    def delete(self, widget_or_version: str) -> None:
        """Delete a widget or a version."""
        self._run("delete", "--yes", "--", widget_or_version)

    def installs(self, widget: str) -> int:
        """Return the install count of a widget."""
        document = json.loads(self._run("show", "--json", "--", widget))
        return document["widget"]["downloadCount"] or 0

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests that the service received, in the order of their responses."""
        lines = self._file("requests.jsonl").read_text(encoding="utf-8").splitlines()
        return [
            RequestRecord(**{**record, "query": first_values(record["query"])})
            for record in map(json.loads, lines)
        ]

    def clear_requests(self) -> None:
        """Forget the requests that the service received."""
        os.truncate(self._file("requests.jsonl"), 0)

    def fail_next(
        self, n: int = 1, status: int = 503, retry_after: int | str | None = None
    ) -> None:
        """Let the next n requests fail with this status; retry_after is the header Retry-After."""
        if not 400 <= status <= 599:
            raise ValueError(f"status must be from 400 to 599, not {status}")
        self._add_faults(n, status, None if retry_after is None else str(retry_after))

    def drop_connection(self, n: int = 1) -> None:
        """Close the connection of each of the next n requests without a response."""
        self._add_faults(n, None, None)

    def delay(self, seconds: float) -> None:
        """Delay each response from now on; 0 ends it."""
        # A new file in one step: the service may read it at any time.
        self._file("new-delay").write_text(str(seconds))
        self._file("new-delay").replace(self._file("delay"))

    def close(self) -> None:
        """End the service and remove its files; the fixtures do so at the end of the test."""
        # If the server was killed, there is no service to stop.
        with suppress(WidgetCatalogError):
            self._server.request("stop", service=self.pid)
        shutil.rmtree(self.database.parent, ignore_errors=True)

    def _request(self, action: str, **arguments: Any) -> Any:
        return self._server.request(action, service=self.pid, **arguments)

    def _run(self, *arguments: str) -> str:
        output: str = self._request("run", arguments=arguments)
        return output

    def _file(self, name: str) -> Path:
        """Return a file of catalog/testing/request_control.py."""
        return self.database.with_name(name)

    def _add_faults(self, count: int, status: int | None, retry_after: str | None) -> None:
        line = json.dumps({"status": status, "retry_after": retry_after}) + "\n"
        with self._file("faults.jsonl").open("ab", buffering=0) as file:
            file.write(line.encode() * count)


def first_values(query: str) -> dict[str, str]:
    """Return the first value of each parameter of a query string."""
    pairs = parse_qsl(query, keep_blank_values=True)
    return dict(reversed(pairs))


class CatalogFactory:
    """Makes the catalogs of a session with one server process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = ServerProcess(directory)
        self._numbers = itertools.count(1)

    def serve(self, source: str) -> WidgetCatalog:
        """Return a catalog that is served: "empty", "demo", or with the content of a file."""
        return WidgetCatalog(self._server, self._new_directory(), source)

    def serve_content(self, source: Source) -> WidgetCatalog:
        """Return a catalog with the content of a file, or of widget documents."""
        if isinstance(source, str | os.PathLike):
            return self.serve(os.path.abspath(source))
        documents = [source] if isinstance(source, Mapping) else source
        path = self._directory / f"{next(self._numbers)}.jsonl"
        path.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
        try:
            return self.serve(str(path))
        finally:
            path.unlink()

    def create_file(self, source: str) -> Path:
        """Return the path of a new SQLite file."""
        directory = str(self._new_directory())
        return Path(self._server.request("create", directory=directory, source=source))

    def close(self) -> None:
        """End the server process."""
        self._server.close()

    def _new_directory(self) -> Path:
        return self._directory / str(next(self._numbers))
