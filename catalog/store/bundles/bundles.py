"""The directory of stored bundles: each file is named after the SHA-256 of its content."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path

from ...domain.pictures import MAX_PICTURE_BYTES, is_picture
from ...system.atomic_files import locked_directory, scratch_directory, sync_directory
from ...system.paths import path_text

HASH = re.compile("[0-9a-f]{64}")
PARTIAL = ".partial"
GZIP_SUFFIX = ".gz"
# Matches the names of incomplete files.
PARTIAL_NAME = re.compile("[0-9a-f]{64}([.][a-z0-9_]+[.]gz)?[.]partial")
# The maximum time that a command waits for the lock on the directory. Other processes hold this
# lock while they move a batch of bundles into place.
LOCK_TIMEOUT = 60  # seconds


class BundleError(Exception):
    """A bundle is missing or damaged; the message completes a sentence that names the bundle."""


class Bundles:
    """The bundles that this service stores. A file gets its final name once it is verified."""

    def __init__(self, directory: Path, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self.directory = directory
        # The path for messages, printable even if it is not valid Unicode.
        self.name = path_text(directory)
        self.lock_timeout = lock_timeout
        # Called once before waiting for another process that is writing to the directory.
        self.on_wait: Callable[[], None] | None = None

    def path(self, sha256: str) -> Path:
        """Return the path of the bundle with this hash, even if the file does not exist."""
        # Only a valid hash may become part of a path.
        if not HASH.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is not a SHA-256")
        return self.directory / sha256

    def gzip_path(self, sha256: str) -> Path:
        """Return the path of the bundle's compressed form, even if the file does not exist."""
        return self.path(sha256).with_suffix(GZIP_SUFFIX)

    def has(self, sha256: str, size: int | None = None) -> bool:
        """Return whether the bundle exists and, if a size is given, has this size."""
        try:
            status = self.path(sha256).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return size in (None, status.st_size)

    def has_picture(self, described: Mapping[str, object]) -> bool:
        """Return whether a picture's file exists and matches the description."""
        try:
            with open(self.path(str(described["sha256Hash"])), "rb") as file:
                return is_picture(file.read(MAX_PICTURE_BYTES + 1), described)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def hashes(self) -> Iterator[str]:
        """Return the hash of each bundle, sorted."""
        return (name for name in _names(self.directory) if HASH.fullmatch(name))

    def incomplete(self) -> list[Path]:
        """Return the incomplete files; call this method while the directory is locked.

        While the directory is locked, no process writes to these files: their writers were killed.
        """
        names = filter(PARTIAL_NAME.fullmatch, _names(self.directory))
        return [self.directory / name for name in names]

    def create(self) -> None:
        """Create the directory if it is missing."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the directory while the block runs, and create it if it is missing.

        Hold the lock until a version refers to the added bundle: gc removes unreferenced bundles.
        Other processes wait for the lock, and raise TimeoutError after lock_timeout seconds.
        """
        self.create()
        with self.locked():
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory, if it exists, so that no other process writes to it in the block."""
        if not self.directory.is_dir():
            yield
            return
        with locked_directory(self.directory, self.lock_timeout, self.on_wait):
            yield

    @contextmanager
    def incoming(self) -> Iterator["Bundles"]:
        """Yield a temporary directory for bundles, which accept() moves to the main directory.

        Adding a bundle there does not lock the main directory, so publications do not have to wait.
        """
        self.create()
        with scratch_directory(self.directory) as directory:
            yield Bundles(directory)

    def accept(self, incoming: "Bundles", sha256: str) -> None:
        """Move a bundle, and its compressed form if any, out of the incoming() directory."""
        # Move the bundle first: if the process is killed, no compressed form lacks its bundle.
        os.replace(incoming.path(sha256), self.path(sha256))
        if (compressed := incoming.gzip_path(sha256)).exists():
            os.replace(compressed, self.gzip_path(sha256))

    def add(
        self, sha256: str, size: int | None, chunks: Iterable[bytes], *, durable: bool = True
    ) -> None:
        """Store the chunks as the bundle; raise BundleError unless they have this hash and size.

        With durable=False, this is much faster, but a power failure may lose the bundle.
        """
        new = self.path(sha256).with_suffix(PARTIAL)
        try:
            with open(new, "w+b", opener=open_private) as file:
                file.writelines(chunks)
                file.flush()
                file.seek(0)
                _verify(file, sha256, size)
                if durable:
                    os.fsync(file.fileno())
            os.replace(new, self.path(sha256))
        except BaseException as error:
            # Remove the incomplete file: the disk may be full.
            new.unlink(missing_ok=True)
            if isinstance(error, OSError):
                # Add a path to the error: the error of a failed write does not name the file.
                error.filename = error.filename or str(self.directory)
            raise

    def sync(self) -> None:
        """Make new files survive a power failure; call this before a version refers to them.

        One call for many bundles takes about as long as storing a single bundle.
        """
        sync_directory(self.directory)

    @contextmanager
    def open_verified(self, sha256: str) -> Iterator[BufferedReader]:
        """Yield the open bundle; raise BundleError unless the bundle has this hash."""
        path = self.path(sha256)
        with _open(path) as file:
            try:
                _verify(file, sha256, size=None)
            except OSError as error:
                # Add the path to the error: the error of a failed read does not name the file.
                error.filename = error.filename or str(path)
                raise
            file.seek(0)
            yield file

    def remove(self, sha256: str) -> None:
        """Remove the bundle and its compressed form; call this only if no version refers to it."""
        self.gzip_path(sha256).unlink(missing_ok=True)
        self.path(sha256).unlink(missing_ok=True)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _open(path: Path) -> BufferedReader:
    try:
        return open(path, "rb")
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(f"it is not in {path_text(path.parent)}") from None


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read and write; an opener for open()."""
    return os.open(path, flags, 0o600)


def _verify(file: BufferedReader | BufferedRandom, sha256: str, size: int | None) -> None:
    actual_size = os.fstat(file.fileno()).st_size
    if size not in (None, actual_size):
        raise BundleError(f"it has {actual_size} bytes, not {size}")
    actual_sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if actual_sha256 != sha256:
        raise BundleError(f"its SHA-256 is {actual_sha256}, not {sha256}")
