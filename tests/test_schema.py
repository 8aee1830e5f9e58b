"""schema.sql: invalid rows are refused, and triggers keep the tables of search up to date."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any

import pytest
from conftest import ROOT

from catalog.store.schema.schema import APPLICATION_ID, SCHEMA_VERSION
from catalog.store.write import writes

TIMESTAMP = "2025-01-02T03:04:05.000Z"
WIDGET = {
    **{"scope": "acme", "name": "clock", "display_name": "Clock", "description": "The time"},
    **{"icon": None, "is_official": 1, "download_count": 5, "created_at": TIMESTAMP, "listed": 1},
    **{"folded_name": "clock", "folded_text": "clock\nthe time"},
}
VERSION = {
    **{"widget_id": 1, "version": "1.0.0", "precedence": "k", "bundle_url": "https://a.example/x"},
    **{"bundle_size": 1, "sha256_hash": "0123456789abcdef" * 4, "published_at": TIMESTAMP},
    **{"yanked": 0, "yanked_reason": None, "deprecation_message": None, "release_notes": None},
    **{"display_name": None, "description": None, "icon": None, "min_w": 1, "min_h": 1},
    **{"max_w": 2, "max_h": 2, "sdk_version": "^1.0.0", "config_version": None},
    **{"permissions": "[]", "license": None, "bundle_path": "/acme/clock/1.0.0/bundle.js"},
}
RANGE = {"range": "^1.0.0", "intervals": '[["r1", "r2"]]'}
INTERVAL = {"low": "r3", "high": "r4"}
MIRRORED = {"source": "https://a.example", "etag": '"x"', "upstream_count": 5}


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    places = ", ".join(f":{column}" for column in row)
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)


@cache
def empty_schema() -> bytes:
    """Return a database without rows; to copy it is faster than to create one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((ROOT / "schema.sql").read_text(encoding="utf-8"))
        return connection.serialize()


