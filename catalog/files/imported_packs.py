"""Imports packs into an existing catalog: their catalog files, and their bundles."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import BinaryIO

from ..domain.documents import Document
from ..store.bundles.bundles import Bundles
from ..store.bundles.compressed import compress_bundle
from ..store.connection.database import Database
from ..store.connection.transaction import Actor, Transaction
from ..store.write.stored_bundles import StoredBundle, register_bundles, stored_bundles
from .pack_reader import PackError, PackReader
from .packs import CATALOG, FILES, SUMS, add_bundle, read_sums, verified

# An archive begins with the name of its first member. No line of JSON begins like this.
PACK_START = SUMS.encode() + b"\0"


def is_pack(file: BinaryIO) -> bool:
    """Return whether the file begins like a pack, without consuming any of it."""
    if file.seekable():
        start = file.read(len(PACK_START))
        file.seek(0)
    else:
        # A pipe may have delivered only some of these bytes so far.
        start = file.peek()[: len(PACK_START)]  # type: ignore[attr-defined]
    return bool(start) and PACK_START.startswith(start)


@contextmanager
def catalog_files(
    files: Sequence[BinaryIO], incoming: Bundles, on_progress: Callable[[int, int], None]
) -> Iterator[list[BinaryIO]]:
    """Yield the files, with each pack replaced by its catalog file.

    The bundles of packs are added to incoming. Raise PackError if a pack is damaged. on_progress
    gets the number of bundles read, and the total number in the pack.
    """
    with ExitStack() as stack:
        read = partial(_read_pack, stack, incoming, on_progress)
        yield [read(file) if is_pack(file) else file for file in files]


def _read_pack(
    stack: ExitStack,
    incoming: Bundles,
    on_progress: Callable[[int, int], None],
    file: BinaryIO,
) -> BinaryIO:
    """Return the catalog file of a pack, which stays open until the stack is closed."""
    name = getattr(file, "name", "<stdin>")
    try:
        reader = PackReader(file)
        sums = read_sums(reader)
        members = {each: stack.enter_context(verified(reader, each, sums)) for each in FILES}
        hashes = [*sums.values()][len(FILES) :]
        for number, sha256 in enumerate(hashes, start=1):
            add_bundle(reader, incoming, sha256)
            on_progress(number, len(hashes))
        reader.check_end()
    except PackError as error:
        raise PackError(f"{name}: {error}") from error
    catalog = members[CATALOG]
    # Messages about a line of the file contain this name.
    catalog.raw.name = f"{name}: {CATALOG}"  # type: ignore[attr-defined]
    return catalog


def store_bundles(
    database: Database,
    bundles: Bundles,
    incoming: Bundles,
    batches: Iterable[Sequence[Document]],
    actor: Actor,
) -> int:
    """Store the incoming bundles and pictures that the documents name; return how many are new.

    The documents are already in the database. Importing again completes an interrupted import.
    """
    stored = 0
    for batch in batches:
        versions = [each for document in batch for each in stored_bundles(document)]
        packed = [each for each in versions if incoming.has(each.sha256, each.size)]
        pictures = [json.loads((each.about or {}).get("picture") or "{}") for each in batch]
        named = {each["sha256Hash"] for each in pictures if each}
        hashes = {*filter(incoming.has, named), *(each.sha256 for each in packed)}
        if not hashes:
            continue
        for version in packed:
            compress_bundle(incoming, version.sha256)
        with bundles.writing():
            new = [sha256 for sha256 in hashes if not bundles.has(sha256)]
            for sha256 in new:
                bundles.accept(incoming, sha256)
            bundles.sync()
            write = partial(_register, versions=packed, stored=len(new))
            database.transact(write, actor)
        stored += len(new)
    return stored


def _register(transaction: Transaction, versions: Sequence[StoredBundle], stored: int) -> None:
    register_bundles(transaction, versions)
    if stored:
        transaction.record("import", after={"bundlesStored": stored})
