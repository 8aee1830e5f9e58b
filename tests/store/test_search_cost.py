"""CPU time of the most expensive searches, on the I/O thread and on a worker."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from builders import Json, document, version
from conftest import create_catalog
from flask import Flask

from app import create_app
from catalog.store.connection.sqlite import DeadlineExceeded
from catalog.store.connection.transaction import Transaction
from catalog.store.schema.derived import add_ranges

SEARCH = "/api/v1/widgets/search"
# The deadline of a request on the I/O thread.
DEADLINE = 0.025  # seconds
MAX_CPU = 0.5  # seconds

# Add copies of the one version, each with one of the ranges.
ADD_VERSIONS = """
INSERT INTO version
SELECT NULL, widget.id, '0.0.' || key, printf('%06d', key), bundle_url, bundle_size, sha256_hash,
    published_at, 0, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, 1, value, NULL, '[]', NULL, NULL
FROM version JOIN widget, json_each(:ranges) WHERE version.id = 1 AND key % :widgets = widget.id - 1
"""


def short_range(number: int) -> str:
    return f">={number // 300 + 2}.{number % 300}.0 <{number // 300 + 3}.0.0"


def long_range(number: int) -> str:
    """A range of about 240 characters."""
    alternatives = " || ".join(f"~{number % 97 + 2}.{minor}.{number}" for minor in range(30))
    return alternatives[:240].rpartition(" ||")[0]


# The number of widgets, of versions of each, and the range of each version. None admits SDK 1.x.
CATALOGS = {
    "100 widgets with 100 versions": (100, 100, short_range),
    "20 widgets with 50 versions of long ranges": (20, 50, long_range),
}


@pytest.fixture(scope="module", params=CATALOGS.values(), ids=[*CATALOGS])
def app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flask]:
    widgets, versions, range_ = request.param
    first = document("acme/w0", version("0.0.0-first", sdkVersion="^9.0.0"))
    documents = [first, *(document(f"acme/w{number}") for number in range(1, widgets))]
    ranges = [range_(number) for number in range(widgets * versions)]
    values = {"ranges": json.dumps(ranges), "widgets": widgets}

    def add_versions(transaction: Transaction) -> None:
        for statement in add_ranges(ranges):
            transaction.execute(*statement)
        transaction.execute(ADD_VERSIONS, values)

    path = create_catalog(tmp_path_factory.mktemp("cost") / "catalog.db", *documents)
    app = create_app({"DATABASE": path})
    app.extensions["database"].transact(add_versions)
    yield app
    app.extensions["database"].close()


def search(app: Flask, sdk: str, compatible: str) -> tuple[float, Json | None]:
    """Return the CPU time of a search, and the response unless the deadline has passed."""
    page = None
    before = time.thread_time()
    with suppress(DeadlineExceeded):
        query = {"scope": "acme", "limit": "100", "compatSdk": sdk, "compatible": compatible}
        page = app.test_client().get(SEARCH, query_string=query).get_json()
    return time.thread_time() - before, page


@pytest.mark.parametrize("sdk", ["1.0.0", "1.0.1-rc.1"])
@pytest.mark.parametrize("compatible", ["false", "true"])
def test_page_with_many_distinct_ranges_blocks_no_thread(
    app: Flask, sdk: str, compatible: str
) -> None:
    app.extensions["database"].deadline.set(DEADLINE)
    # The server would run it again on a worker thread if the deadline has passed.
    assert search(app, sdk, compatible)[0] < MAX_CPU
    with ThreadPoolExecutor(1) as worker:
        # Of another version, so that nothing is cached.
        cpu, page = worker.submit(search, app, sdk.replace("1.0", "1.1"), compatible).result()
    assert cpu < 1
    assert page is not None
    assert {widget["latestCompatibleVersion"] for widget in page["widgets"]} <= {None}
    assert bool(page["total"]) is (compatible == "false")
