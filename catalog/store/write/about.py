"""Writes a widget's about: its row in the about table, and its picture file."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from ...domain.changes import ChangeError, WidgetName
from ...domain.documents import ABOUT_KEYS, Row
from ...domain.pictures import describe_picture
from ..bundles.bundles import Bundles
from ..bundles.compressed import compress_bundle
from ..connection.transaction import Transaction
from ..schema.derived import folded_keywords

NOTHING: Row = dict.fromkeys(ABOUT_KEYS)
COLUMNS = (*ABOUT_KEYS, "folded_keywords")
PUT_ABOUT = f"""
INSERT INTO about (widget_id, {", ".join(COLUMNS)})
VALUES ((SELECT id FROM widget WHERE scope = :scope AND name = :name),
    {", ".join(f":{key}" for key in COLUMNS)})
ON CONFLICT (widget_id) DO UPDATE
SET ({", ".join(COLUMNS)}) = ({", ".join(f"excluded.{key}" for key in COLUMNS)})
"""
FIND_ABOUT = "SELECT * FROM about WHERE widget_id IN (SELECT value FROM json_each(:ids))"


def find_about_rows(transaction: Transaction, ids: Iterable[int]) -> dict[int, sqlite3.Row]:
    """Return these widgets' rows in the about table, by widget id."""
    rows = transaction.read(FIND_ABOUT, {"ids": json.dumps(list(ids))})
    return {row["widget_id"]: row for row in rows}


def put_about(transaction: Transaction, rows: Iterable[Row]) -> None:
    """Write rows to the about table; each row includes its widget's scope and name."""
    folded = [{**row, "folded_keywords": folded_keywords(row["keywords"])} for row in rows]
    transaction.execute_many(PUT_ABOUT, folded)


def changed_columns(stored: Any, new: Mapping[str, Any]) -> Row:
    """Return the columns that differ from the stored row, which may be None."""
    before = stored or NOTHING
    return {key: new[key] for key in ABOUT_KEYS if key in new and before[key] != new[key]}


def edit_about(transaction: Transaction, target: WidgetName, stored: Any, changes: Row) -> None:
    """Write and record the changed columns; readme and picture are recorded as their SHA-256."""
    row = {key: (stored or NOTHING)[key] for key in ABOUT_KEYS}
    before, after = ({key: _recorded(key, each[key]) for key in changes} for each in (row, changes))
    put_about(transaction, [{**target._asdict(), **row, **changes}])
    transaction.record("describe", target, before=before, after=after)


def _recorded(key: str, value: str | None) -> object:
    """Return a column's value as the audit log stores it."""
    if value is None or key not in ("readme", "keywords", "picture"):
        return value
    if key == "readme":
        return sha256(value.encode()).hexdigest()
    return json.loads(value) if key == "keywords" else json.loads(value)["sha256Hash"]


class NewFile(NamedTuple):
    """A bundle or picture to be stored."""

    sha256: str
    size: int
    content: Iterable[bytes]
    is_bundle: bool = False


def picture_file(content: bytes) -> NewFile:
    """Return the picture as a file to store; raise NotAllowedError if it is not allowed."""
    return NewFile(str(describe_picture(content)["sha256Hash"]), len(content), [content])


@contextmanager
def store_files(bundles: Bundles, files: Iterable[NewFile]) -> Iterator[None]:
    """Store the files, and then run the block, which must make the catalog refer to them.

    If the catalog refuses the change, files that were not stored before are removed again. After
    any other error, the change may have been written; if it was not, `gc` removes the files.
    """
    new = []
    with bundles.writing():
        for each in files:
            if not bundles.has(each.sha256):
                new.append(each.sha256)
            bundles.add(each.sha256, each.size, each.content)
            if each.is_bundle:
                compress_bundle(bundles, each.sha256)
        bundles.sync()
        try:
            yield
        except ChangeError:
            for hash_ in new:
                bundles.remove(hash_)
            raise
