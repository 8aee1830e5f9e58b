"""What people read about a widget: the table about, and the files of pictures."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from ...changes import ChangeError, WidgetName
from ...documents import ABOUT_KEYS, Row
from ..bundles import Bundles
from ..connection.transaction import Transaction

NOTHING: Row = dict.fromkeys(ABOUT_KEYS)
_COLUMNS = ", ".join(ABOUT_KEYS)
PUT_ABOUT = f"""
INSERT INTO about (widget_id, {_COLUMNS})
SELECT (SELECT id FROM widget WHERE scope = :scope AND name = :name),
    {", ".join(f":{key}" for key in ABOUT_KEYS)} WHERE true
ON CONFLICT (widget_id) DO UPDATE
SET ({_COLUMNS}) = ({", ".join(f"excluded.{key}" for key in ABOUT_KEYS)})
"""
FIND_ABOUT = "SELECT * FROM about WHERE widget_id IN (SELECT value FROM json_each(:ids))"


def find_about(transaction: Transaction, ids: Iterable[int]) -> dict[int, sqlite3.Row]:
    """Return the rows of about of these widgets, by their ids."""
    rows = transaction.read(FIND_ABOUT, {"ids": json.dumps(list(ids))})
    return {row["widget_id"]: row for row in rows}


def changed_columns(stored: Any, new: Mapping[str, Any]) -> Row:
    """Return the columns that differ; what is stored may be None."""
    before = stored or NOTHING
    return {key: new[key] for key in ABOUT_KEYS if key in new and before[key] != new[key]}


def edit_about(transaction: Transaction, target: WidgetName, stored: Any, changes: Row) -> None:
    """Write the changed columns, and record them, readme and picture by their SHA-256."""
    row = {key: (stored or NOTHING)[key] for key in ABOUT_KEYS}
    before, after = ({key: _recorded(key, each[key]) for key in changes} for each in (row, changes))
    transaction.execute(PUT_ABOUT, {**target._asdict(), **row, **changes})
    transaction.record("describe", target, before=before, after=after)


def _recorded(key: str, value: str | None) -> str | None:
    if key == "readme" and value is not None:
        return sha256(value.encode()).hexdigest()
    return json.loads(value)["sha256Hash"] if key == "picture" and value is not None else value


class NewFile(NamedTuple):
    """A bundle or a picture that is to be stored."""

    sha256: str
    size: int
    content: Iterable[bytes]


def picture_file(content: bytes) -> NewFile:
    """Return the picture as a file."""
    return NewFile(sha256(content).hexdigest(), len(content), [content])


@contextmanager
def store_files(bundles: Bundles, files: Iterable[NewFile]) -> Iterator[None]:
    """Store the files for the block, in which the catalog must come to name them.

    If it refuses that, a file that was not stored before is removed again. After any other error
    the change may be written, and `gc` removes the files if it is not.
    """
    new = []
    with bundles.writing():
        for each in files:
            if not bundles.holds(each.sha256):
                new.append(each.sha256)
            bundles.add(*each)
        bundles.sync()
        try:
            yield
        except ChangeError:
            for hash_ in new:
                bundles.remove(hash_)
            raise
