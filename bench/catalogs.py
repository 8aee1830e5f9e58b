"""Databases with generated catalogs, each created and served by the code in one checkout."""

import hashlib
import inspect
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import generate, words
from bench.generate import LONG_HISTORY_VERSIONS, USUAL_VERSIONS, write_catalog
from bench.processes import (
    ROOT,
    WORK,
    Server,
    StartError,
    create_database,
    run_flask,
    start_service,
)
from bench.rounds import log


@dataclass(frozen=True)
class Checkout:
    """The files of one version of the service."""

    name: str
    directory: Path


CURRENT = Checkout("current", ROOT)


def extract(commit: str) -> Checkout:
    """Copy the files of a commit to bench/.work; the checkout is named after its short hash."""
    name = _git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")
    directory, archive = WORK / "commit", WORK / "commit.tar"
    _git("archive", f"--output={archive}", name)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    subprocess.run(
        ["tar", "--extract", f"--file={archive}", f"--directory={directory}"], check=True
    )
    return Checkout(name, directory)


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        raise StartError(f"git {arguments[0]} failed: {result.stderr}")
    return result.stdout.strip()


@dataclass
class Catalog:
    """A catalog of generated widgets, with measurements of its database and processes."""

    checkout: Checkout
    widgets: int
    database: Path
    import_seconds: float
    start_seconds: list[float] = field(default_factory=list)
    memory: int = 0

    @contextmanager
    def serve(self, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
        """Start the service with these settings, and yield its process."""
        name, directory = self.checkout.name, self.checkout.directory
        with start_service(name, directory, self.database, settings or {}) as server:
            self.start_seconds.append(server.start_seconds)
            yield server
            self.memory = max(self.memory, server.memory())

    @property
    def versions(self) -> int:
        return (self.widgets - 1) * USUAL_VERSIONS + LONG_HISTORY_VERSIONS


def build(checkout: Checkout, widgets: int) -> Catalog:
    """Import generated widgets into a new database."""
    file = _catalog_file(widgets)
    database = WORK / f"{checkout.name}-{widgets}.db"
    create_database(checkout.directory, database)
    started = time.perf_counter()
    run_flask(checkout.directory, database, "import", str(file))
    seconds = time.perf_counter() - started
    log(f"Imported {widgets:,} widgets in {seconds:.1f} s ({checkout.name}).")
    return Catalog(checkout, widgets, database, seconds)


def _catalog_file(widgets: int) -> Path:
    """Return the catalog as a JSON Lines file, generated anew only if the generator has changed."""
    sources = inspect.getsource(generate) + inspect.getsource(words)
    fingerprint = hashlib.sha256(sources.encode()).hexdigest()[:8]
    file = WORK / f"{widgets}-{fingerprint}.jsonl"
    if not file.exists():
        log(f"Generating {widgets:,} widgets.")
        write_catalog(file, widgets)
    return file