@pytest.fixture
def catalog() -> Iterator[sqlite3.Connection]:
    """A catalog of one widget with one version."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(empty_schema())
        connection.execute("PRAGMA foreign_keys = ON")
        insert(connection, "widget", WIDGET)
        insert(connection, "sdk_range", RANGE)
        insert(connection, "version", VERSION)
        insert(connection, "mirrored", {**MIRRORED, "widget_id": 1})
        yield connection


INVALID_TIMES = [
    *("", "soon", "2025-01-02", "2025-01-02T03:04:05Z", "2025-01-02 03:04:05.000Z", None, 5),
    *("2025-01-02T03:04:05.0000Z", "2025-01-02T03:04:05.000", "2025-01-02T03:04:05.000+00:00"),
    *("2025-13-01T00:00:00.000Z", "2025-01-02T03:04:60.000Z", "12025-01-02T03:04:05.000Z"),
    *("2025-02-29T00:00:00.000Z", "2025-04-31T00:00:00.000Z", "2025-01-02T24:00:00.000Z"),
]
INVALID_COUNTS = [-1, 1.5, "many", b"1"]
INVALID_VALUES = {
    "widget": {
        "scope": [None, "", "a/b", b"acme"],
        "name": [None, "", "a/b", b"clock"],
        "display_name": [None, "", b"Clock"],
        "description": [b"x"],
        "icon": [b"x"],
        "is_official": [2, -1, "yes", 0.5],
        "download_count": INVALID_COUNTS,
        "created_at": INVALID_TIMES,
        "listed": [None, 2, "yes"],
        "folded_name": [None],
        "folded_text": [None],
    },
    "version": {
        "widget_id": [None, 9, "acme"],
        "version": [None, "", b"1.0.0"],
        "precedence": [None],
        "bundle_url": [None, "", "x.js", "ftp://a.example/x", "javascript:1", "https://"],
        "bundle_size": [None, *INVALID_COUNTS],
        "sha256_hash": [None, "", "0" * 63, "0" * 65, "g" * 64, "A" * 64, b"0" * 64],
        "published_at": INVALID_TIMES,
        "yanked": [None, 2, "no"],
        "yanked_reason": [b"x"],
        "deprecation_message": [b"x"],
        "release_notes": [b"x"],
        "display_name": ["", b"x"],
        "description": [b"x"],
        "icon": [b"x"],
        "min_w": [None, -1, 3, 0.5, "x"],
        "min_h": [None, -1, 3, 0.5, "x"],
        "max_w": [None, -1, 0, 2.5, "x"],
        "max_h": [None, -1, 0, 2.5, "x"],
        "sdk_version": [None, b"x", "^9.0.0"],
        "config_version": ["1", b"1"],
        "permissions": [None, "", "network", "{}", '"x"', "[", "null"],
        "license": [b"x"],
        "bundle_path": ["", "/", "bundle.js", b"/x"],
    },
    "sdk_range": {
        "range": [None, b"x"],
        "intervals": [None, b"x", "", "["],
    },
    "sdk_interval": {
        "range_id": [None, 9, "x"],
        "low": [None, b"x", "r9"],
        "high": [None, b"x", "r0"],
    },
    "mirrored": {
        "widget_id": [9, "acme"],
        "source": [None, b"x"],
        "etag": [b"x"],
        "upstream_count": INVALID_COUNTS,
    },
}
INVALID = [
    pytest.param(table, column, value, id=f"{table}-{column}-{value!r:.30}")
    for table, columns in INVALID_VALUES.items()
    for column, values in columns.items()
    for value in values
]


def test_every_column_has_invalid_values_to_test(catalog: sqlite3.Connection) -> None:
    for table, columns in INVALID_VALUES.items():
        names = {row[1] for row in catalog.execute(f"PRAGMA table_info({table})")} - {"id"}
        assert set(columns) == names


@pytest.mark.parametrize(("table", "column", "value"), INVALID)
def test_invalid_value_is_refused(
    catalog: sqlite3.Connection, table: str, column: str, value: object
) -> None:
    fresh = {
        "widget": {**WIDGET, "name": "other"},
        "version": {**VERSION, "version": "2.0.0"},
        "sdk_range": {**RANGE, "range": "^2.0.0"},
        "sdk_interval": {**INTERVAL, "range_id": 1},
        "mirrored": {**MIRRORED, "widget_id": 2},
    }
    insert(catalog, "widget", {**WIDGET, "name": "mirrored"})
    with pytest.raises(sqlite3.IntegrityError):
        insert(catalog, table, {**fresh[table], column: value})
    with pytest.raises(sqlite3.IntegrityError):
        catalog.execute(f"UPDATE {table} SET {column} = ?", (value,))
    # The row is valid without the invalid value.
    insert(catalog, table, fresh[table])


@pytest.mark.parametrize(
    ("table", "row"), [("widget", WIDGET), ("version", VERSION), ("sdk_range", RANGE)]
)
def test_duplicate_row_is_refused(
    catalog: sqlite3.Connection, table: str, row: dict[str, Any]
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        insert(catalog, table, row)


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
def test_first_and_last_timestamps_are_valid(catalog: sqlite3.Connection, timestamp: str) -> None:
    insert(catalog, "widget", {**WIDGET, "name": "other", "created_at": timestamp})


def test_every_millisecond_is_valid(catalog: sqlite3.Connection) -> None:
    for ms in range(0, 60_000, 7):
        timestamp = f"2024-02-29T23:59:{ms // 1000:02}.{ms % 1000:03}Z"
        catalog.execute("UPDATE version SET published_at = ?", (timestamp,))


def test_tables_are_strict(catalog: sqlite3.Connection) -> None:
    not_strict = catalog.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND NOT strict AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    assert not_strict.fetchall() == []


def test_file_has_the_application_id_and_the_schema_version(catalog: sqlite3.Connection) -> None:
    (application_id,) = catalog.execute("PRAGMA application_id").fetchone()
    (user_version,) = catalog.execute("PRAGMA user_version").fetchone()
    assert (application_id, user_version) == (APPLICATION_ID, SCHEMA_VERSION)
    assert APPLICATION_ID.to_bytes(4, "big") == b"Wcat"


CHECK_INDEX = "INSERT INTO listing_text (listing_text, rank) VALUES ('integrity-check', 1)"
EXPECTED_LISTING = """
SELECT id, scope, name, coalesce(is_official, 0), coalesce(download_count, -1), created_at,
    coalesce(published_at, ''), coalesce(permissions, '[]'), coalesce(license, ''),
    folded_name, folded_text
