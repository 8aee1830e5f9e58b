"""Formats paths and operating system errors for messages."""

import os
from pathlib import Path


def path_text(path: Path) -> str:
    """Return the path as a string, with escapes for bytes that are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def error_reason(error: OSError | UnicodeError) -> str:
    """Return why an address, host name or file cannot be used."""
    # If Python itself rejects a host name, the error has no strerror.
    return getattr(error, "strerror", None) or str(error)
