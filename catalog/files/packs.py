"""Packs: a whole catalog and its bundles in one file.

A pack is a plain tar archive that begins with SHA256SUMS; the members that it names follow in the
same order. The same catalog gives the same bytes. It contains the catalog as JSON Lines and not as
a SQLite file, because the bytes of such a file depend on its history and on the release of SQLite,
and because one from an unknown source can contain more than data, such as triggers.
"""

import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from catalog.atomic_files import scratch_directory
from catalog.documents import Document, parse_json
from catalog.files.jsonl import MAX_LINE_BYTES, CatalogFileError, read_catalog
from catalog.files.tar_reader import CHUNK_SIZE, ArchiveError, Member, NotAFileError, read_members
from catalog.store import backups
from catalog.store.bundles import BundleError, Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Transaction
from catalog.store.read.export import catalog_lines
from catalog.store.write import held_bundles as bundle_writes
from catalog.store.write import mirrored as mirror_writes
from catalog.store.write.held_bundles import HeldBundle
from catalog.store.write.imports import put_documents
from catalog.store.write.mirrored import MirroredWidget
from catalog.text import quoted
from catalog.validators import (
    check_http_url,
    check_identifier,
    check_text,
    check_whole_number,
)

SUMS, CATALOG, MIRRORED, BUNDLES = "SHA256SUMS", "catalog.jsonl", "mirrored.jsonl", "bundles/"
SUMS_LINE = re.compile(rf"([0-9a-f]{{64}})  ({CATALOG}|{MIRRORED}|{BUNDLES}[0-9a-f]{{64}})\n")
# Enough for nearly two million bundles.
MAX_SUMS_BYTES = 256 * 1024 * 1024

T = TypeVar("T")


class PackError(Exception):
    """The pack cannot be written or read; the message says why in one sentence."""


HELD_HASHES = """
SELECT DISTINCT sha256_hash FROM version WHERE bundle_path IS NOT NULL ORDER BY sha256_hash
"""


def pack(
    connection: sqlite3.Connection,
    bundles: Bundles,
    output: BinaryIO,
    on_progress: Callable[[int, int], None],
) -> int:
    """Write the catalog and its held bundles; return the number of bundles.

    on_progress gets the number of bundles written and their total.
    """
    hashes = [sha256 for (sha256,) in connection.execute(HELD_HASHES)]
    with ExitStack() as stack:
        files = {
            CATALOG: stack.enter_context(_spool(catalog_lines(connection))),
            MIRRORED: stack.enter_context(_spool(_mirrored_lines(connection))),
        }
        sums = {
            name: hashlib.file_digest(file, "sha256").hexdigest() for name, file in files.items()
        }
        sums |= {BUNDLES + sha256: sha256 for sha256 in hashes}
        archive = stack.enter_context(tarfile.open(fileobj=output, mode="w|"))
        _add_member(archive, SUMS, io.BytesIO(_format_sums(sums).encode()))
        for name, file in files.items():
            _add_member(archive, name, file)
        for number, sha256 in enumerate(hashes, start=1):
            try:
                with bundles.open_verified(sha256) as bundle:
                    _add_member(archive, BUNDLES + sha256, bundle)
            except BundleError as error:
                raise PackError(f"The bundle {sha256} cannot be packed: {error}.") from error
            on_progress(number, len(hashes))
    return len(hashes)


def _format_sums(sums: dict[str, str]) -> str:
    """Return the hashes in the format of the sha256sum program."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sums.items())


@contextmanager
def _spool(lines: Iterable[str]) -> Iterator[io.BufferedRandom]:
    """Yield a temporary file of the lines: an archive needs the size of a member in advance."""
    with tempfile.TemporaryFile() as file:
        file.writelines(line.encode() for line in lines)
        file.seek(0)
        yield file


def _add_member(archive: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    # Without owner and time, so that the same catalog gives the same bytes.
    member = tarfile.TarInfo(name)
    member.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    archive.addfile(member, file)


MIRRORED_WIDGETS = """
SELECT json_object('scope', scope, 'name', name, 'source', source, 'etag', etag,
    'upstreamCount', upstream_count)