FROM widget LEFT JOIN (
    SELECT widget_id, max(published_at) AS published_at, permissions, license
    FROM version WHERE NOT yanked GROUP BY widget_id
) ON widget_id = id
WHERE listed ORDER BY id
"""


def check_listing(catalog: sqlite3.Connection) -> None:
    rows = catalog.execute("SELECT * FROM listing ORDER BY widget_id").fetchall()
    assert rows == catalog.execute(EXPECTED_LISTING).fetchall()
    summaries = catalog.execute("SELECT * FROM summary ORDER BY widget_id").fetchall()
    assert summaries == catalog.execute("SELECT * FROM rendered_summary").fetchall()
    # Raises if the index differs from the listed texts.
    catalog.execute(CHECK_INDEX)


def widgets_with(catalog: sqlite3.Connection, word: str) -> list[int]:
    sql = "SELECT rowid FROM listing_text WHERE listing_text MATCH ? ORDER BY rowid"
    return [row[0] for row in catalog.execute(sql, (word[:3],))]


CHANGES = {
    "scope": "UPDATE widget SET scope = 'b'",
    "name": "UPDATE widget SET name = 'b' || id",
    "display name": "UPDATE widget SET display_name = 'X', folded_name = 'x', folded_text = 'xyz'",
    "folded name": "UPDATE widget SET folded_name = 'other'",
    "folded text": "UPDATE widget SET folded_text = 'some other words'",
    "folded text to none": "UPDATE widget SET folded_text = ''",
    "description": "UPDATE widget SET description = NULL",
    "icon": "UPDATE widget SET icon = 'mdi:x'",
    "official": "UPDATE widget SET is_official = 1 - is_official",
    "official to null": "UPDATE widget SET is_official = NULL",
    "count": "UPDATE widget SET download_count = 9",
    "count to null": "UPDATE widget SET download_count = NULL",
    "creation": "UPDATE widget SET created_at = '2020-01-01T00:00:00.000Z'",
    "unlist": "UPDATE widget SET listed = 0",
    "relist": "UPDATE widget SET listed = 1",
    "swap": "UPDATE widget SET listed = 1 - listed, folded_text = 'swapped', download_count = 7",
    "unlist and relist": "UPDATE widget SET listed = 0; UPDATE widget SET listed = 1",
    "change while unlisted": "UPDATE widget SET listed = 0, folded_text = 'hidden';"
    "UPDATE widget SET scope = 'z'; UPDATE widget SET listed = 1",
    "id": "UPDATE widget SET id = id + 100 WHERE id > 1",
    "version added": "INSERT INTO version SELECT NULL, 1, '2.0.0', 'l', bundle_url, bundle_size, "
    "sha256_hash, published_at, 0, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 2, 2, sdk_version, "
    "NULL, '[]', NULL, NULL FROM version",
    "version changed": "UPDATE version SET license = 'MIT'",
    "permissions": "UPDATE version SET permissions = '[\"network\"]'",
    "version of another widget": "UPDATE version SET widget_id = 3",
    "version yanked": "UPDATE version SET yanked = 1",
    "version of another range": "UPDATE version SET sdk_version = '^2.0.0'",
    "version published later": "UPDATE version SET published_at = '2026-01-01T00:00:00.000Z'",
    "older version": "INSERT INTO version SELECT NULL, 1, '0.9.0', 'j', bundle_url, bundle_size, "
    "sha256_hash, '2024-01-01T00:00:00.000Z', 0, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 2, 2, "
    "sdk_version, NULL, '[]', NULL, NULL FROM version;"
    "DELETE FROM version WHERE version = '1.0.0'",
    "version deleted": "DELETE FROM version",
    "delete listed": "DELETE FROM widget WHERE listed",
    "delete unlisted": "DELETE FROM widget WHERE NOT listed",
    "delete all": "DELETE FROM widget",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_triggers_update_the_tables_of_search(catalog: sqlite3.Connection, change: str) -> None:
    hidden = {"is_official": 0, "folded_text": "hidden thing", "listed": 0}
    insert(catalog, "widget", {**WIDGET, "name": "hidden", **hidden})
    nulls = {"is_official": None, "download_count": None, "folded_text": "天気予報"}
    insert(catalog, "widget", {**WIDGET, "name": "weather", **nulls})
    insert(catalog, "sdk_range", {"range": "^2.0.0", "intervals": '[["r2", "r3"]]'})
    check_listing(catalog)
    catalog.executescript(change)
    check_listing(catalog)


def test_text_of_a_widget_is_found_only_while_it_is_listed(catalog: sqlite3.Connection) -> None:
    assert widgets_with(catalog, "time") == [1]
    catalog.execute("UPDATE widget SET listed = 0")
    assert widgets_with(catalog, "time") == []
    catalog.execute("UPDATE widget SET listed = 1, folded_text = 'clock of days'")
    assert (widgets_with(catalog, "time"), widgets_with(catalog, "days")) == ([], [1])


def test_install_does_not_change_the_summary(catalog: sqlite3.Connection) -> None:
    catalog.execute("UPDATE summary SET head = 'as it was'")
    for sql, values in writes.count_install("acme", "clock"):
        catalog.execute(sql, values)
    assert catalog.execute("SELECT head FROM summary").fetchall() == [("as it was",)]


def test_added_range_has_its_intervals_as_rows(catalog: sqlite3.Connection) -> None:
    catalog.execute(*writes.add_ranges(["^1.0.0", ">1.2.3 <2.0.0 || 3.0.0-rc.1", "none"]))
    rows = catalog.execute(
        "SELECT range, low, high FROM sdk_range LEFT JOIN sdk_interval ON range_id = id "
        "ORDER BY id, low"
    )
    assert rows.fetchall() == [
        ("^1.0.0", "r1", "r2"),
        (">1.2.3 <2.0.0 || 3.0.0-rc.1", "p0013.0010.0010-:rc,0011", "p0013.0010.0010-:rc,0011 "),
        (">1.2.3 <2.0.0 || 3.0.0-rc.1", "r0011.0012.0013~ ", "r0012.0010.0010~"),
        (">1.2.3 <2.0.0 || 3.0.0-rc.1", "r0013.0010.0010-:rc,0011", "r0013.0010.0010-:rc,0011 "),
        ("none", None, None),
    ]


def test_delete_of_a_widget_deletes_its_rows_everywhere(catalog: sqlite3.Connection) -> None:
    catalog.execute("DELETE FROM widget")
    assert catalog.execute("SELECT count(*) FROM version").fetchone() == (0,)
    assert catalog.execute("SELECT count(*) FROM mirrored").fetchone() == (0,)
    assert catalog.execute("SELECT count(*) FROM listing").fetchone() == (0,)
    assert catalog.execute("SELECT count(*) FROM summary").fetchone() == (0,)
    assert widgets_with(catalog, "time") == []
