"""Reads rows for the check of a database that may be damaged."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress

from ...domain.documents import Json
from ...domain.pictures import check_picture
from ..connection.database import Database
from ..connection.sqlite import result_code
from ..read.stored_bundles import NAMED_PICTURES

NO_FAULTS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)


def raise_if_no_fault(error: sqlite3.DatabaseError) -> None:
    """Raise the error if the file is locked, or if there is no space for a copy of it.

    All other errors are problems in the file itself.
    """
    if result_code(error) & 0xFF in NO_FAULTS:
        raise error


def read_pictures(database: Database) -> Iterator[tuple[str, Json]]:
    """Return the valid descriptions of pictures; check_catalog() reports invalid ones."""
    for path, text in read_rows(database, NAMED_PICTURES):
        with suppress(ValueError):
            yield path, json.loads(check_picture(json.loads(text)))


def read_rows(database: Database, sql: str) -> list[sqlite3.Row]:
    """Return the rows of a statement; none for a damaged file, which check_catalog() reports."""
    try:
        return database.fetch(sql, {"paths": None})
    except sqlite3.DatabaseError as error:
        raise_if_no_fault(error)
        return []
