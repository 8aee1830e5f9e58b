"""What a test can do with its catalog: POST /_testing/NAME with the arguments as a JSON object."""

import base64
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flask import Flask

from ..api.internal.authentication import FailedAttempts
from ..domain.changes import BundleSummary, ConflictError, WidgetName, parse_version, parse_widget
from ..domain.documents import Document, Json, check_document
from ..domain.messages import NotAllowedError, quoted
from ..domain.semver_ranges import is_version
from ..files.jsonl import read_catalog, read_demo
from ..store.bundles.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection, connect
from ..store.connection.transaction import Transaction
from ..store.maintenance.backups import restore
from ..store.read.audit import local_actor
from ..store.read.lookup import find_widget, get_widget
from ..store.read.statistics import find_last_published
from ..store.write import moderation
from ..store.write.demo import create_demo
from ..store.write.documents import put_documents
from ..store.write.publishing import find_published
from .publications import build_publication, check_description, next_timestamp

SQLITE_HEADER = b"SQLite format 3\0"


class Control:
    """A test's catalog; each public method is an action that takes its arguments from JSON."""

    def __init__(self, app: Flask, start: str) -> None:
        """Create the catalog in its start state, "empty" or "demo"."""
        self._app, self._start = app, start
        self._database: Database = app.extensions["database"]
        self._bundles: Bundles = app.extensions["bundles"]
        self._sources: dict[str, Connection] = {}
        self._database.create()
        self.reset()

    def reset(
        self,
        start: str | None = None,
        file: str | None = None,
        documents: list[Any] | None = None,
    ) -> None:
        """Replace the catalog with its start state, or with the given content.

        SQLite overwrites the database's pages in one transaction, so that the running service sees
        either the old catalog or the new one.
        """
        if documents is not None:
            lines = io.BytesIO("\n".join(map(json.dumps, documents)).encode())
            # Error messages contain this name.
            lines.name = "documents"
            source, content = self._find("empty"), read_catalog([lines])
        elif file is not None:
            source, content = self._read_file(Path(file))
        else:
            source, content = self._find(start or self._start), []
        self._database.replace_pages(source)
        if content:
            self._database.transact(lambda transaction: put_documents(transaction, content))
        self._app.extensions["failed_attempts"] = FailedAttempts()

    def _find(self, start: str) -> Connection:
        """Return the empty catalog or the demo catalog; each is created only once."""
        if start not in ("empty", "demo"):
            raise ValueError(f"start must be 'empty' or 'demo', not {quoted(start)}.")
        path = self._database.path.with_name(f"{start}.db")
        source, bundles = Database(path), Bundles(path.with_name(f"{start}.db-bundles"))
        if start not in self._sources:
            if start == "demo":
                create_demo(source, bundles, read_demo())
            else:
                source.create()
            self._sources[start] = connect(path, "mode=ro")
        self._copy_bundles(bundles.directory)
        return self._sources[start]

    def _read_file(self, path: Path) -> tuple[Connection, list[Document]]:
        """Return a copy of an SQLite file; for JSON Lines, an empty catalog and the documents."""
        with path.open("rb") as file:
            if not file.peek(len(SQLITE_HEADER)).startswith(SQLITE_HEADER):
                return self._find("empty"), read_catalog([file])
        copy = self._database.path.with_name("copy.db")
        copy.unlink(missing_ok=True)
        restore(Database(copy), path)
        self._copy_bundles(Path(f"{path}-bundles"))
        return connect(copy, "mode=ro"), []

    def _copy_bundles(self, directory: Path) -> None:
        """Add the bundles in the directory; bundles from the previous test stay but are unused."""
        self._bundles.create()
        saved = Bundles(directory)
        for sha256 in saved.hashes():
            if not self._bundles.has(sha256):
                shutil.copy(saved.path(sha256), self._bundles.directory)

    def publish(
        self,
        widget: str,
        version: str,
        sdk: str | None = None,
        bundle: str | None = None,
        bundleBase64: str | None = None,  # noqa: N803
        **fields: Any,
    ) -> None:
        """Add a version and, unless it has a bundleUrl, store its bundle."""
        if sdk is not None and fields.setdefault("sdkVersion", sdk) != sdk:
            raise ValueError("sdk and sdkVersion are the same field: use one of them.")
        target = read_name(parse_widget, widget)
        default = f'export default "{widget}@{version}";\n'
        content = (default if bundle is None else bundle).encode()
        if bundleBase64 is not None:
            content = decode_base64("bundleBase64", bundleBase64)
        new = BundleSummary(len(content), hashlib.sha256(content).hexdigest())
        is_stored = "bundleUrl" not in fields

        def add(transaction: Transaction) -> None:
            row = find_widget(transaction.read, target.scope, target.name)
            last = find_last_published(transaction.read)
            stored = json.loads(row["json"]) if row else None
            document = check_document(
                build_publication(target, version, new, stored, next_timestamp(last), fields)
            )
            if find_published(transaction, document, compare_url=True):
                raise ConflictError(f"{widget}@{version} already exists.")
            put_documents(transaction, [document], has_bundle=lambda *bundle: is_stored)

        with self._bundles.writing():
            if is_stored:
                # The catalog does not outlive the process, so its files need not survive a power
                # failure.
                self._bundles.add(new.sha256, new.size, [content], durable=False)
            self._database.transact(add)

    def describe(
        self,
        target: str,
        pictureBase64: str | None = None,  # noqa: N803
        **fields: Any,
    ) -> None:
        """Set a widget's descriptive fields, such as its readme, links and picture."""
        widget, changes = read_name(parse_widget, target), check_description(fields)
        picture = decode_base64("pictureBase64", pictureBase64) if pictureBase64 else None
        if pictureBase64 == "":
            changes["picture"] = None
        moderation.edit_widget(
            self._database, self._bundles, local_actor(), widget, changes, picture
        )

    def yank(self, target: str, reason: str | None = None) -> None:
        """Withdraw versions."""
        self._moderate(moderation.set_yanked, target, True, reason)

    def unyank(self, target: str) -> None:
        """Make versions available again."""
        self._moderate(moderation.set_yanked, target, False, "")

    def deprecate(self, target: str, message: str) -> None:
        """Set a deprecation warning on versions."""
        self._moderate(moderation.set_deprecation, target, message)

    def _moderate(self, change: Callable[..., object], target: str, *state: object) -> None:
        change(self._database, local_actor(), [read_name(parse_version, target)], *state)

    def unlist(self, target: str) -> None:
        """Hide a widget."""
        self._set_listed(target, False)

    def relist(self, target: str) -> None:
        """Show a widget again."""
        self._set_listed(target, True)

    def _set_listed(self, target: str, listed: bool) -> None:
        widget = read_name(parse_widget, target)
        changes = {"listed": listed}
        moderation.edit_widget(self._database, self._bundles, local_actor(), widget, changes)

    def delete(self, target: str) -> None:
        """Delete a widget or a version."""
        # A widget's name may also contain an @.
        parse = parse_version if is_version(target.rpartition("@")[2]) else parse_widget
        moderation.delete(self._database, local_actor(), read_name(parse, target))

    def installs(self, target: str) -> Json:
        """Return a widget's install count."""
        row = get_widget(self._database.fetch, read_name(parse_widget, target))
        return {"installs": row["download_count"] or 0}


def decode_base64(name: str, text: str) -> bytes:
    """Decode an argument from base64; raise ValueError if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{name} must be base64.") from None


def read_name(parse: Callable[[str], WidgetName], text: str) -> WidgetName:
    """Parse the name of a widget or version; raise ValueError if it is invalid."""
    try:
        return parse(text)
    except NotAllowedError as error:
        raise ValueError(f"{quoted(text)} is not {error}.") from None
