"""A directory of bundles, each in a file that is named by the SHA-256 of what it holds."""

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
    """A bundle is not what it should be; the message says why, to go on from its name."""


class Bundles:
    """The bundles that this service holds; a file has its name only once its bytes are checked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # For messages: a name that is not Unicode can be printed too.
        self.name = path_text(directory)
        # Called once before waiting for another process that writes to the directory.
        self.on_wait: Callable[[], None] | None = None

    def path(self, sha256: str) -> Path:
        """Where the bundle with this hash is, or would be."""
        if not HASH.fullmatch(sha256):  # the one name that ever reaches the file system
            raise ValueError(f"{sha256!r} is not a SHA-256")
        return self.directory / sha256

    def partial(self, sha256: str) -> Path:
        """Where a bundle may grow, in one thread at a time, until accept() has checked it."""
        return self.path(sha256).with_suffix(PARTIAL)

    def holds(self, sha256: str, size: int | None = None) -> bool:
        """Whether the bundle is here, and has this size if one is given."""
        try:
            status = self.path(sha256).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return size in (None, status.st_size)

    def hashes(self) -> Iterator[str]:
        """The hash of each bundle that is here, in order."""
        return (name for name in self._names() if HASH.fullmatch(name))

    def partials(self) -> Iterator[str]:
        """The hash of each bundle that has begun to come, in order."""
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
        """Have the directory, made where it is missing, to oneself among those who write to it.

        Who adds a bundle keeps this until a version names it, lest it be removed as one that
        none names.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.locked():
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process write to the directory meanwhile, if there is one."""
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
            os.close(descriptor)  # which unlocks; so does the end of the process, whatever ends it

    def add(self, sha256: str, size: int, chunks: Iterable[bytes]) -> None:
        """Keep what the chunks hold; raises BundleError unless it has this hash and this size."""
        partial = self.partial(sha256)
        with open(partial, "wb", opener=private) as file:
            file.writelines(chunks)
        self.accept(sha256, size)

    def accept(self, sha256: str, size: int) -> None:
        """Keep the partial file as the bundle; raises BundleError, and removes it, if it is not."""
        partial = self.partial(sha256)
        with open(partial, "rb") as file:
            try:
                _check(file, sha256, size)
            except BundleError:
                partial.unlink()
                raise
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
        os.replace(partial, self.path(sha256))

    def sync(self) -> None:
        """Let the bundles last through a loss of power; before a version says that they are here.

        Once for many of them: it takes as long as all the rest of keeping one.
        """
        sync_directory(self.directory)

    @contextmanager
    def checked(self, sha256: str, size: int | None = None) -> Iterator[BufferedReader]:
        """The bundle, open to be read; raises BundleError unless it is what its name says."""
        try:
            with open(self.path(sha256), "rb") as file:
                _check(file, sha256, size)
                file.seek(0)
                yield file
        except (FileNotFoundError, NotADirectoryError):
            raise BundleError(f"it is not in {self.name}") from None

    def remove(self, sha256: str) -> None:
        """Remove the bundle, whole or partial; no version may name it any more."""
        self.path(sha256).unlink(missing_ok=True)
        self.partial(sha256).unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """An opener for open() that makes a file for its owner alone."""
    return os.open(path, flags, 0o600)


def _check(file: BufferedReader, sha256: str, size: int | None) -> None:
    found = os.fstat(file.fileno()).st_size
    if size not in (None, found):
        raise BundleError(f"it has {found} bytes, not {size}")
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise BundleError(f"its SHA-256 is {digest}, not {sha256}")
