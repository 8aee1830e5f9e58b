"""Files that the service reads but that are no code, such as schema.sql."""

from pathlib import Path

PACKAGE = Path(__file__).parent


class DataFileError(Exception):
    """A file of the installation is missing; the message names it and says what to do."""


def find_data_file(name: str) -> Path:
    """Return the path of a file, given relative to the top of a checkout; raise DataFileError.

    An installed package contains the file; in a checkout it is beside the package.
    """
    for path in (PACKAGE / name, PACKAGE.parent / name):
        if path.is_file():
            return path
    raise DataFileError(
        f"This installation of the widget catalog is incomplete: {name} is missing. Reinstall it."
    )
