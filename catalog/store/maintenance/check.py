"""Finds problems in the database for the check command, and repairs derived rows."""

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator

from ...domain.changes import TooLargeError
from ...domain.documents import (
    ABOUT_KEYS,
    DocumentError,
    Row,
    check_document,
    version_warnings,
)
from ...domain.messages import quoted
from ...domain.validators import check_base_url, check_etag
from ..bundles.bundles import Bundles
from ..connection.database import Database
from ..connection.sqlite import is_busy, is_disk_full, temporary_copy
from ..connection.transaction import Transaction
from ..read.export import read_document, widget_rows
from ..schema.derived import (
    REFRESH_ANY_SIZE,
    SET_FOLDED,
    TOUCH_ALL,
    WIDGET_TEXTS,
    add_ranges,
    fold_again,
    folded_keywords,
)
from ..write.documents import VERSION_COLUMNS, WIDGET_COLUMNS, version_rows, widget_row
from .check_bundles import read_pictures, read_rows

KEYWORDS = "SELECT widget_id, keywords, folded_keywords FROM about"
SET_FOLDED_KEYWORDS = "UPDATE about SET folded_keywords = :folded WHERE widget_id = :id"


def repair_derived(database: Database) -> None:
    """Rebuild all derived rows, and begin a new history, so that mirrors compare every widget."""
    database.transact(_repair)


def _repair(transaction: Transaction) -> None:
    _rewrite_derived(transaction)
    for statement in REFRESH_ANY_SIZE:
        transaction.execute(statement)


def _rewrite_derived(transaction: Transaction) -> None:
    texts, abouts = transaction.read(WIDGET_TEXTS), transaction.read(KEYWORDS)
    ranges = [row["range"] for row in transaction.read("SELECT range FROM sdk_range")]
    transaction.execute_many(SET_FOLDED, fold_again(texts))
    for row in abouts:
        keywords = folded_keywords(row["keywords"])
        if keywords != row["folded_keywords"]:
            values = {"id": row["widget_id"], "folded": keywords}
            transaction.execute(SET_FOLDED_KEYWORDS, values)
    transaction.execute("DELETE FROM sdk_interval")
    for statement in add_ranges(ranges):
        transaction.execute(*statement)
    transaction.execute("INSERT INTO listing_text (listing_text) VALUES ('delete-all')")
    for table in ("listing", "listing_keyword", "summary", "change"):
        transaction.execute(f"DELETE FROM {table}")
    history = {"history": secrets.token_hex(8)}
    transaction.execute("UPDATE revision SET history = :history", history)
    transaction.execute(TOUCH_ALL)


def check_catalog(database: Database) -> Iterator[str]:
    """Return a sentence for each problem in the database."""
    try:
        # Run the repair on a copy, so that no install waits for it.
        with database.read() as connection, temporary_copy(connection) as copy:
            yield from _check_file(connection)
            yield from _check_derived(copy)
            for row in widget_rows(connection):
                yield from _check_widget(connection, row)
            yield from _check_sources(connection)
            yield from _check_index(copy)
    except sqlite3.DatabaseError as error:
        # A locked file, or a disk too full for the copy, does not mean that the file is damaged.
        if is_busy(error) or is_disk_full(error):
            raise
        yield f"The database cannot be read to the end: {error}."


def _check_file(connection: sqlite3.Connection) -> Iterator[str]:
    for (result,) in connection.execute("PRAGMA integrity_check"):
        if result != "ok":
            yield f"The file is damaged: {result}."
    for table, row_id, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        # A row in a WITHOUT ROWID table has no row number.
        child = "A row" if row_id is None else f"Row {row_id}"
        yield f"{child} of {table} refers to a missing {parent}."


LISTINGS = "SELECT scope || '/' || name AS subject, * FROM listing"
KEYWORDS_LISTED = """
SELECT coalesce(scope || '/' || name, 'widget ' || widget_id) AS subject, keyword
FROM listing_keyword LEFT JOIN widget ON id = widget_id
"""
SUMMARIES = """
SELECT coalesce(scope || '/' || name, 'widget ' || widget_id) AS subject, summary.*
FROM summary LEFT JOIN widget ON id = widget_id
"""
# A repair deletes the entries for widgets that are no longer listed, so they are not compared.
LISTED_CHANGES = "SELECT scope || '/' || name AS subject FROM change WHERE listed"
INTERVALS = """
SELECT 'SDK range ''' || range || '''' AS subject, low, high
FROM sdk_range JOIN sdk_interval ON range_id = id
"""
# Queries for derived rows, each with the problem to report for every row that the repair changes.
DERIVED_ROWS = (
    (LISTINGS, "{}: its listing for search differs from the widget."),
    (KEYWORDS_LISTED, "{}: its keywords for search differ from the widget's."),
    (SUMMARIES, "{}: its summary in search results differs from the widget."),
    (LISTED_CHANGES, "{}: its entry in the change feed is missing or wrong."),
    (INTERVALS, "{}: its stored intervals do not match the range."),
)


