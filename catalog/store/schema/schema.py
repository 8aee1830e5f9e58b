"""The schema of a catalog: the version that this release uses, and the versions that it knows."""

import sqlite3
from collections.abc import Iterator

from ...data_files import DataFileError, find_data_file
from ..connection.sqlite import DatabaseError, Statement

# "Wcat": marks a SQLite file as a widget catalog.
APPLICATION_ID = 0x57636174
SCHEMA_VERSION = 6

COUNT_ALL = """
SELECT (SELECT count(*) FROM widget) AS widgets, (SELECT count(*) FROM version) AS versions
"""


def schema_statements() -> Iterator[Statement]:
    """Return the statements of schema.sql, which make an empty file a catalog."""
    try:
        path = find_data_file("schema.sql")
    except DataFileError as error:
        raise DatabaseError(str(error)) from error
    statement = ""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement, {}
            statement = ""


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the schema version of the file."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def check_schema(connection: sqlite3.Connection, name: str) -> int:
    """Return the schema version of the file; raise DatabaseError if this release cannot use it."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    version = schema_version(connection)
    if application_id != APPLICATION_ID:
        raise DatabaseError(f"{name} is a SQLite file, but not one of a widget catalog.")
    if not 1 <= version <= SCHEMA_VERSION:
        raise DatabaseError(
            f"{name} has schema version {version}, "
            f"and this release reads versions 1 to {SCHEMA_VERSION}."
        )
    return version
