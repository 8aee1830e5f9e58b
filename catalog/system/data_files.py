"""The service's files that are not code, such as schema.sql."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


class DataFileError(Exception):
    """The installation lacks a file; the message names the file and says what to do."""


def find_data_file(name: str) -> Path:
    """Return the path of a file; raise DataFileError if it is missing.

    An installed package contains all files; in a checkout, some are beside the package.
    """
    for path in (PACKAGE / name, PACKAGE.parent / name):
        if path.is_file():
            return path
    raise DataFileError(
        f"This installation of the widget catalog is incomplete: {name} is missing. Reinstall it."
    )
