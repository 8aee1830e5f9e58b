"""Paths and errors of the operating system in messages."""

import os
from pathlib import Path


def path_text(path: Path) -> str:
    """Return the path as text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def error_reason(error: OSError | UnicodeError) -> str:
    """Return why a name or an address cannot be used."""
    # Python itself refuses some names of hosts, without an error number.
    return getattr(error, "strerror", None) or str(error)