def _check_derived(copy: sqlite3.Connection) -> Iterator[str]:
    """Return a sentence for each derived row that the repair changes in a copy of the catalog."""
    copy.execute("BEGIN")
    for number, (rows, _) in enumerate(DERIVED_ROWS):
        copy.execute(f"CREATE TEMP TABLE before_{number} AS {rows}")
    transaction = Transaction(copy)
    _rewrite_derived(transaction)
    try:
        transaction.finish()
    except TooLargeError as error:
        yield str(error)
    for number, (after, sentence) in enumerate(DERIVED_ROWS):
        before = f"SELECT * FROM before_{number}"
        changed = f"""
        SELECT subject FROM ({before} EXCEPT {after})
        UNION SELECT subject FROM ({after} EXCEPT {before})
        """
        for (subject,) in copy.execute(changed):
            yield sentence.format(subject)
    copy.execute("ROLLBACK")


# FTS5 compares the index with the indexed text.
CHECK_INDEX = "INSERT INTO listing_text (listing_text, rank) VALUES ('integrity-check', 1)"


def _check_index(copy: sqlite3.Connection) -> Iterator[str]:
    try:
        copy.execute(CHECK_INDEX)
    except sqlite3.DatabaseError as error:
        yield f"The search index does not match the widgets: {error}."


SOURCES = """
SELECT 'Upstream', source, NULL FROM upstream
UNION ALL
SELECT scope || '/' || name, source, etag FROM mirrored JOIN widget ON id = widget_id
"""


def _check_sources(connection: sqlite3.Connection) -> Iterator[str]:
    """Return a sentence for each upstream URL, and each copy's ETag, that a mirror cannot use."""
    for subject, source, etag in connection.execute(SOURCES):
        yield from _check_value(subject, "source", source, check_base_url)
        if etag is not None:
            yield from _check_value(subject, "etag", etag, check_etag)


def _check_value(
    subject: str, column: str, value: object, check: Callable[[object], str]
) -> Iterator[str]:
    try:
        check(value)
    except ValueError as allowed:
        yield f"{subject}: {column} must be {allowed}, not {quoted(value)}."


RANGES_AND_TIMES = """
SELECT scope, name, version, sdk_version, published_at
FROM version JOIN widget ON widget.id = widget_id
ORDER BY scope, name, precedence
"""


def find_unusual(database: Database, bundles: Bundles) -> Iterator[str]:
    """Return a sentence for each value that is valid but probably a mistake."""
    for row in read_rows(database, RANGES_AND_TIMES):
        for warning in version_warnings([row]):
            yield f"{row['scope']}/{row['name']}: {warning}."
    for path, picture in read_pictures(database):
        sha256 = picture["sha256Hash"]
        if not bundles.has(sha256):
            yield f"{path}: its picture {sha256} is not in {bundles.name}, so it is not shown."


VERSIONS_OF_WIDGET = "SELECT * FROM version WHERE widget_id = :id"


def _check_widget(connection: sqlite3.Connection, row: sqlite3.Row) -> Iterator[str]:
    path = f"{row['scope']}/{row['name']}"
    try:
        checked = check_document(read_document(connection, row))
    except (DocumentError, ValueError, RecursionError) as error:
        for problem in getattr(error, "problems", [str(error)]):
            yield f"{path}: {problem}."
        return
    yield from _check_columns(path, row, widget_row(checked), WIDGET_COLUMNS)
    if checked.about:
        yield from _check_columns(path, row, checked.about, ABOUT_KEYS)
    rows = connection.execute(VERSIONS_OF_WIDGET, {"id": row["id"]})
    stored = {each["version"]: each for each in rows}
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
        yield f"{label}: an import would store different values for {', '.join(wrong)}."
