"""The compressed form of a stored bundle: a gzip file beside it, for clients that accept gzip.

If gzip does not make a bundle smaller, the gzip file is left empty, so that the bundle is not
compressed again.
"""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .bundles import GZIP_SUFFIX, PARTIAL, BundleError, Bundles

# A smaller body fits into one packet, compressed or not.
MIN_LENGTH = 1000  # bytes
# Level 9 takes up to three times as long and saves only 1% more.
LEVEL = 6
# The value of wbits that makes zlib write a gzip header; the header contains no timestamp.
GZIP_FORMAT = 31
CHUNK = 256 * 1024  # bytes


def find_compressed(bundles: Bundles, sha256: str) -> Path | None:
    """Return the path of the compressed form; None if it is missing or would not be smaller."""
    path = bundles.gzip_path(sha256)
    try:
        return path if path.stat().st_size else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def needs_compression(bundles: Bundles, sha256: str) -> bool:
    """Return whether the bundle is stored, large enough to compress, and not compressed yet."""
    try:
        return (
            bundles.path(sha256).stat().st_size > MIN_LENGTH
            and not bundles.gzip_path(sha256).exists()
        )
    except (FileNotFoundError, NotADirectoryError):
        return False


def compress_bundle(
    bundles: Bundles, sha256: str, *, check: Callable[[], None] = lambda: None
) -> bool:
    """Store the compressed form of the bundle if it needs one; return whether it was stored.

    The compressed form is optional: it is not created if the disk is full or the bundle is damaged.
    No lock is needed, since the file gets its name once it is complete. check() is called before
    each chunk and may raise an exception to stop.
    """
    if not needs_compression(bundles, sha256):
        return False
    try:
        descriptor, name = tempfile.mkstemp(
            prefix=f"{sha256}.", suffix=GZIP_SUFFIX + PARTIAL, dir=bundles.directory
        )
        partial = Path(name)
        try:
            with open(descriptor, "wb") as file:
                is_intact = _write(bundles.path(sha256), sha256, file, check)
                file.flush()
                os.fsync(file.fileno())
            if is_intact:
                os.replace(partial, bundles.gzip_path(sha256))
                if not bundles.has(sha256):
                    # The bundle was removed in the meantime.
                    bundles.gzip_path(sha256).unlink(missing_ok=True)
        finally:
            partial.unlink(missing_ok=True)
    except OSError:
        return False
    return is_intact


def _write(plain_path: Path, sha256: str, file: BinaryIO, check: Callable[[], None]) -> bool:
    """Compress the bundle into the file; return whether the bundle has this hash.

    If compression does not make the bundle smaller, leave the file empty.
    """
    digest, compressor = hashlib.sha256(), zlib.compressobj(LEVEL, wbits=GZIP_FORMAT)
    with plain_path.open("rb") as plain:
        while chunk := plain.read(CHUNK):
            check()
            digest.update(chunk)
            file.write(compressor.compress(chunk))
        file.write(compressor.flush())
        if file.tell() >= plain.tell():
            file.truncate(0)
    return digest.hexdigest() == sha256


def verify_compressed(bundles: Bundles, sha256: str) -> None:
    """Raise BundleError if the compressed form exists and does not contain the bundle."""
    path = find_compressed(bundles, sha256)
    if path is None:
        return
    digest, decompressor = hashlib.sha256(), zlib.decompressobj(wbits=GZIP_FORMAT)
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                while chunk:
                    digest.update(decompressor.decompress(chunk, CHUNK))
                    chunk = decompressor.unconsumed_tail
            digest.update(decompressor.flush())
    except zlib.error:
        raise BundleError("it is not a gzip file") from None
    if digest.hexdigest() != sha256 or not decompressor.eof:
        raise BundleError("it does not contain the bundle")
