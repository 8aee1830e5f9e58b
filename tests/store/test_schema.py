"""schema.sql: rows on which statements rely are valid, and names do not change."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from conftest import ROOT

from catalog.store.schema.schema import SCHEMA_VERSION

TIMESTAMP = "2025-01-02T03:04:05.000Z"
SHA256 = "0123456789abcdef" * 4
# A valid row of each table, in an order in which they can be inserted.
ROWS: dict[str, dict[str, Any]] = {
    "widget": {
        **{"scope": "acme", "name": "clock", "display_name": "Clock", "is_official": 1},
        **{"download_count": 5, "created_at": TIMESTAMP, "listed": 1},
        **{"folded_name": "clock", "folded_text": "clock\nthe time"},
    },
    "sdk_range": {"range": "^1.0.0"},
    "sdk_interval": {"range_id": 1, "low": "r3", "high": "r4"},
    "version": {
        **{"widget_id": 1, "version": "1.0.0", "precedence": "k", "bundle_size": 1},
        **{"bundle_url": "https://a.example/x", "sha256_hash": SHA256, "published_at": TIMESTAMP},
        **{"yanked": 0, "min_w": 1, "min_h": 1, "max_w": 2, "max_h": 2, "sdk_version": "^1.0.0"},
        **{"permissions": "[]", "bundle_path": "/acme/clock/1.0.0/bundle.js"},
    },
    "mirrored": {"widget_id": 1, "source": "https://a.example", "upstream_count": 5},
    "upstream": {"source": "https://a.example", "options": "{}", "token": "x"},
    "change": {"scope": "acme", "name": "clock", "sequence": 1, "listed": 1},
    "token": {
        **{"id": "x", "name": "ci", "sha256_hash": SHA256, "scopes": "[]", "permissions": "[]"},
        "created_at": TIMESTAMP,
    },
    "audit": {"at": TIMESTAMP, "kind": "local", "actor": "ann", "action": "yank"},
}


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    places = ", ".join(f":{column}" for column in row)
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)


@pytest.fixture
def catalog() -> Iterator[sqlite3.Connection]:
    """A catalog without rows."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript((ROOT / "schema.sql").read_text(encoding="utf-8"))
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


INVALID_VALUES: dict[str, dict[str, list[object]]] = {
    "widget": {
        "scope": [None, "", "a/b", b"acme"],
        "name": [None, "", "a/b", b"clock"],
        "is_official": [2],
        "download_count": [-1, 1.5, "many"],
        "listed": [None, 2],
    },
    "sdk_range": {"range": [None]},
    "sdk_interval": {"range_id": [9], "low": ["r9"], "high": ["r0"]},
    "version": {
        **{"widget_id": [None, 9], "yanked": [None, 2], "sdk_version": [None, "^9.0.0"]},
        **{"config_version": ["1"], "permissions": [None, "network"]},
        "bundle_path": ["", "/", "bundle.js"],
    },
    "mirrored": {"widget_id": [9], "upstream_count": [-1], "gone": [None, 2]},
    "upstream": {"options": ["[", None]},
    "change": {"listed": [None, 2]},
    "token": {
        **{"name": [None, ""], "sha256_hash": ["", "A" * 64, "0" * 63]},
        **{"scopes": ["[", "{}"], "permissions": ["[", "{}"]},
    },
    "audit": {"kind": ["remote"], "before": ["{"], "after": ["{"]},
}


@pytest.mark.parametrize("table", INVALID_VALUES)
def test_invalid_values_and_duplicate_rows_are_refused(
    catalog: sqlite3.Connection, table: str
) -> None:
    for parent in ROWS:
        if parent == table:
            break
        insert(catalog, parent, ROWS[parent])
    for column, values in INVALID_VALUES[table].items():
        for value in values:
            with pytest.raises(sqlite3.DatabaseError):
                insert(catalog, table, {**ROWS[table], column: value})
    # The row is valid without the invalid values.
    insert(catalog, table, ROWS[table])
    if table != "audit":
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
            insert(catalog, table, ROWS[table])


def test_rows_keep_what_others_know_them_by(catalog: sqlite3.Connection) -> None:
    for table, row in ROWS.items():
        insert(catalog, table, row)
    for change in ("name = 'watch'", "scope = 'lab'", "id = 5"):
        with pytest.raises(sqlite3.IntegrityError, match="a widget cannot be renamed"):
            catalog.execute(f"UPDATE widget SET {change}")
    with pytest.raises(sqlite3.IntegrityError, match="cannot be moved to another widget"):
        catalog.execute("UPDATE version SET widget_id = 2")
    catalog.execute("DELETE FROM widget")
    for table in ("version", "mirrored"):
        assert catalog.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_tables_are_strict(catalog: sqlite3.Connection) -> None:
    not_strict = catalog.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND NOT strict AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    assert not_strict.fetchall() == []


def test_file_has_the_application_id_and_the_schema_version(catalog: sqlite3.Connection) -> None:
    (application_id,) = catalog.execute("PRAGMA application_id").fetchone()
    (user_version,) = catalog.execute("PRAGMA user_version").fetchone()
    assert (application_id.to_bytes(4, "big"), user_version) == (b"Wcat", SCHEMA_VERSION)
