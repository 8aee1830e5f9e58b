"""Imports packs into an existing catalog: their catalog files and their bundles."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import BinaryIO

from ..store.bundles.bundles import Bundles
from .pack_reader import PackError, PackReader
from .packs import CATALOG, FILES, SUMS, add_bundle, read_sums, verified

# An archive begins with the name of its first member. No line of JSON begins in this way.
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

    The packs' bundles are added to incoming. Raise PackError if a pack is damaged. on_progress() is
    called with the number of bundles read and the total number in the pack.
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
    """Return a pack's catalog file, which stays open until the stack is closed."""
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
    # Messages about a line in the file contain this name.
    catalog.raw.name = f"{name}: {CATALOG}"  # type: ignore[attr-defined]
    return catalog
