"""Unpacking: replaces the catalog with a pack, or adds only the bundles that the catalog lacks."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..domain.documents import DocumentError, Json, parse_json
from ..domain.messages import quoted
from ..domain.validators import (
    check_base_url,
    check_boolean,
    check_etag,
    check_identifier,
    check_sha256,
    check_version,
    check_whole_number,
)
from ..store.bundles.bundles import Bundles
from ..store.bundles.compressed import compress_bundle
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, connect
from ..store.connection.transaction import Transaction, Values
from ..store.maintenance import backups
from ..store.read.export import count_selected
from ..store.read.pack_lines import find_unpacked
from ..store.read.statistics import find_newest_time
from ..store.read.stored_bundles import named_pictures, stored_hashes
from ..store.write.documents import put_documents
from ..store.write.pack_lines import put_deleted_lines, put_mirrored_lines
from ..system.atomic_files import scratch_directory
from .jsonl import MAX_LINE_BYTES, CatalogReader
from .pack_reader import PackError, PackReader
from .packs import (
    BUNDLES,
    CATALOG,
    DELETED,
    FILES,
    MIRRORED,
    add_bundle,
    read_sums,
    verified,
)

# The maximum number of widgets in memory at the same time.
BATCH_SIZE = 1000
OnProgress = Callable[[int, int], None]
PutLines = Callable[[Transaction, Iterable[Values]], None]


def _optional(check: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else check(value)


NAMES = {"scope": check_identifier, "name": check_identifier}
# For each file, the function that writes its lines, and a check for each field in a line.
LINES: dict[str, tuple[PutLines, Mapping[str, Callable[[object], Any]]]] = {
    MIRRORED: (
        put_mirrored_lines,
        {
            **NAMES,
            "source": check_base_url,
            "etag": _optional(check_etag),
            "upstreamCount": _optional(check_whole_number),
            "gone": check_boolean,
        },
    ),
    DELETED: (put_deleted_lines, {**NAMES, "version": check_version, "sha256Hash": check_sha256}),
}


class Differences(NamedTuple):
    """The differences between a catalog and the pack that is to replace it."""

    # Widgets that are not in the pack, and versions of other widgets that are not in the pack.
    widgets: list[str]
    versions: list[str]
    # When the newest version or widget was added: in this catalog, and in the pack.
    newest: str
    newest_packed: str


class UnpackResult(NamedTuple):
    """How much a pack contains, what it replaced, and the new path of a damaged database."""

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
    """Replace the catalog with the pack in one step; if the pack is invalid, change nothing.

    The old catalog's tokens, audit log and hashes of deleted versions are kept, and so are install
    counts that are higher than in the pack. on_progress() is called with the number of bundles read
    and the total. confirm() is called before an existing catalog is replaced; it may raise.
    """
    with ExitStack() as stack:
        reader = PackReader(file)
        sums = read_sums(reader)
        files = {name: stack.enter_context(verified(reader, name, sums)) for name in FILES}
        hashes = [*sums.values()][len(FILES) :]
        new_bundles = stack.enter_context(bundles.incoming())
        for number, sha256 in enumerate(hashes, start=1):
            add_bundle(reader, new_bundles, sha256)
            on_progress(number, len(hashes))
        reader.check_end()
        new_database = Database(
            stack.enter_context(scratch_directory(database.scratch_parent)) / "catalog.db"
        )
        new_database.create(partial(_fill, files=files, bundles=new_bundles))
        with closing(connect(new_database.path, "mode=ro")) as connection:
            _check_pictures(named_pictures(connection), new_bundles)
            _compress(stored_hashes(connection), new_bundles)
            widgets, versions = count_selected(connection)
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
    """Store only the bundles that the catalog names, and change nothing else.

    Return how many bundles were stored, and how many other bundles the pack contains.
    """
    with database.read() as connection:
        pictures = named_pictures(connection)
        stored = stored_hashes(connection)
        named = {*stored, *(each["sha256Hash"] for _, each in pictures)}
    with ExitStack() as stack:
        reader = PackReader(file)
        sums = read_sums(reader)
        for name in FILES:
            with verified(reader, name, sums):
                pass
        hashes = [*sums.values()][len(FILES) :]
        new_bundles = stack.enter_context(bundles.incoming())
        for number, sha256 in enumerate(hashes, start=1):
            if sha256 in named:
                add_bundle(reader, new_bundles, sha256)
            else:
                reader.open(BUNDLES + sha256)
            on_progress(number, len(hashes))
        reader.check_end()
        _check_pictures(pictures, new_bundles)
        _compress(stored, new_bundles)
        found = named.intersection(hashes)
        stack.enter_context(bundles.writing())
        for sha256 in found:
            bundles.accept(new_bundles, sha256)
        bundles.sync()
    return len(found), len(hashes) - len(found)


def _compress(hashes: Iterable[str], bundles: Bundles) -> None:
    for sha256 in hashes:
        compress_bundle(bundles, sha256)


def _compare(database: Database, packed: sqlite3.Connection) -> Differences:
    """Compare the catalog with the one in the pack; a damaged catalog counts as empty."""
    widgets: list[str] = []
    versions: list[str] = []
    newest = ""
    with suppress(DatabaseError, sqlite3.DatabaseError), database.read() as connection:
        newest = find_newest_time(connection)
        widgets, versions = find_unpacked(connection, packed)
    return Differences(widgets, versions, newest, find_newest_time(packed))


def _fill(transaction: Transaction, files: dict[str, BinaryIO], bundles: Bundles) -> None:
    """Write the content of a pack into an empty database."""
    reader = CatalogReader([files[CATALOG]])
    try:
        for documents in reader.batches(BATCH_SIZE):
            put_documents(transaction, documents, has_bundle=bundles.has)
    except DocumentError as error:
        raise reader.all_problems() from error
    for name, (put_lines, fields) in LINES.items():
        lines = iter(partial(files[name].readline, MAX_LINE_BYTES), b"")
        try:
            put_lines(transaction, (_parse_line(line, fields) for line in lines))
        except (ValueError, RecursionError, sqlite3.Error) as error:
            raise PackError(f"{name} in the pack cannot be read: {error}.") from error


def _check_pictures(pictures: Iterable[tuple[str, Json]], bundles: Bundles) -> None:
    """Raise PackError if a file in the pack is not the picture that the catalog describes."""
    for path, picture in pictures:
        sha256 = picture["sha256Hash"]
        if bundles.has(sha256) and not bundles.has_picture(picture):
            raise PackError(f"The file {sha256} in the pack does not match the picture of {path}.")


def _parse_line(line: bytes, fields: Mapping[str, Callable[[object], Any]]) -> Json:
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("a line is not a JSON object")
    # Release 1.0 does not write the "gone" key.
    given = {"gone": False, **value}
    return {field: _check_field(field, given.get(field), fields[field]) for field in fields}


def _check_field(field: str, value: object, check: Callable[[object], Any]) -> Any:
    try:
        return check(value)
    except ValueError as allowed:
        raise ValueError(f"{field} must be {allowed}, not {quoted(value)}") from None
