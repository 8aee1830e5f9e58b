"""The check of the whole database and of all bundles, for widget-catalog check."""

import json
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

from ..documents import DocumentError, Row, check_document, version_warnings
from ..text import quoted
from .bundles import BundleError, Bundles
from .connection.database import Database
from .connection.sqlite import result_code
from .connection.transaction import Transaction
from .read.export import EXPORT_WIDGETS, read_document
from .read.selection import IS_SELECTED
from .schema.derived import TOUCH_ALL, add_ranges, folded_columns
from .schema.sdk_intervals import sdk_intervals
from .write.held_bundles import HeldBundle, bundle_path
from .write.imports import (
    VERSION_COLUMNS,
    WIDGET_COLUMNS,
    version_rows,
    widget_row,
)

# FTS5 compares the index with the indexed text. It changes nothing, although it is an INSERT.
CHECK_INDEX = "INSERT INTO listing_text (listing_text, rank) VALUES ('integrity-check', 1)"
SUM_OF_DAYS = "coalesce((SELECT sum(installs) FROM install WHERE widget_id = widget.id), 0)"


WIDGET_TEXTS = "SELECT id, display_name, description, folded_name, folded_text FROM widget"
SET_FOLDED = """
UPDATE widget SET folded_name = :folded_name, folded_text = :folded_text WHERE id = :id
"""


def repair_derived(database: Database) -> None:
    """Write all derived rows again. A new history begins, so mirrors compare every widget."""
    history = secrets.token_hex(8)

    def rewrite(transaction: Transaction) -> None:
        for row in transaction.read(WIDGET_TEXTS):
            folded = folded_columns(row["display_name"], row["description"])
            if any(row[column] != text for column, text in folded.items()):
                transaction.execute(SET_FOLDED, {"id": row["id"], **folded})
        ranges = [row["range"] for row in transaction.read("SELECT range FROM sdk_range")]
        transaction.execute("DELETE FROM sdk_interval")
        for statement in add_ranges(ranges):
            transaction.execute(*statement)
        transaction.execute("INSERT INTO listing_text (listing_text) VALUES ('delete-all')")
        for table in ("listing", "summary", "change"):
            transaction.execute(f"DELETE FROM {table}")
        transaction.execute(f"UPDATE widget SET counted = {SUM_OF_DAYS}")
        transaction.execute("UPDATE revision SET history = :history", {"history": history})
        transaction.execute(TOUCH_ALL)

    database.transact(rewrite)


def check_catalog(database: Database) -> Iterator[str]:
    """Return a sentence for each problem of the database."""
    try:
        with database.read() as connection:
            for (result,) in connection.execute("PRAGMA integrity_check"):
                if result != "ok":
                    yield f"The file is damaged: {result}."
            for table, row_id, parent, _ in connection.execute("PRAGMA foreign_key_check"):
                # Rows of a table WITHOUT ROWID have no number.
                child = "A row" if row_id is None else f"Row {row_id}"
                yield f"{child} of {table} refers to no {parent}."
            yield from _check_derived(connection)
            for row in connection.execute(EXPORT_WIDGETS, {"paths": None}).fetchall():
                yield from _check_widget(connection, row)
    except sqlite3.DatabaseError as error:
        _raise_if_locked(error)
        yield f"The database cannot be read to the end: {error}."
        return
    try:
        _check_index(database)
    except sqlite3.DatabaseError as error:
        _raise_if_locked(error)
        yield f"The search index does not match the widgets: {error}."


def _check_index(database: Database) -> None:
    """Raise sqlite3.DatabaseError if the text index does not match the widgets."""
    if not database.is_cluster:
        database.transact(lambda transaction: transaction.execute(CHECK_INDEX), dry_run=True)
        return
    # Only the node writes to its file.
    with database.read() as connection, closing(sqlite3.connect("")) as copy:
        connection.backup(copy)
        copy.execute(CHECK_INDEX)


def _raise_if_locked(error: sqlite3.DatabaseError) -> None:
    """Raise the error if the file is locked; all other errors are problems of the file."""
    if result_code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise error


WRONG_LISTINGS = """
SELECT scope || '/' || name AS path
FROM (SELECT * FROM rendered_listing EXCEPT SELECT * FROM listing)
UNION
SELECT scope || '/' || name FROM (SELECT * FROM listing EXCEPT SELECT * FROM rendered_listing)
"""
WRONG_SUMMARIES = """
SELECT scope || '/' || name
FROM rendered_summary AS rendered JOIN widget ON id = rendered.widget_id
LEFT JOIN summary USING (widget_id)
WHERE (rendered.head, rendered.latest, rendered.sdk_range_id)
    IS NOT (summary.head, summary.latest, summary.sdk_range_id)
"""
UNUSED_SUMMARIES = """
SELECT widget_id FROM summary WHERE widget_id NOT IN (SELECT id FROM widget WHERE listed)
"""
WRONG_CHANGES = """
SELECT scope || '/' || name FROM widget LEFT JOIN change USING (scope, name)
WHERE widget.listed <> coalesce(change.listed, 0)
UNION
SELECT scope || '/' || name FROM change WHERE listed AND NOT EXISTS (
    SELECT 1 FROM widget WHERE (widget.scope, widget.name) = (change.scope, change.name))
"""
WRONG_INSTALLS = f"SELECT scope || '/' || name FROM widget WHERE counted <> {SUM_OF_DAYS}"
# Statements that find wrong rows, with a sentence about each value that they return.
DERIVED_ROWS = (
    (WRONG_LISTINGS, "{}: its listing for search differs from the widget."),
    (WRONG_SUMMARIES, "{}: its summary in search results differs from the widget."),
    (UNUSED_SUMMARIES, "Search has a summary for widget {}, which is not listed."),
    (WRONG_CHANGES, "{}: its last change does not say whether it is listed."),
    (WRONG_INSTALLS, "{}: its installs by day do not add up to those that were counted."),
)

