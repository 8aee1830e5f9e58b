"""The summaries in search results: up to date after every kind of change."""

import hashlib
import json
from collections.abc import Callable

import pytest
from builders import document, version
from conftest import hold, putting
from flask import Flask

from catalog.documents import check_document
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Statement
from catalog.store.read.export import catalog_lines
from catalog.store.write import writes

SEARCH = "/api/v1/widgets/search"
OLD = version("1.0.0", sdkVersion="^1.0.0", publishedAt="2024-01-01T00:00:00Z")
NEW = version("2.0.0", sdkVersion="^2.0.0", publishedAt="2025-01-01T00:00:00Z")
NEWEST = version("3.0.0", sdkVersion=">=1.4.0", publishedAt="2026-01-01T00:00:00Z")
CATALOG = [
    document("acme/clock", OLD, NEW, displayName="Clock"),
    document("acme/alarm", NEW, OLD, displayName="Alarm", description="A clock"),
    document("acme/bell", displayName="Bell", description="No clock"),
    document("acme/hidden", OLD, NEW, listed=False),
]


def put(*documents: dict[str, object]) -> list[Statement]:
    return putting(map(check_document, documents))


CHANGES: dict[str, list[Statement]] = {
    "newer version": put(document("acme/clock", NEWEST, displayName="Clock")),
    "newer version, yanked": put(document("acme/clock", {**NEWEST, "yanked": True})),
    "older version": put(document("acme/clock", {**NEWEST, "publishedAt": "2023-01-01T00:00:00Z"})),
    "version between": put(document("acme/clock", {**NEWEST, "publishedAt": "2024-06-01T00:00Z"})),
    "first version": put(document("acme/bell", OLD)),
    "latest version, other fields": put(document("acme/clock", {**NEW, "license": "MIT"})),
    "latest version, other range": put(document("acme/clock", {**NEW, "sdkVersion": "*"})),
    "latest version, older than before": put(
        document("acme/clock", {**NEW, "publishedAt": "2020-01-01T00:00:00Z"})
    ),
    "widget, other fields": put(document("acme/clock", displayName="Watch", icon="mdi:watch")),
    "widget, official": put(document("acme/clock", displayName="Clock", isOfficial=True)),
    "new widget": put(document("acme/new", OLD, NEWEST, NEW)),
    "new widget, unlisted": put(document("acme/new", OLD, listed=False)),
    "installed": writes.count_install("acme", "clock"),
    "count reset": put(document("acme/clock", displayName="Clock", downloadCount=0)),
    "pruned": writes.remove_all_but([check_document(document("acme/clock", OLD))]),
    **{
        name: [(sql, {})]
        for name, sql in {
            "latest yanked": "UPDATE version SET yanked = 1 WHERE version = '2.0.0'",
            "all yanked": "UPDATE version SET yanked = 1",
            "latest deleted": "DELETE FROM version WHERE version = '2.0.0'",
            "older deleted": "DELETE FROM version WHERE version = '1.0.0'",
            "all deleted": "DELETE FROM version",
            "deprecated": "UPDATE version SET deprecation_message = 'Old.'",
            "unlisted": "UPDATE widget SET listed = 0 WHERE name = 'clock'",
            "listed": "UPDATE widget SET listed = 1",
            "renamed": "UPDATE widget SET name = name || '-2'",
            "moved": "UPDATE widget SET scope = 'beta'",
            "version moved": "UPDATE version SET widget_id = 3 WHERE id IN (1, 2)",
            "widget deleted": "DELETE FROM widget WHERE name = 'clock'",
            "all widgets deleted": "DELETE FROM widget",
        }.items()
    },
}


def pages(app: Flask) -> list[bytes]:
    client = app.test_client()
    queries = ({}, {"q": "clock"}, {"compatSdk": "1.4.0"}, {"compatSdk": "2.0.0", "scope": "acme"})
    return [client.get(SEARCH, query_string=query).data for query in queries]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_search_after_a_change_is_that_of_the_exported_and_imported_catalog(
    app_with: Callable[..., Flask], change: list[Statement]
) -> None:
    app = app_with(*CATALOG)
    pages(app)
    database: Database = app.extensions["database"]
    database.write(change)
    with database.read() as connection:
        exported = [json.loads(line) for line in catalog_lines(connection)]
    assert pages(app) == pages(app_with(*exported))


def test_each_host_gets_its_own_bundle_url(app_with: Callable[..., Flask]) -> None:
    content = b"export default 1"
    held = {"sha256Hash": hashlib.sha256(content).hexdigest(), "bundleSize": len(content)}
    app = app_with(document("acme/clock", {**OLD, **held}))
    hold(app, content)
    urls = []
    for host in ("a.example", "b.example", "a.example"):
        response = app.test_client().get(SEARCH, headers={"Host": host}).get_json()
        urls.append(response["widgets"][0]["latestVersion"]["bundleUrl"])
    path = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
    assert urls == [f"http://{letter}.example{path}" for letter in "aba"]
