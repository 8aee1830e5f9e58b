"""A catalog pack: a whole catalog and its bundles in one file, the same bytes for the same catalog.

It is a plain tar archive that begins with SHA256SUMS; after it come the files that are named there,
in that order. The catalog is in it as lines and not as a SQLite file: the bytes of such a file tell
its history and the release of SQLite, and one from elsewhere could hold more than data.
"""

import hashlib
import io
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from catalog.atomic_files import scratch_directory
from catalog.documents import Document, parse_json
from catalog.files.jsonl import MAX_LINE_BYTES, CatalogFileError, read_catalog
from catalog.files.tar_reader import ArchiveError, Member, NotAFileError, members
from catalog.store import backups, mirror_writes, writes
from catalog.store.bundles import BundleError, Bundles
from catalog.store.database import Database
from catalog.store.export import catalog_lines
from catalog.store.mirror_writes import HeldBundle, MirroredWidget
from catalog.store.sqlite import Statement
from catalog.text import quoted
from catalog.validators import (
    check_http_url,
    check_identifier,
    check_text,
    check_whole_number,
)

SUMS, CATALOG, MIRRORED, BUNDLES = "SHA256SUMS", "catalog.jsonl", "mirrored.jsonl", "bundles/"
LINE = re.compile(rf"([0-9a-f]{{64}})  ({CATALOG}|{MIRRORED}|{BUNDLES}[0-9a-f]{{64}})\n")
CHUNK = 1024 * 1024
# Of nearly two million bundles.
MAX_SUMS_BYTES = 256 * 1024 * 1024

Read = TypeVar("Read")
# Lets a person follow how many of the hashes are done.
Watch = Callable[[list[str]], AbstractContextManager[Iterable[str]]]


class PackError(Exception):
    """The pack cannot be written or read; the message says why in one sentence."""


HELD = """
SELECT DISTINCT sha256_hash FROM version WHERE bundle_path IS NOT NULL ORDER BY sha256_hash
"""


def pack(
    connection: sqlite3.Connection, bundles: Bundles, output: BinaryIO, watch: Watch = nullcontext
) -> int:
    """Write the catalog and every bundle that it holds; answers how many bundles those are."""
    hashes = [sha256 for (sha256,) in connection.execute(HELD)]
    with ExitStack() as stack:
        parts = {
            CATALOG: stack.enter_context(_spooled(catalog_lines(connection))),
            MIRRORED: stack.enter_context(_spooled(_mirrored_lines(connection))),
        }
        sums = {
            name: hashlib.file_digest(file, "sha256").hexdigest() for name, file in parts.items()
        }
        sums |= {BUNDLES + sha256: sha256 for sha256 in hashes}
        archive = stack.enter_context(tarfile.open(fileobj=output, mode="w|"))
        _add(archive, SUMS, io.BytesIO(_sums_text(sums).encode()))
        for name, file in parts.items():
            _add(archive, name, file)
        for sha256 in stack.enter_context(watch(hashes)):
            try:
                with bundles.checked(sha256) as bundle:
                    _add(archive, BUNDLES + sha256, bundle)
            except BundleError as error:
                raise PackError(f"The bundle {sha256} cannot be packed: {error}.") from error
    return len(hashes)


def _sums_text(sums: dict[str, str]) -> str:
    """As sha256sum writes and checks it."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sums.items())


@contextmanager
def _spooled(lines: Iterable[str]) -> Iterator[io.BufferedRandom]:
    """The lines in a file, since an archive says the size of each part before it."""
    with tempfile.TemporaryFile() as file:
        file.writelines(line.encode() for line in lines)
        file.seek(0)
        yield file


def _add(archive: tarfile.TarFile, name: str, file: BinaryIO) -> None:
    part = tarfile.TarInfo(name)  # of nobody, at no time
    part.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    archive.addfile(part, file)


MIRRORED_WIDGETS = """
SELECT json_object('scope', scope, 'name', name, 'source', source, 'etag', etag,
    'upstreamCount', upstream_count)
