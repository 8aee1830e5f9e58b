"""Packs: a whole catalog and its bundles in one file.

A pack is a plain tar archive that begins with SHA256SUMS; the members that it names follow in the
same order: the catalog, what a mirror knows of its widgets, the hashes of deleted versions if there
are any, and the bundles. The same catalog gives the same bytes. It is JSON Lines and not a SQLite
file, because the bytes of such a file depend on its history and on the release of SQLite, and
because one from an unknown source can contain more than data, such as triggers.
"""

import hashlib
import io
import os
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, Self, TypeVar

from catalog.atomic_files import scratch_directory
from catalog.documents import Document, Row, parse_json
from catalog.files.jsonl import MAX_LINE_BYTES, read_catalog
from catalog.store import backups
from catalog.store.bundles import BundleError, Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Transaction
from catalog.store.read.export import catalog_lines
from catalog.store.write import mirrored as mirror_writes
from catalog.store.write.held_bundles import held_bundles, hold_bundles
from catalog.store.write.imports import put_documents
from catalog.store.write.mirrored import MirroredWidget
from catalog.text import quoted
from catalog.validators import (
    check_http_url,
    check_identifier,
    check_sha256,
    check_text,
    check_version,
    check_whole_number,
)

SUMS, CATALOG, MIRRORED, DELETED = "SHA256SUMS", "catalog.jsonl", "mirrored.jsonl", "deleted.jsonl"
BUNDLES = "bundles/"
SUMS_LINE = re.compile(rf"([0-9a-f]{{64}})  ([a-z]+\.jsonl|{BUNDLES}[0-9a-f]{{64}})\n")
# Enough for nearly a million bundles.
MAX_SUMS_BYTES = 128 * 1024 * 1024
CHUNK_SIZE = 1024 * 1024

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

    on_progress gets the number of bundles written and their total. The bundles are not locked: one
    whose version is deleted meanwhile, and which gc removes then, is an error.
    """
    hashes = [sha256 for (sha256,) in connection.execute(HELD_HASHES)]
    lines = {
        CATALOG: catalog_lines(connection),
        MIRRORED: (f"{line}\n" for (line,) in connection.execute(MIRRORED_WIDGETS)),
        DELETED: (f"{line}\n" for (line,) in connection.execute(DELETED_VERSIONS)),
    }
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_spool(name, map(str.encode, each)))
            for name, each in lines.items()
        }
        if not files[DELETED].peek(1):
            # Release 1.0.0 cannot unpack it.
            del files[DELETED]
        sums = {name: _digest(file) for name, file in files.items()}
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
def _spool(name: str, chunks: Iterable[bytes]) -> Iterator[io.BufferedRandom]:
    """Yield a temporary file: an archive needs the size of a member in advance."""
    with tempfile.TemporaryFile() as file:
        file.writelines(chunks)
        file.seek(0)
        # For messages about a line.
        file.raw.name = name  # type: ignore[attr-defined]
        yield file


def _digest(file: io.BufferedRandom) -> str:
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return sha256


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


DELETED_VERSIONS = """
SELECT json_object('scope', scope, 'name', name, 'version', version, 'sha256Hash', sha256_hash)
FROM deleted_version ORDER BY scope, name, version, sha256_hash
"""


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

    Of the old catalog, backups.restore() keeps tokens and record; here it also keeps the higher
    install count of each widget, and what was deleted. on_progress gets the number of bundles read
    and their total.
    """
    with _open_pack(file) as archive, ExitStack() as stack:
        sums = _read_sums(archive)
        documents = _read_verified(archive, CATALOG, sums, lambda lines: read_catalog([lines]))
        mirrored = _read_verified(archive, MIRRORED, sums, partial(_read_lines, _check_mirrored))
        deleted = []
        if DELETED in sums:
            deleted = _read_verified(archive, DELETED, sums, partial(_read_lines, _check_deleted))
        if sums:
            bundles.create()
            new_bundles = Bundles(stack.enter_context(scratch_directory(bundles.directory)))
            for number, sha256 in enumerate(sums.values(), start=1):
                _add_bundle(archive, new_bundles, sha256)
                on_progress(number, len(sums))
        _check_end(archive)
        if sums:
            stack.enter_context(bundles.writing())
            for sha256 in sums.values():
                os.replace(new_bundles.path(sha256), bundles.path(sha256))
            bundles.sync()
        packed = {*sums.values()}
        held = [
            version
            for document in documents
            for version in held_bundles(document)
            if version.sha256 in packed and bundles.holds(version.sha256, version.size)
        ]
        paths = {document.path for document in documents}

        def fill(transaction: Transaction) -> None:
            put_documents(transaction, documents)
            hold_bundles(transaction, held)
            known = [each for each in mirrored if f"{each.scope}/{each.name}" in paths]
            mirror_writes.put_mirrored(transaction, known)
            if deleted:
                transaction.execute_many(PUT_DELETED, deleted)

        scratch = stack.enter_context(scratch_directory(database.scratch_parent))
        new_database = Database(scratch / "catalog.db")
        new_database.create(fill)
        damaged = backups.restore(database, new_database.path, action="unpack", keeps_history=True)
    return UnpackResult(documents, len(sums), damaged)


