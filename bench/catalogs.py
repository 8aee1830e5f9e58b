"""The catalogs that are measured: a file of documents, and the database it becomes."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median

from bench import generate, words
from bench.generate import LONG_HISTORY_VERSIONS, USUAL_VERSIONS, write_catalog
from bench.processes import ROOT, WORK, StartError, settings

IMPORT_PATIENCE = 300


@dataclass
class Catalog:
    widgets: int
    database: Path
    import_seconds: float
    first_answers: list[float] = field(default_factory=list)
    memory: int = 0

    @property
    def versions(self) -> int:
        return (self.widgets - 1) * USUAL_VERSIONS + LONG_HISTORY_VERSIONS

    def facts(self) -> dict[str, object]:
        return {
            "widgets": self.widgets,
            "versions": self.versions,
            "import_seconds": self.import_seconds,
            "database_bytes": self.database.stat().st_size,
            "first_answer_seconds": median(self.first_answers) if self.first_answers else None,
            "slowest_first_answer_seconds": max(self.first_answers, default=None),
            "memory": self.memory,
        }


def build(widgets: int, largest: int, say: Callable[[str], None]) -> Catalog:
    """Import the catalog of so many widgets into a new database."""
    file = _file(widgets, _file(largest, None, say), say)
    database = WORK / f"{widgets}.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    _flask(database, "init")
    begun = time.perf_counter()
    _flask(database, "import", str(file))
    seconds = time.perf_counter() - begun
    say(f"Imported {widgets:,} widgets in {seconds:.1f} s.")
    return Catalog(widgets, database, seconds)


def _file(widgets: int, larger: Path | None, say: Callable[[str], None]) -> Path:
    """The catalog's file; made anew only where the generator has changed."""
    sources = (Path(module.__file__).read_bytes() for module in (generate, words))
    fingerprint = hashlib.sha256(b"".join(sources)).hexdigest()[:8]
    file = WORK / f"{widgets}-{fingerprint}.jsonl"
    if file.exists():
        return file
    say(f"Generating {widgets:,} widgets.")
    if larger:  # a smaller catalog is the beginning of a larger one
        with larger.open("rb") as lines, file.open("wb") as start:
            start.writelines(islice(lines, widgets))
    else:
        write_catalog(file, widgets)
    return file


def _flask(database: Path, *arguments: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "flask", *arguments],
        cwd=ROOT,
        env=settings(database),
        capture_output=True,
        text=True,
        timeout=IMPORT_PATIENCE,
    )
    if ran.returncode:
        raise StartError(f"flask {arguments[0]} failed: {ran.stderr}")
