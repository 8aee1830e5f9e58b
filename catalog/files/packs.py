"""Packs: a whole catalog and its bundles in one file.

A pack is a plain tar archive that begins with SHA256SUMS. The members that it names follow in the
same order: the catalog, the state of mirrored widgets, the hashes of deleted versions, and the
bundles. Packing the same catalog again gives the same bytes.

The catalog is JSON Lines and not an SQLite file, because the bytes of an SQLite file depend on its
history and on the release of SQLite, and because a file from an unknown source can contain more
than data, such as triggers.
"""

import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from ..store.bundles.bundles import BundleError, Bundles
from ..store.read.export import catalog_lines
from ..store.read.pack_lines import READ_DELETED, READ_MIRRORED, read_lines
from ..store.read.stored_bundles import named_pictures, stored_hashes
from ..system.paths import path_text
from .pack_reader import PackError, PackReader

SUMS = "SHA256SUMS"
FILES = CATALOG, MIRRORED, DELETED = "catalog.jsonl", "mirrored.jsonl", "deleted.jsonl"
BUNDLES = "bundles/"
SUMS_LINE = re.compile(rf"([0-9a-f]{{64}})  ([a-z]+\.jsonl|{BUNDLES}[0-9a-f]{{64}})\n")
# This is enough for the hashes of nearly a million bundles.
MAX_SUMS_BYTES = 128 * 1024 * 1024


def pack(
    connection: sqlite3.Connection,
    bundles: Bundles,
    output: BinaryIO,
    on_progress: Callable[[int, int], None],
    paths: str | None = None,
) -> None:
    """Write the catalog and its stored bundles.

    on_progress() is called with the number of bundles written and the total. The bundles are not
    locked: raise PackError if a version is deleted in the meantime and gc removes its bundle.
    """
    pictures = {picture["sha256Hash"] for _, picture in named_pictures(connection, paths)}
    hashes = sorted({*stored_hashes(connection, paths), *filter(bundles.has, pictures)})
    lines = {
        CATALOG: catalog_lines(connection, paths),
        MIRRORED: read_lines(connection, READ_MIRRORED, paths),
        DELETED: read_lines(connection, READ_DELETED, paths),
    }
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_spool(name, map(str.encode, each)))
            for name, each in lines.items()
        }
        sums = {name: _digest(file) for name, file in files.items()}
        sums |= {BUNDLES + sha256: sha256 for sha256 in hashes}
        archive = stack.enter_context(
            tarfile.open(fileobj=output, mode="w|", format=tarfile.USTAR_FORMAT)
        )
        _add_member(archive, SUMS, io.BytesIO(_format_sums(sums).encode()))
        for name, file in files.items():
            _add_member(archive, name, file)
        for number, sha256 in enumerate(hashes, start=1):
            try:
                with bundles.open_verified(sha256) as bundle:
                    _add_member(archive, BUNDLES + sha256, bundle)
            except BundleError as error:
                raise PackError(f"The bundle {sha256} cannot be packed: {error}.") from error
            except OSError as error:
                # An OSError that does not name the bundle's path comes from writing the pack.
                path = bundles.path(sha256)
                if error.filename != str(path):
                    raise
                raise PackError(f"Cannot read {path_text(path)}: {error.strerror}.") from error
            on_progress(number, len(hashes))


def _format_sums(sums: dict[str, str]) -> str:
    """Return the hashes in the format of the sha256sum program."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sums.items())


@contextmanager
def _spool(name: str, chunks: Iterable[bytes]) -> Iterator[io.BufferedRandom]:
    """Yield the chunks as a temporary file: tar needs the size of a member in advance."""
    with tempfile.TemporaryFile() as file:
        try:
            file.writelines(chunks)
            file.seek(0)
        except OSError as error:
            error.filename = tempfile.gettempdir()
            raise
        # Messages about a line in the file contain this name.
        file.raw.name = name  # type: ignore[attr-defined]
        yield file


def _digest(file: io.BufferedRandom) -> str:
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return sha256


def _add_member(archive: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    # The header has no owner and no time, so that the same catalog always gives the same bytes.
    member = tarfile.TarInfo(name)
    member.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    archive.addfile(member, file)


def verify(file: BinaryIO) -> None:
    """Raise PackError unless the file is a complete pack whose content matches its hashes."""
    reader = PackReader(file)
    sums = read_sums(reader)
    for name in sums:
        with verified(reader, name, sums):
            pass
    reader.check_end()


@contextmanager
def verified(reader: PackReader, name: str, sums: dict[str, str]) -> Iterator[BinaryIO]:
    """Yield the next member as a temporary file; raise PackError unless it matches its hash."""
    with _spool(name, reader.open(name)) as file:
        if _digest(file) != sums[name]:
            raise PackError(f"{name} in the pack does not match {SUMS}.")
        yield file


def read_sums(reader: PackReader) -> dict[str, str]:
    """Return the hash of each member by name, in the order of the members."""
    text = _read_text(reader.open(SUMS))
    sums = {name: sha256 for sha256, name in SUMS_LINE.findall(text)}
    names = [*FILES, *(BUNDLES + sha256 for sha256 in [*sums.values()][len(FILES) :])]
    if text != _format_sums(sums) or [*sums] != names:
        raise PackError(f"{SUMS} in the pack is not in the format that this release writes.")
    return sums


def _read_text(chunks: Iterable[bytes]) -> str:
    """Read and decode SHA256SUMS; stop reading once it exceeds its maximum size."""
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_SUMS_BYTES:
            break
    return content.decode("ascii", "replace")


def add_bundle(reader: PackReader, bundles: Bundles, sha256: str) -> None:
    """Store the next member, a bundle; raise PackError if it does not have this hash."""
    content = reader.open(BUNDLES + sha256)
    try:
        bundles.add(sha256, None, content)
    except BundleError as error:
        raise PackError(f"The bundle {sha256} in the pack is invalid: {error}.") from error
