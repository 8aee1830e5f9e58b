"""The summaries in search results: up to date after every kind of change."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest
from builders import document, version
from conftest import exported, put, run
from flask import Flask

SEARCH = "/api/v1/widgets/search"
OLD = version("1.0.0", sdkVersion="^1.0.0", publishedAt="2024-01-01T00:00:00Z")
NEW = version("2.0.0", sdkVersion="^2.0.0", publishedAt="2025-01-01T00:00:00Z")
CATALOG = [
    document("acme/clock", OLD, NEW, displayName="Clock"),
    document("acme/alarm", NEW, OLD, displayName="Alarm", description="A clock"),
    document("acme/bell", displayName="Bell", description="No clock"),
    document("acme/hidden", OLD, NEW, listed=False),
]


EDITS = {
    "latest yanked": "UPDATE version SET yanked = 1 WHERE version = '2.0.0'",
    "all yanked": "UPDATE version SET yanked = 1",
    "latest deleted": "DELETE FROM version WHERE version = '2.0.0'",
    "deprecated": "UPDATE version SET deprecation_message = 'Old.'",
    "exchanged": "UPDATE widget SET listed = 1 - listed, icon = 'mdi:x', download_count = 7",
    "unlisted and listed": "UPDATE widget SET listed = 0; UPDATE widget SET listed = 1",
    "widget deleted": "DELETE FROM widget WHERE name = 'clock'",
}


def pages(app: Flask) -> list[bytes]:
    client = app.test_client()
    queries = ({}, {"q": "clock"}, {"compatSdk": "1.4.0"}, {"compatSdk": "2.0.0", "scope": "acme"})
    return [client.get(SEARCH, query_string=query).data for query in queries]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_search_shows_an_edit_with_another_program_after_the_next_change(
    app_with: Callable[..., Flask], edit: str
) -> None:
    app = app_with(*CATALOG)
    pages(app)
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.executescript(edit)
    put(app, document("lab/other"))
    documents = map(json.loads, exported(app).splitlines())
    assert pages(app) == pages(app_with(*documents))
    assert run(app, "check").exit_code == 0