def verify(file: BinaryIO) -> None:
    """Raise PackError unless the file is a complete pack whose content matches its hashes."""
    with _open_pack(file) as archive:
        sums = _read_sums(archive)
        for name in list(sums):
            _read_verified(archive, name, sums, lambda content: None)
        _check_end(archive)


PUT_DELETED = """
INSERT INTO deleted_version SELECT :scope, :name, :version, :sha256 WHERE true
ON CONFLICT DO NOTHING
"""


class PlainFile(tarfile.TarInfo):
    """The header of a regular file; any other is refused before what it announces is read.

    tarfile would read an extended header of any size into memory.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Return the header in a block of the archive."""
        header = super().frombuf(buf, encoding, errors)
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or header.size < 0:
            name = quoted(header.name)
            raise PackError(f"The pack contains {name}, which is not a regular file.")
        return header


@contextmanager
def _open_pack(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=file, mode="r|", tarinfo=PlainFile) as archive:
            yield archive
    except tarfile.TarError as error:
        raise PackError(f"This is not a complete pack: {error}.") from error


def _next_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """Return the content of the next member; raise PackError unless it has this name."""
    member = archive.next()
    content = archive.extractfile(member) if member else None
    if member is None or content is None or member.name != name:
        actual = f"has {quoted(member.name)}" if member else "ends"
        raise PackError(f"The pack {actual} where {name} should be.")
    return content


def _check_end(archive: tarfile.TarFile) -> None:
    if member := archive.next():
        raise PackError(f"The pack has an unexpected member, {quoted(member.name)}.")


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(content.read, CHUNK_SIZE), b"")


def _read_verified(
    archive: tarfile.TarFile, name: str, sums: dict[str, str], read: Callable[[BinaryIO], T]
) -> T:
    """Return what read() returns for the next member, and remove it from sums."""
    with _spool(name, _chunks(_next_member(archive, name))) as file:
        if _digest(file) != sums.pop(name):
            raise PackError(f"{name} in the pack does not match {SUMS}.")
        return read(file)


def _read_sums(archive: tarfile.TarFile) -> dict[str, str]:
    """Return the hash of each member by its name, in the order of the members."""
    text = _next_member(archive, SUMS).read(MAX_SUMS_BYTES).decode("ascii", "replace")
    sums = {name: sha256 for sha256, name in SUMS_LINE.findall(text)}
    files = [name for name in sums if not name.startswith(BUNDLES)]
    if not (
        text == _format_sums(sums)
        and files in ([CATALOG, MIRRORED], [CATALOG, MIRRORED, DELETED])
        and list(sums) == files + sorted(BUNDLES + sums[name] for name in list(sums)[len(files) :])
    ):
        raise PackError(f"{SUMS} in the pack does not have the format that this release writes.")
    return sums


def _read_lines(check: Callable[[Any], T], content: BinaryIO) -> list[T]:
    lines = iter(partial(content.readline, MAX_LINE_BYTES), b"")
    try:
        return [check(parse_json(line)) for line in lines]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PackError(f"{content.name} in the pack cannot be read: {error}.") from error


def _check_mirrored(value: Any) -> MirroredWidget:
    etag, count = value["etag"], value["upstreamCount"]
    return MirroredWidget(
        check_identifier(value["scope"]),
        check_identifier(value["name"]),
        check_http_url(value["source"]),
        None if etag is None else check_text(etag),
        None if count is None else check_whole_number(count),
    )


def _check_deleted(value: Any) -> Row:
    return {
        "scope": check_identifier(value["scope"]),
        "name": check_identifier(value["name"]),
        "version": check_version(value["version"]),
        "sha256": check_sha256(value["sha256Hash"]),
    }


def _add_bundle(archive: tarfile.TarFile, bundles: Bundles, sha256: str) -> None:
    content = _next_member(archive, BUNDLES + sha256)
    try:
        bundles.add(sha256, None, _chunks(content))
    except BundleError as error:
        raise PackError(f"The bundle {sha256} in the pack is invalid: {error}.") from error
