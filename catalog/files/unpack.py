"""Unpacking: a catalog, or only the bundles that it lacks, from a pack."""

import sqlite3
import tarfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..atomic_files import scratch_directory
from ..documents import DocumentError, Json, parse_json
from ..store import backups
from ..store.bundles import BundleError, Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, connect
from ..store.connection.transaction import Transaction
from ..store.schema.schema import COUNT_ALL
from ..store.write.held_bundles import held_bundles, hold_bundles
from ..store.write.imports import put_documents
from ..text import quoted
from ..validators import (
    check_base_url,
    check_boolean,
    check_etag,
    check_identifier,
    check_sha256,
    check_version,
    check_whole_number,
)
from .jsonl import MAX_LINE_BYTES, CatalogReader
from .packs import (
    BUNDLES,
    CATALOG,
    DELETED,
    FILES,
    MIRRORED,
    PackError,
    check_end,
    chunks,
    held_hashes,
    next_member,
    open_pack,
    picture_hashes,
    read_sums,
    verified,
)

# Widgets that are in memory at the same time.
BATCH_SIZE = 1000
OnProgress = Callable[[int, int], None]

PUT_MIRRORED = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count, gone)
SELECT id, :source, :etag, :upstreamCount, :gone FROM widget WHERE scope = :scope AND name = :name
"""
PUT_DELETED = """
INSERT INTO deleted_version (scope, name, version, sha256_hash)
VALUES (:scope, :name, :version, :sha256Hash) ON CONFLICT DO NOTHING
"""


def _optional(check: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else check(value)


# What a line of each file must have.
NAMES = {"scope": check_identifier, "name": check_identifier}
LINES: dict[str, tuple[str, Mapping[str, Callable[[object], Any]]]] = {
    MIRRORED: (
        PUT_MIRRORED,
        {
            **NAMES,
            "source": check_base_url,
            "etag": _optional(check_etag),
            "upstreamCount": _optional(check_whole_number),
            "gone": check_boolean,
        },
    ),
    DELETED: (PUT_DELETED, {**NAMES, "version": check_version, "sha256Hash": check_sha256}),
}


class Differences(NamedTuple):
    """How a catalog differs from the pack that is to replace it."""

    # The widgets, and the versions of other widgets, that are not in the pack.
    widgets: list[str]
    versions: list[str]
    # When the newest version or widget was added to the catalog, and to that of the pack.
    newest: str
    newest_packed: str


class UnpackResult(NamedTuple):
    """The content of a pack, what it replaced, and where a damaged database was moved to."""

    widgets: int
    versions: int
    bundles: int
    differences: Differences
    damaged: Path | None


def unpack_catalog(
    file: BinaryIO,
    database: Database,
    bundles: Bundles,
    on_progress: OnProgress,
    confirm: Callable[[Differences], None],
) -> UnpackResult:
    """Replace the catalog with the pack in one step; raise and change nothing if it is invalid.

    Of the old catalog, backups.restore() keeps tokens and record; here it also keeps the higher
    install count of each widget, and what was deleted. on_progress gets the number of bundles read
    and their total. If there is a catalog, confirm() may raise before it is replaced.
    """
    with open_pack(file) as archive, ExitStack() as stack:
        sums = read_sums(archive)
        files = {name: stack.enter_context(verified(archive, name, sums)) for name in FILES}
        hashes = [*sums.values()][len(FILES) :]
        new_bundles = stack.enter_context(bundles.incoming())
        for number, sha256 in enumerate(hashes, start=1):
            _add_bundle(archive, new_bundles, sha256)
            on_progress(number, len(hashes))
        check_end(archive)
        new_database = Database(
            stack.enter_context(scratch_directory(database.scratch_parent)) / "catalog.db"
        )
        new_database.create(partial(_fill, files=files, bundles=new_bundles))
        with closing(connect(new_database.path, "mode=ro")) as connection:
            widgets, versions = connection.execute(COUNT_ALL).fetchone()
            differences = _compare(database, connection)
        if database.exists():
            confirm(differences)
        stack.enter_context(bundles.writing())
        for sha256 in hashes:
            bundles.accept(new_bundles, sha256)
        bundles.sync()
        damaged = backups.restore(database, new_database.path, action="unpack", keeps_history=True)
    return UnpackResult(widgets, versions, len(hashes), differences, damaged)


def unpack_bundles(
    file: BinaryIO, database: Database, bundles: Bundles, on_progress: OnProgress
) -> tuple[int, int]:
    """Store those bundles of the pack that the catalog names; nothing else changes.

    Return their number, and that of the other bundles of the pack.
    """
    with database.read() as connection:
        named = {*held_hashes(connection), *picture_hashes(connection)}
    with open_pack(file) as archive, ExitStack() as stack:
        sums = read_sums(archive)
        for name in FILES:
            with verified(archive, name, sums):
                pass
        hashes = [*sums.values()][len(FILES) :]
        new_bundles = stack.enter_context(bundles.incoming())
        for number, sha256 in enumerate(hashes, start=1):
            if sha256 in named:
                _add_bundle(archive, new_bundles, sha256)
            else:
                next_member(archive, BUNDLES + sha256)
            on_progress(number, len(hashes))
        check_end(archive)
        found = named.intersection(hashes)
        stack.enter_context(bundles.writing())
        for sha256 in found:
            bundles.accept(new_bundles, sha256)
        bundles.sync()
    return len(found), len(hashes) - len(found)


NEWEST = """
SELECT max(coalesce((SELECT max(published_at) FROM version), ''),
           coalesce((SELECT max(created_at) FROM widget), ''))
