"""Packs: a whole catalog and its bundles in one file.

A pack is a plain tar archive that begins with SHA256SUMS; the members that it names follow in the
same order: the catalog, what a mirror knows of its widgets, the hashes of deleted versions, and the
bundles. The same catalog gives the same bytes. It is JSON Lines and not a SQLite file, because the
bytes of such a file depend on its history and on the release of SQLite, and because one from an
unknown source can contain more than data, such as triggers.
"""

import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, BinaryIO, Self

from ..store.bundles import BundleError, Bundles
from ..store.read.export import catalog_lines
from ..store.read.selection import IS_SELECTED
from ..text import quoted

SUMS = "SHA256SUMS"
FILES = CATALOG, MIRRORED, DELETED = "catalog.jsonl", "mirrored.jsonl", "deleted.jsonl"
BUNDLES = "bundles/"
SUMS_LINE = re.compile(rf"([0-9a-f]{{64}})  ([a-z]+\.jsonl|{BUNDLES}[0-9a-f]{{64}})\n")
# Enough for nearly a million bundles.
MAX_SUMS_BYTES = 128 * 1024 * 1024
CHUNK_SIZE = 1024 * 1024


class PackError(Exception):
    """The pack cannot be written or read; the message says why in one sentence."""


HELD_HASHES = f"""
SELECT DISTINCT sha256_hash FROM version JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NOT NULL AND {IS_SELECTED} ORDER BY sha256_hash
"""


def held_hashes(connection: sqlite3.Connection, paths: str | None = None) -> list[str]:
    """Return the hashes of the held bundles; IS_SELECTED explains the paths of a selection."""
    return [sha256 for (sha256,) in connection.execute(HELD_HASHES, {"paths": paths})]


PICTURE_HASHES = f"""
SELECT DISTINCT picture ->> 'sha256Hash' FROM about JOIN widget ON widget.id = widget_id
WHERE picture IS NOT NULL AND {IS_SELECTED}
"""


def picture_hashes(connection: sqlite3.Connection, paths: str | None = None) -> list[str]:
    """Return the hashes of the pictures of the widgets, or of the selected ones."""
    return [sha256 for (sha256,) in connection.execute(PICTURE_HASHES, {"paths": paths})]


def pack(
    connection: sqlite3.Connection,
    bundles: Bundles,
    output: BinaryIO,
    on_progress: Callable[[int, int], None],
    paths: str | None = None,
) -> None:
    """Write the catalog and its held bundles.

    on_progress gets the number of bundles written and their total. The bundles are not locked: one
    whose version is deleted meanwhile, and which gc removes then, is an error.
    """
    selected = {"paths": paths}
    pictures = filter(bundles.holds, picture_hashes(connection, paths))
    hashes = sorted({*held_hashes(connection, paths), *pictures})
    lines = {
        CATALOG: catalog_lines(connection, paths),
        MIRRORED: (f"{line}\n" for (line,) in connection.execute(READ_MIRRORED, selected)),
        DELETED: (f"{line}\n" for (line,) in connection.execute(READ_DELETED, selected)),
    }
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_spool(name, map(str.encode, each)))
            for name, each in lines.items()
        }
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


def _format_sums(sums: dict[str, str]) -> str:
    """Return the hashes in the format of the sha256sum program."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sums.items())


@contextmanager
def _spool(name: str, chunks: Iterable[bytes]) -> Iterator[io.BufferedRandom]:
    """Yield a temporary file: an archive needs the size of a member in advance."""
    with tempfile.TemporaryFile() as file:
        try:
            file.writelines(chunks)
            file.seek(0)
        except OSError as error:
            error.filename = tempfile.gettempdir()
            raise
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


# How mirrored.jsonl is read from a database. unpack.py writes it to one.
READ_MIRRORED = f"""
SELECT json_object('scope', scope, 'name', name, 'source', source, 'etag', etag,
    'upstreamCount', upstream_count, 'gone', json(iif(gone, 'true', 'false')))
FROM mirrored JOIN widget ON widget.id = widget_id
WHERE {IS_SELECTED} ORDER BY scope, name
"""
# And deleted.jsonl.
READ_DELETED = f"""
SELECT json_object('scope', scope, 'name', name, 'version', version, 'sha256Hash', sha256_hash)
FROM deleted_version WHERE {IS_SELECTED} ORDER BY scope, name, version, sha256_hash
"""


def verify(file: BinaryIO) -> None:
    """Raise PackError unless the file is a complete pack whose content matches its hashes."""
    with open_pack(file) as archive:
        sums = read_sums(archive)
        for name in sums:
            with verified(archive, name, sums):
                pass
        check_end(archive)


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
def open_pack(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    """Open the archive for the block; raise PackError if it is none, or incomplete."""
    try:
        with tarfile.open(fileobj=file, mode="r|", tarinfo=PlainFile) as archive:
            yield archive
    except tarfile.TarError as error:
        raise PackError(f"This is not a complete pack: {error}.") from error


def next_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """Return the content of the next member; raise PackError unless it has this name."""
    member = archive.next()
    content = archive.extractfile(member) if member else None
    if member is None or content is None or member.name != name:
        actual = f"has {quoted(member.name)}" if member else "ends"
        raise PackError(f"The pack {actual} where {name} should be.")
    return content


def check_end(archive: tarfile.TarFile) -> None:
    """Raise PackError if there is another member."""
    if member := archive.next():
        raise PackError(f"The pack has an unexpected member, {quoted(member.name)}.")


def chunks(content: IO[bytes]) -> Iterator[bytes]:
    """Yield the content in parts that fit into memory."""
    return iter(partial(content.read, CHUNK_SIZE), b"")


@contextmanager
def verified(archive: tarfile.TarFile, name: str, sums: dict[str, str]) -> Iterator[BinaryIO]:
    """Yield the next member as a temporary file; raise PackError unless it has its hash."""
    with _spool(name, chunks(next_member(archive, name))) as file:
        if _digest(file) != sums[name]:
            raise PackError(f"{name} in the pack does not match {SUMS}.")
        yield file


def read_sums(archive: tarfile.TarFile) -> dict[str, str]:
    """Return the hash of each member by its name, in the order of the members."""
    text = next_member(archive, SUMS).read(MAX_SUMS_BYTES).decode("ascii", "replace")
    sums = {name: sha256 for sha256, name in SUMS_LINE.findall(text)}
    names = [*FILES, *(BUNDLES + sha256 for sha256 in [*sums.values()][len(FILES) :])]
    if text != _format_sums(sums) or [*sums] != names:
        raise PackError(f"{SUMS} in the pack does not have the format that this release writes.")
    return sums
