"""A catalog's schema: the statements in schema.sql, and the version that this release uses."""

import sqlite3
from collections.abc import Iterator, Mapping

from ...system.data_files import find_data_file

Statement = tuple[str, Mapping[str, object]]

# The application id "Wcat" marks an SQLite file as a widget catalog.
APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 7
# The schema version of release 1.0.0, the only one that can be migrated.
OLD_SCHEMA_VERSION = 2


def schema_statements() -> Iterator[str]:
    """Return the statements in schema.sql, which turn an empty file into a catalog."""
    statement = ""
    lines = find_data_file("schema.sql").read_text(encoding="utf-8").splitlines(keepends=True)
    for line in lines:
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the file's schema version."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version