"""
ALL_VERSIONS = """
SELECT scope, name, version FROM widget LEFT JOIN version ON widget.id = widget_id
ORDER BY scope, name, precedence
"""
IS_PACKED = """
SELECT count(*), count(version.id) FROM widget
LEFT JOIN version ON widget.id = widget_id AND version = :version
WHERE scope = :scope AND name = :name
"""


def _compare(database: Database, packed: sqlite3.Connection) -> Differences:
    """Return how the catalog differs from the packed one; a damaged one has nothing to compare."""
    widgets: dict[str, None] = {}
    versions = []
    newest = ""
    with suppress(DatabaseError, sqlite3.DatabaseError), database.read() as connection:
        (newest,) = connection.execute(NEWEST).fetchone()
        for scope, name, version in connection.execute(ALL_VERSIONS):
            values = {"scope": scope, "name": name, "version": version}
            has_widget, has_version = packed.execute(IS_PACKED, values).fetchone()
            if not has_widget:
                widgets[f"{scope}/{name}"] = None
            elif version and not has_version:
                versions.append(f"{scope}/{name}@{version}")
    (newest_packed,) = packed.execute(NEWEST).fetchone()
    return Differences([*widgets], versions, newest, newest_packed)


def _fill(transaction: Transaction, files: dict[str, BinaryIO], bundles: Bundles) -> None:
    """Write the content of a pack into an empty database."""
    reader = CatalogReader([files[CATALOG]])
    try:
        for documents in reader.batches(BATCH_SIZE):
            put_documents(transaction, documents)
            versions = (version for document in documents for version in held_bundles(document))
            held = (each for each in versions if bundles.holds(each.sha256, each.size))
            hold_bundles(transaction, held)
    except DocumentError as error:
        raise reader.all_problems() from error
    for name, (statement, fields) in LINES.items():
        lines = iter(partial(files[name].readline, MAX_LINE_BYTES), b"")
        try:
            transaction.execute_many(statement, (_parse_line(line, fields) for line in lines))
        except (ValueError, RecursionError, sqlite3.Error) as error:
            raise PackError(f"{name} in the pack cannot be read: {error}.") from error


def _parse_line(line: bytes, fields: Mapping[str, Callable[[object], Any]]) -> Json:
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("a line is not a JSON object")
    # Release 1.0 does not write "gone".
    given = {"gone": False, **value}
    return {field: _check_field(field, given.get(field), fields[field]) for field in fields}


def _check_field(field: str, value: object, check: Callable[[object], Any]) -> Any:
    try:
        return check(value)
    except ValueError as allowed:
        raise ValueError(f"{field} must be {allowed}, not {quoted(value)}") from None


def _add_bundle(archive: tarfile.TarFile, bundles: Bundles, sha256: str) -> None:
    content = next_member(archive, BUNDLES + sha256)
    try:
        bundles.add(sha256, None, chunks(content))
    except BundleError as error:
        raise PackError(f"The bundle {sha256} in the pack is invalid: {error}.") from error
