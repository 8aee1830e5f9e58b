"""Catalogs of a test suite: how their files are made, read and changed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click import ClickException
from flask import Flask

from ..application import create_app
from ..documents import Json, check_document
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.write.audit import local_actor
from ..store.write.lookup import ConflictError
from ..store.write.publishing import add_version, find_published
from .publications import (
    build_publication,
    check_keys,
    make_bundle,
    next_timestamp,
)

SQLITE_HEADER = b"SQLite format 3\0"

FIND_LAST = """
SELECT EXISTS (SELECT 1 FROM widget WHERE scope = :scope AND name = :name) AS is_known,
    (SELECT max(published_at) FROM version) AS last
"""

# One application serves every catalog, each in a process with its own working directory: creating
# one takes as long as all the rest of a test's set-up.
FILE_NAME = "catalog.db"
SETTINGS = {
    "DATABASE": FILE_NAME,
    "PORT": 0,
    # A test needs few, and some systems allow a process few open files.
    "MAX_CONNECTIONS": 200,
    "LOG_LEVEL": "error",
}


class LocalCatalog:
    """A catalog in a directory of its own, and what a test does to it as its operator.

    Every method changes the working directory of the process. No connection stays open after a
    method returns: SQLite's must not be open across a fork.
    """

    def __init__(self, app: Flask, directory: Path) -> None:
        """Use a new directory; there is no file yet."""
        directory.mkdir(parents=True)
        self.app, self.directory = app, directory
        self.path = directory / FILE_NAME

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Have the database for the block."""
        os.chdir(self.directory)
        database: Database = self.app.extensions["database"]
        try:
            yield database
        finally:
            database.close()

    def run(self, *arguments: str) -> str:
        """Run a command of the operator and return its output; raise ClickException."""
        with self.database():
            result = self.app.test_cli_runner().invoke(args=arguments)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:
            raise ClickException(result.stderr.rpartition("Error: ")[2].strip())
        return result.stdout

    def publish(
        self, name: str, version: str, base_url: str, content: bytes | None, fields: Json
    ) -> None:
        """Add a version and, unless it has a bundleUrl, store its bundle; raise DocumentError."""
        scope, _, widget = name.partition("/")
        held, content = make_bundle(scope, widget, version, content)
        is_stored = "bundleUrl" not in fields
        bundles: Bundles = self.app.extensions["bundles"]

        def add(transaction: Transaction) -> None:
            ((is_known, last),) = transaction.read(FIND_LAST, {"scope": scope, "name": widget})
            check_keys(fields.keys(), is_new_widget=not is_known)
            document = check_document(
                build_publication(held, base_url, next_timestamp(last), fields)
            )
            if find_published(transaction, document, compare_url=True):
                raise ConflictError(f"{name}@{version} exists already.")
            if is_stored:
                bundles.add(held.sha256, held.size, [content])
            add_version(transaction, document, is_stored=is_stored)

        with self.database() as database, bundles.writing():
            database.transact(add, local_actor())


class CatalogTemplates:
    """Creates catalogs. The empty and the demo catalog are made once and copied.

    Creating a file takes up to 50 ms on a disk, copying it 1 ms, with the bundles of the demo
    catalog 5 ms.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._app = create_app(SETTINGS)

    def create(self, directory: Path, source: str) -> LocalCatalog:
        """Return a new catalog: "empty", "demo", or with the content of a file.

        The file is a catalog file or the SQLite file of a catalog.
        """
        catalog = LocalCatalog(self._app, directory)
        if is_sqlite(source):
            catalog.run("restore", "--", source)
            copy_bundles(source, directory)
            return catalog
        template = self._template("demo" if source == "demo" else "empty")
        shutil.copyfile(template, catalog.path)
        copy_bundles(str(template), directory)
        if source not in ("empty", "demo"):
            catalog.run("import", "--", source)
        return catalog

    def _template(self, name: str) -> Path:
        directory = self._directory / f"template-{name}"
        if not directory.exists():
            options = ["--demo"] if name == "demo" else []
            LocalCatalog(self._app, directory).run("init", *options)
        return directory / FILE_NAME


def is_sqlite(source: str) -> bool:
    """Return whether there is an SQLite file at the path."""
    try:
        with open(source, "rb") as file:
            return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER
    except OSError:
        # The command that reads the file reports it.
        return False


def copy_bundles(source: str, directory: Path) -> None:
    """Copy the held bundles that are beside the SQLite file."""
    bundles = Path(f"{source}-bundles")
    if bundles.is_dir():
        shutil.copytree(bundles, directory / f"{FILE_NAME}-bundles")
