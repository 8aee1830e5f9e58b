"""The directory of held bundles: files that are named by the SHA-256 of their content."""

import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from catalog.atomic_files import sync_directory
from catalog.text import path_text

HASH = re.compile("[0-9a-f]{64}")
PARTIAL = ".partial"


class BundleError(Exception):
    """A bundle does not have the expected content; the message continues a sentence about it."""


class Bundles:
    """The bundles that this service holds. A file gets its name after its content was verified."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # The path for messages, printable even if it is not Unicode.
        self.name = path_text(directory)
        # Called once before waiting for another process that writes to the directory.
        self.on_wait: Callable[[], None] | None = None

    def path(self, sha256: str) -> Path:
        """Return the path of the bundle with this hash, whether or not it exists."""
        # Nothing but a hash may become part of a path.
        if not HASH.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is not a SHA-256")
        return self.directory / sha256

    def partial(self, sha256: str) -> Path:
        """Return the path for an incomplete bundle, which one thread writes until accept()."""
        return self.path(sha256).with_suffix(PARTIAL)

    def holds(self, sha256: str, size: int | None = None) -> bool:
        """Return whether the bundle exists, with this size if one is given."""
        try:
            status = self.path(sha256).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return size in (None, status.st_size)

    def hashes(self) -> Iterator[str]:
        """Return the hash of each bundle, sorted."""
        return (name for name in self._names() if HASH.fullmatch(name))

    def partials(self) -> Iterator[str]:
        """Return the hash of each incomplete bundle, sorted."""
        for name in self._names():
            if name.endswith(PARTIAL) and HASH.fullmatch(name.removesuffix(PARTIAL)):
                yield name.removesuffix(PARTIAL)

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self.directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the directory for the block, and create it if it is missing.

        Keep the lock from adding a bundle until a version names it: flask gc removes bundles that
        no version names.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.locked():
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory for the block, if it exists, so that no other process writes to it."""
        try:
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.on_wait:
                    self.on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # This releases the lock. The kernel does the same when the process ends or is killed.
            os.close(descriptor)

    def add(self, sha256: str, size: int, chunks: Iterable[bytes], *, durable: bool = True) -> None:
        """Store the chunks as the bundle; raise BundleError unless they have this hash and size."""
        try:
            with open(self.partial(sha256), "wb", opener=open_private) as file:
                file.writelines(chunks)
            self.accept(sha256, size, durable=durable)
        except BaseException:
            # The disk may be full: leave the space to others.
            self.partial(sha256).unlink(missing_ok=True)
            raise

    def accept(self, sha256: str, size: int, *, durable: bool = True) -> None:
        """Store the partial file as the bundle; raise BundleError and remove it if it differs.

        A bundle that is not durable can be lost with the power, which saves most of the time.
        """
        partial = self.partial(sha256)
        with open(partial, "rb") as file:
            try:
                _verify(file, sha256, size)
            except BundleError:
                partial.unlink()
                raise
            os.fchmod(file.fileno(), 0o600)
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, self.path(sha256))

    def sync(self) -> None:
        """Make added bundles survive a loss of power; call it before a version names them.

        Call it once for many bundles: it takes as long as storing one.
        """
        sync_directory(self.directory)

    @contextmanager
    def open_verified(self, sha256: str, size: int | None = None) -> Iterator[BufferedReader]:
        """Open the bundle for the block; raise BundleError unless it has this hash and size."""
        try:
            with open(self.path(sha256), "rb") as file:
                _verify(file, sha256, size)
                file.seek(0)
                yield file
        except (FileNotFoundError, NotADirectoryError):
            raise BundleError(f"it is not in {self.name}") from None

    def remove(self, sha256: str) -> None:
        """Remove the bundle and its partial file; no version may name it."""
        self.path(sha256).unlink(missing_ok=True)
        self.partial(sha256).unlink(missing_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read and write; an opener for open()."""
    return os.open(path, flags, 0o600)


def _verify(file: BufferedReader, sha256: str, size: int | None) -> None:
    actual_size = os.fstat(file.fileno()).st_size
    if size not in (None, actual_size):
        raise BundleError(f"it has {actual_size} bytes, not {size}")
    actual_sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if actual_sha256 != sha256:
        raise BundleError(f"its SHA-256 is {actual_sha256}, not {sha256}")
