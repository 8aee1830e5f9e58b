"""Files that backup and pack write, with the current time in their names."""

from datetime import UTC, datetime
from pathlib import Path


def dated_path(directory: Path, time: datetime, suffix: str) -> Path:
    """Return the path for a file that is written at this time."""
    return directory / f"catalog-{time:%Y%m%dT%H%M%SZ}{suffix}"


def find_newest(directory: Path, suffix: str) -> Path | None:
    """Return the newest dated file, if there is one."""
    files = find_dated_until(dated_path(directory, datetime.now(UTC), suffix))
    return files[-1] if files else None


def find_dated_until(newest: Path) -> list[Path]:
    """Return the dated files up to this one, sorted. Later dates come from a wrong clock."""
    pattern = f"catalog-{'[0-9]' * 8}T{'[0-9]' * 6}Z{newest.suffix}"
    return sorted(path for path in newest.parent.glob(pattern) if path.is_file() and path <= newest)