FROM mirrored JOIN widget ON widget.id = widget_id
ORDER BY scope, name
"""


def _mirrored_lines(connection: sqlite3.Connection) -> Iterator[str]:
    return (f"{line}\n" for (line,) in connection.execute(MIRRORED_WIDGETS))


class UnpackResult(NamedTuple):
    """The content of a pack, and where a damaged database that it replaced was moved to."""

    documents: list[Document]
    bundles: int
    damaged: Path | None


def unpack(
    file: BinaryIO,
    database: Database,
    bundles: Bundles,
    on_progress: Callable[[int, int], None],
) -> UnpackResult:
    """Replace the catalog with the pack in one step; raise and change nothing if it is invalid.

    on_progress gets the number of bundles read and their total.
    """
    try:
        members = read_members(file)
        sums = _read_sums(_next_member(members, SUMS))
        documents = _read_verified(
            _next_member(members, CATALOG), sums.pop(CATALOG), lambda lines: read_catalog([lines])
        )
        mirrored = _read_verified(
            _next_member(members, MIRRORED), sums.pop(MIRRORED), _read_mirrored
        )
        versions = _bundled_versions(documents, sums.values())
        with bundles.writing() if sums else nullcontext(), _remove_on_error(bundles) as added:
            for number, sha256 in enumerate(sums.values(), start=1):
                _add_bundle(_next_member(members, BUNDLES + sha256), bundles, sha256, added)
                on_progress(number, len(sums))
            if (member := next(members, None)) is not None:
                raise PackError(f"The pack has an unexpected member, {quoted(member.name)}.")
            if sums:
                bundles.sync()
            held = [version for version in versions if bundles.holds(version.sha256, version.size)]
            damaged = _replace_database(
                database,
                documents,
                held,
                mirrored,
            )
            # From here on versions use the bundles, so keep them even if an error follows.
            added.clear()
    except NotAFileError as error:
        raise PackError(
            f"The pack contains {quoted(str(error))}, which is not a regular file."
        ) from error
    except ArchiveError as error:
        raise PackError(f"This is not a complete pack: {error}.") from error
    return UnpackResult(documents, len(sums), damaged)


def verify(file: BinaryIO) -> None:
    """Raise PackError unless the file is a complete pack whose content matches its hashes."""
    try:
        members = read_members(file)
        sums = _read_sums(_next_member(members, SUMS))
        for name, sha256 in sums.items():
            _read_verified(_next_member(members, name), sha256, lambda content: None)
        for member in members:
            raise PackError(f"The pack has an unexpected member, {quoted(member.name)}.")
    except ArchiveError as error:
        raise PackError(f"The pack is damaged: {error}.") from error


def _replace_database(
    database: Database,
    documents: list[Document],
    held: list[HeldBundle],
    mirrored: list[MirroredWidget],
) -> Path | None:
    paths = {document.path for document in documents}

    def fill(transaction: Transaction) -> None:
        put_documents(transaction, documents)
        bundle_writes.hold_bundles(transaction, held)
        known = [each for each in mirrored if f"{each.scope}/{each.name}" in paths]
        mirror_writes.put_mirrored(transaction, known)

    with scratch_directory(database.scratch_parent) as directory:
        new = Database(directory / "catalog.db")
        new.create(fill)
        return backups.restore(database, new.path, action="unpack")


def _next_member(members: Iterator[Member], name: str) -> Member:
    """Return the next member; raise PackError unless it has this name."""
    member = next(members, None)
    if member is None or member.name != name:
        actual = "ends" if member is None else f"has {quoted(member.name)}"
        raise PackError(f"The pack {actual} where {name} should be.")
    return member


def _read_verified(member: Member, sha256: str, read: Callable[[BinaryIO], T]) -> T:
    """Return what read() returns for the member; raise PackError if its hash is wrong.

    A wrong hash is reported instead of the problems that read() finds.
    """
    member.digest = hashlib.sha256()
    content = io.BufferedReader(member)
    try:
        result = read(content)
    except (CatalogFileError, PackError):
        _verify_hash(member, sha256)
        raise
    _verify_hash(member, sha256)
    return result


def _verify_hash(member: Member, sha256: str) -> None:
    member.skip()
    if member.digest and member.digest.hexdigest() != sha256:
        raise PackError(f"{member.name} in the pack does not match {SUMS}.")


def _read_sums(member: Member) -> dict[str, str]:
    """Return the hash of each member by its name, in the order of the members."""
    content = b"" if member.size > MAX_SUMS_BYTES else member.read()
    text = content.decode("ascii", "replace")
    sums = {name: sha256 for sha256, name in SUMS_LINE.findall(text)}
    bundles = list(sums)[2:]
    if not (
        text == _format_sums(sums)
        and list(sums)[:2] == [CATALOG, MIRRORED]
        and bundles == sorted(BUNDLES + sums[name] for name in bundles)
    ):
        raise PackError(f"{SUMS} in the pack does not have the format that this release writes.")
    return sums


def _read_mirrored(content: BinaryIO) -> list[MirroredWidget]:
    lines = iter(partial(content.readline, MAX_LINE_BYTES), b"")
    try:
        return [_check_mirrored(parse_json(line)) for line in lines]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PackError(f"{MIRRORED} in the pack cannot be read: {error}.") from error


def _check_mirrored(value: Any) -> MirroredWidget:
    etag, count = value["etag"], value["upstreamCount"]
    return MirroredWidget(
        check_identifier(value["scope"]),
        check_identifier(value["name"]),
        check_http_url(value["source"]),
        None if etag is None else check_text(etag),
        None if count is None else check_whole_number(count),
    )


def _bundled_versions(documents: list[Document], hashes: Collection[str]) -> list[HeldBundle]:
    """Return the versions whose bundles are in the pack; raise PackError for an unused bundle."""
    packed = set(hashes)
    versions = [
        version
        for document in documents
        for version in bundle_writes.held_bundles(document)
        if version.sha256 in packed
    ]
    for sha256 in packed - {version.sha256 for version in versions}:
        raise PackError(f"The pack contains the bundle {sha256}, which no version uses.")
    return versions


def _add_bundle(member: Member, bundles: Bundles, sha256: str, added: list[str]) -> None:
    if not bundles.holds(sha256):
        added.append(sha256)
    try:
        bundles.add(sha256, member.size, iter(partial(member.read, CHUNK_SIZE), b""))
    except BundleError as error:
        raise PackError(f"The bundle {sha256} in the pack is invalid: {error}.") from error
    except BaseException:
        bundles.partial(sha256).unlink(missing_ok=True)
        raise


@contextmanager
def _remove_on_error(bundles: Bundles) -> Iterator[list[str]]:
    """Yield a list; the bundles whose hashes are appended to it are removed if the block raises."""
    added: list[str] = []
    try:
        yield added
    except BaseException:
        for sha256 in added:
            bundles.remove(sha256)
        raise