FROM mirrored JOIN widget ON widget.id = widget_id
ORDER BY scope, name
"""


def _mirrored_lines(connection: sqlite3.Connection) -> Iterator[str]:
    return (f"{line}\n" for (line,) in connection.execute(MIRRORED_WIDGETS))


class Unpacked(NamedTuple):
    """What a pack held, and where the file is that was too damaged to be replaced."""

    documents: list[Document]
    bundles: int
    aside: Path | None


def unpack(
    file: BinaryIO, database: Database, bundles: Bundles, watch: Watch = nullcontext
) -> Unpacked:
    """Have the catalog hold just what the pack holds, in one step; or raise, and change nothing."""
    try:
        parts = members(file)
        sums = _read_sums(_next(parts, SUMS))
        documents = _checked(
            _next(parts, CATALOG), sums.pop(CATALOG), lambda content: read_catalog([content])
        )
        mirrored = _checked(_next(parts, MIRRORED), sums.pop(MIRRORED), _read_mirrored)
        versions = _bundled(documents, sums.values())
        with bundles.writing() if sums else nullcontext(), _undone(bundles) as added:
            with watch(list(sums.values())) as hashes:
                for sha256 in hashes:
                    _take_bundle(parts, bundles, sha256, added)
            if (part := next(parts, None)) is not None:
                raise PackError(f"The pack goes on after its end, with {quoted(part.name)}.")
            if sums:
                bundles.sync()
            held = [each for each in versions if bundles.holds(each.sha256, each.size)]
            statements = [
                *writes.put_documents(documents),
                *mirror_writes.hold_bundles(held),
                *mirror_writes.put_mirrored(mirrored),
            ]
            aside = _put(statements, database)
            added.clear()  # from here on they have their place
    except NotAFileError as error:
        raise PackError(
            f"The pack has {quoted(str(error))} in it, which is no plain file."
        ) from error
    except ArchiveError as error:
        raise PackError(f"This is not a whole pack: {error}.") from error
    return Unpacked(documents, len(sums), aside)


def _put(statements: list[Statement], database: Database) -> Path | None:
    beside = database.path.absolute().parent
    with scratch_directory(beside) as directory:
        new = Database(directory / "catalog.db")
        new.create(statements)
        return backups.restore(database, new.path)


def _next(parts: Iterator[Member], name: str) -> Member:
    part = next(parts, None)
    if part is None or part.name != name:
        found = "ends" if part is None else f"has {quoted(part.name)}"
        raise PackError(f"The pack {found} where {name} should be.")
    return part


def _checked(part: Member, sha256: str, read: Callable[[BinaryIO], Read]) -> Read:
    """What read() makes of the part; a wrong hash is reported before what is wrong inside."""
    part.digest = hashlib.sha256()
    content = io.BufferedReader(part)
    try:
        result = read(content)
    except (CatalogFileError, PackError):
        _check_sum(part, sha256)
        raise
    _check_sum(part, sha256)
    return result


def _check_sum(part: Member, sha256: str) -> None:
    part.skip()
    if part.digest and part.digest.hexdigest() != sha256:
        raise PackError(f"{part.name} in the pack is not what {SUMS} says.")


def _read_sums(part: Member) -> dict[str, str]:
    """The hash of each part by its name, in their order."""
    content = b"" if part.size > MAX_SUMS_BYTES else part.read()
    text = content.decode("ascii", "replace")
    sums = {name: sha256 for sha256, name in LINE.findall(text)}
    bundles = list(sums)[2:]
    if not (
        text == _sums_text(sums)
        and list(sums)[:2] == [CATALOG, MIRRORED]
        and bundles == sorted(BUNDLES + sums[name] for name in bundles)
    ):
        raise PackError(f"{SUMS} in the pack is not as this release writes it.")
    return sums


def _read_mirrored(content: BinaryIO) -> list[MirroredWidget]:
    lines = iter(partial(content.readline, MAX_LINE_BYTES), b"")
    try:
        return [_mirrored(parse_json(line)) for line in lines]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PackError(f"{MIRRORED} in the pack cannot be read: {error}.") from error


def _mirrored(given: Any) -> MirroredWidget:
    etag, count = given["etag"], given["upstreamCount"]
    return MirroredWidget(
        check_identifier(given["scope"]),
        check_identifier(given["name"]),
        check_http_url(given["source"]),
        None if etag is None else check_text(etag),
        None if count is None else check_whole_number(count),
    )


def _bundled(documents: list[Document], hashes: Collection[str]) -> list[HeldBundle]:
    """The versions whose bundles are in the pack; refuses bundles that are of none."""
    wanted = set(hashes)
    versions = [
        HeldBundle(
            document.widget["scope"],
            document.widget["name"],
            row["version"],
            row["sha256_hash"],
            row["bundle_size"],
        )
        for document in documents
        for row in document.versions
        if row["sha256_hash"] in wanted
    ]
    for sha256 in wanted - {version.sha256 for version in versions}:
        raise PackError(f"The pack has the bundle {sha256} in it, which no version names.")
    return versions


def _take_bundle(parts: Iterator[Member], bundles: Bundles, sha256: str, added: list[str]) -> None:
    part = _next(parts, BUNDLES + sha256)
    if not bundles.holds(sha256):
        added.append(sha256)
    try:
        bundles.add(sha256, part.size, iter(partial(part.read, CHUNK), b""))
    except BundleError as error:
        raise PackError(f"The bundle {sha256} in the pack is refused: {error}.") from error
    except BaseException:
        bundles.partial(sha256).unlink(missing_ok=True)
        raise


@contextmanager
def _undone(bundles: Bundles) -> Iterator[list[str]]:
    """A list of bundles that are removed again if anything goes wrong."""
    added: list[str] = []
    try:
        yield added
    except BaseException:
        for sha256 in added:
            bundles.remove(sha256)
        raise