STORED_INTERVALS = """
SELECT range, (
    SELECT json_group_array(json_array(low, high)) FROM (
        SELECT low, high FROM sdk_interval WHERE range_id = sdk_range.id ORDER BY low))
FROM sdk_range ORDER BY range
"""


def _check_derived(connection: sqlite3.Connection) -> Iterator[str]:
    """Return a sentence for each row that differs from what it is derived from."""
    for statement, sentence in DERIVED_ROWS:
        for (value,) in connection.execute(statement):
            yield sentence.format(value)
    for text, stored in connection.execute(STORED_INTERVALS):
        if json.loads(stored) != [list(interval) for interval in sdk_intervals(text)]:
            yield f"SDK range {quoted(text)}: its stored intervals do not match the range."


RANGES_AND_TIMES = """
SELECT scope, name, version, sdk_version, published_at
FROM version JOIN widget ON widget.id = widget_id
ORDER BY scope, name, precedence
"""


def find_unusual(database: Database) -> Iterator[str]:
    """Return a sentence for each value of a version that is allowed, and probably a mistake."""
    for row in _read_rows(database, RANGES_AND_TIMES):
        for warning in version_warnings([row]):
            yield f"{row['scope']}/{row['name']}: {warning}."


def _read_rows(database: Database, sql: str) -> list[sqlite3.Row]:
    """Return the rows of a statement; none if the file is damaged: check_catalog() reports that."""
    try:
        return database.fetch(sql, {})
    except sqlite3.DatabaseError as error:
        _raise_if_locked(error)
        return []


HELD_BUNDLES = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_path FROM version
JOIN widget ON widget.id = widget_id
WHERE bundle_path IS NOT NULL
ORDER BY scope, name, version
"""


def check_bundles(database: Database, bundles: Bundles) -> Iterator[str]:
    """Return a sentence for each bundle that is missing, or has the wrong hash, size or path."""
    wrong = dict(_wrong_bundles(bundles))
    for sha256, problem in wrong.items():
        yield f"Bundle {sha256} in {bundles.name}: {problem}."
    for *columns, path in _read_rows(database, HELD_BUNDLES):
        bundle = HeldBundle(*columns)
        version = f"{bundle.scope}/{bundle.name}: version {bundle.version}"
        if path != bundle_path(bundle):
            yield f"{version}: bundle_path is {quoted(path)}, where its bundle is not served."
        if bundle.sha256 in wrong:
            yield f"{version}: its bundle {bundle.sha256} has the wrong bytes."
        elif not bundles.holds(bundle.sha256, bundle.size):
            yield (
                f"{version}: its bundle {bundle.sha256} of {bundle.size} bytes is not in "
                f"{bundles.name}."
            )


def find_missing_bundles(database: Database, bundles: Bundles) -> list[str]:
    """Return the versions whose bundle should be here and is not; their content is not read."""
    return [
        f"{scope}/{name}@{version}"
        for scope, name, version, sha256, size, _ in _read_rows(database, HELD_BUNDLES)
        if not bundles.holds(sha256, size)
    ]


ELSEWHERE = f"""
SELECT scope || '/' || name || '@' || version, sha256_hash
FROM version JOIN widget ON widget.id = widget_id
WHERE listed AND bundle_path IS NULL AND {IS_SELECTED}
ORDER BY scope, name, precedence
"""


def find_elsewhere(
    database: Database, paths: str | None = None, packed: Collection[str] = ()
) -> list[str]:
    """Return the versions of listed widgets whose bundleUrl points elsewhere.

    Of a pack: of selected widgets, whose bundles are not among the packed ones.
    """
    rows = database.fetch(ELSEWHERE, {"paths": paths})
    return [version for version, sha256 in rows if sha256 not in packed]


def _wrong_bundles(bundles: Bundles) -> Iterator[tuple[str, str]]:
    for sha256 in bundles.hashes():
        try:
            with bundles.open_verified(sha256):
                pass
        except BundleError as error:
            yield sha256, str(error)


VERSIONS = "SELECT * FROM version WHERE widget_id = :id"


def _check_widget(connection: sqlite3.Connection, row: sqlite3.Row) -> Iterator[str]:
    path = f"{row['scope']}/{row['name']}"
    try:
        checked = check_document(read_document(connection, row))
    except (DocumentError, ValueError, RecursionError) as error:
        for problem in getattr(error, "problems", [str(error)]):
            yield f"{path}: {problem}."
        return
    yield from _check_columns(path, row, widget_row(checked), WIDGET_COLUMNS)
    stored = {each["version"]: each for each in connection.execute(VERSIONS, {"id": row["id"]})}
    for version in version_rows(checked):
        number = version["version"]
        yield from _check_columns(
            f"{path}: version {number}", stored[number], version, VERSION_COLUMNS
        )


def _check_columns(
    label: str, stored: sqlite3.Row, row: Row, columns: Iterable[str]
) -> Iterator[str]:
    wrong = [column for column in columns if stored[column] != row[column]]
    if wrong:
        yield f"{label}: an import would store another {', '.join(wrong)}."
