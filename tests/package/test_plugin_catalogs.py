"""The catalogs of the pytest plugin: what a test can do with them and read from them."""

import hashlib
import http.client
import json
import os
import signal
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import ROOT, parent_of, wait_for_end
from flask import Flask

from catalog.store.connection.sqlite import WouldBlock
from catalog.testing.request_control import RequestControl
from pytest_widget_catalog.catalog import CatalogFactory, WidgetCatalog
from pytest_widget_catalog.process import WidgetCatalogError


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogFactory]:
    running = CatalogFactory(tmp_path_factory.mktemp("plugin"))
    yield running
    running.close()


@pytest.fixture
def catalog(factory: CatalogFactory) -> Iterator[WidgetCatalog]:
    """An empty catalog, as the fixture widget_catalog."""
    running = factory.serve("empty")
    yield running
    running.close()


def get(url: str, method: str = "GET", **headers: str) -> bytes:
    """Return the body of a response; headers are given with _ for -."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=fields)
    with urllib.request.urlopen(request, timeout=30) as response:
        body: bytes = response.read()
    return body


def detail(catalog: WidgetCatalog, widget: str = "acme/clock") -> Any:
    return json.loads(get(f"{catalog.url}/api/v1/widgets/{widget}"))


def test_an_empty_catalog_has_no_widget(catalog: WidgetCatalog) -> None:
    assert json.loads(get(f"{catalog.url}/api/v1/widgets/search"))["total"] == 0


def test_catalogs_of_one_session_are_separate(
    factory: CatalogFactory, catalog: WidgetCatalog
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    other = factory.serve("empty")
    try:
        assert other.database != catalog.database
        assert json.loads(get(f"{other.url}/api/v1/widgets/search"))["total"] == 0
    finally:
        other.close()


def test_the_demo_catalog_can_be_served(factory: CatalogFactory) -> None:
    demo = factory.serve("demo")
    try:
        assert detail(demo, "acme/weather")["latestVersion"] == "3.1.0"
    finally:
        demo.close()


def test_a_published_version_has_every_field(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", sdk="^1.2.0")
    response = detail(catalog)
    (entry,) = response["versions"]
    optional = {"yankedReason", "deprecationMessage"}
    assert {key for key, value in entry.items() if value is None} == optional
    assert None not in response["widget"].values()
    assert entry["sdkVersion"] == "^1.2.0"


def test_the_bundle_of_a_published_version_has_its_hash_and_size(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    (entry,) = detail(catalog)["versions"]
    assert entry["bundleUrl"].startswith(catalog.url)
    content = get(entry["bundleUrl"])
    assert hashlib.sha256(content).hexdigest() == entry["sha256Hash"]
    assert len(content) == entry["bundleSize"] > 0


def test_a_test_can_give_the_bundle(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", bundle="export default 1;\n")
    (entry,) = detail(catalog)["versions"]
    assert get(entry["bundleUrl"]) == b"export default 1;\n"


def test_a_version_with_a_bundle_url_is_not_stored(catalog: WidgetCatalog) -> None:
    url = "https://cdn.example.com/clock.js"
    catalog.publish("acme/clock", "1.0.0", bundleUrl=url, sha256Hash="0" * 64)
    (entry,) = detail(catalog)["versions"]
    assert (entry["bundleUrl"], entry["sha256Hash"]) == (url, "0" * 64)


def test_fields_of_the_widget_and_of_the_version_can_be_given(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", isOfficial=True, displayName="Time", license="ISC")
    response = detail(catalog)
    assert (response["widget"]["isOfficial"], response["widget"]["displayName"]) == (True, "Time")
    assert response["versions"][0]["license"] == "ISC"


def test_the_version_that_is_published_last_is_the_latest(catalog: WidgetCatalog) -> None:
    for number in ("1.0.0", "2.0.0", "1.0.1"):
        catalog.publish("acme/clock", number)
    response = detail(catalog)
    assert response["latestVersion"] == "1.0.1"
    assert [entry["publishedAt"] for entry in response["versions"]] == [
        "2025-01-01T00:00:02.000Z",
        "2025-01-01T00:00:01.000Z",
        "2025-01-01T00:00:00.000Z",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"licence": "MIT"}, "There is no field 'licence'; use bundleSize, "),
        ({"sha256Hash": "0" * 64}, "computed, unless bundleUrl is given"),
        ({"isOfficial": True}, "isOfficial: only with the first version of a widget"),
        ({"minSize": 3}, "minSize must be"),
        ({"version": "1.0.0"}, "acme/clock@1.0.0 exists already"),
    ],
)
def test_an_invalid_publication_is_refused(
    catalog: WidgetCatalog, fields: dict[str, Any], message: str
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    with pytest.raises(WidgetCatalogError, match=message):
        catalog.publish("acme/clock", **{"version": "2.0.0", **fields})
    assert detail(catalog)["latestVersion"] == "1.0.0"


def test_versions_are_yanked_unyanked_and_deprecated(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.publish("acme/clock", "2.0.0")
    catalog.yank("acme/clock@2.0.0", reason="--Broken.")
    catalog.yank("acme/clock@1.0.0")
    catalog.unyank("acme/clock@1.0.0")
    catalog.deprecate("acme/clock@1.0.0", "Old.")
    newest, oldest = detail(catalog)["versions"]
    assert (newest["yanked"], newest["yankedReason"]) == (True, "--Broken.")
    assert (oldest["yanked"], oldest["deprecationMessage"]) == (False, "Old.")


def test_widgets_are_unlisted_relisted_and_deleted(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.unlist("acme/clock")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        detail(catalog)
    catalog.relist("acme/clock")
    assert detail(catalog)["latestVersion"] == "1.0.0"
    catalog.delete("acme/clock")
    with pytest.raises(WidgetCatalogError, match=r"^There is no widget acme/clock\b"):
        catalog.installs("acme/clock")


def test_the_error_of_a_command_is_raised(catalog: WidgetCatalog) -> None:
    with pytest.raises(WidgetCatalogError, match=r"^There is no widget acme/clock\b"):
        catalog.yank("acme/clock@1.0.0")


def test_installs_are_counted(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    assert catalog.installs("acme/clock") == 0
    get(f"{catalog.url}/api/v1/widgets/acme/clock", "POST")
    assert catalog.installs("acme/clock") == 1


def test_requests_are_recorded_with_query_headers_and_status(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clöck", "1.0.0")
    get(f"{catalog.url}/api/v1/widgets/search?q=a+b&scope=&q=c", Accept="application/json")
    get(f"{catalog.url}/api/v1/widgets/acme/cl%C3%B6ck", "POST")
    with pytest.raises(urllib.error.HTTPError):
        get(f"{catalog.url}/nothing")
    search, install, failed = catalog.requests
    assert search.query == {"q": "a b", "scope": ""}
    assert search.headers["accept"] == "application/json"
    assert (install.method, install.path) == ("POST", "/api/v1/widgets/acme/clöck")
    assert [each.status for each in (search, install, failed)] == [200, 200, 404]


def test_requests_can_be_cleared(catalog: WidgetCatalog) -> None:
    get(f"{catalog.url}/api/health")
    catalog.clear_requests()
    assert catalog.requests == []


def test_requests_fail_as_often_as_requested(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.fail_next(2, status=503, retry_after=7)
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError) as failure:
            detail(catalog)
        assert (failure.value.code, failure.value.headers["Retry-After"]) == (503, "7")
        assert failure.value.headers["Access-Control-Allow-Origin"] == "*"
        assert json.load(failure.value) == {"error": "The test suite requested this failure."}
    detail(catalog)
    assert [each.status for each in catalog.requests] == [503, 503, 200]


def test_an_install_that_fails_is_not_counted(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.fail_next(status=500)
    with pytest.raises(urllib.error.HTTPError, match="500"):
        get(f"{catalog.url}/api/v1/widgets/acme/clock", "POST")
    assert catalog.installs("acme/clock") == 0


def test_a_failure_has_a_status_of_an_error(catalog: WidgetCatalog) -> None:
    with pytest.raises(ValueError, match="from 400 to 599, not 200"):
        catalog.fail_next(status=200)


def test_a_dropped_connection_has_no_response(catalog: WidgetCatalog) -> None:
    catalog.drop_connection()
    with pytest.raises(http.client.RemoteDisconnected):
        get(f"{catalog.url}/api/health")
    get(f"{catalog.url}/api/health")
    assert [each.status for each in catalog.requests] == [None, 200]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_responses_are_delayed_until_the_delay_is_ended(
    catalog: WidgetCatalog, method: str
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.delay(0.1)
    started = time.monotonic()
    get(f"{catalog.url}/api/v1/widgets/acme/clock", method)
    assert time.monotonic() - started >= 0.1
    catalog.delay(0)
    get(f"{catalog.url}/api/v1/widgets/acme/clock", method)
    assert [each.status for each in catalog.requests] == [200, 200]


def delayed_app(app: Flask, seconds: float) -> Flask:
    """Return the app with the middleware of the plugin, and with this delay."""
    directory = Path(app.config["DATABASE"]).parent
    control = RequestControl(app.wsgi_app, app.extensions["database"], directory)
    (directory / "delay").write_text(str(seconds))
    app.wsgi_app = control  # type: ignore[method-assign]
    return app


def test_a_delayed_request_does_not_wait_on_the_io_thread(app_with: Callable[..., Flask]) -> None:
    app = delayed_app(app_with(document()), 600)
    app.extensions["database"].mark_io_thread()
    with pytest.raises(WouldBlock):
        # This one does not read the database.
        app.test_client().get("/api/version")


def test_a_delay_does_not_count_against_the_deadline_of_the_request(
    app_with: Callable[..., Flask],
) -> None:
    app = delayed_app(app_with(document()), 0.001)
    app.extensions["database"].set_deadline(0)
    assert app.test_client().get("/api/v1/widgets/acme/clock").status_code == 200


def test_a_catalog_can_be_made_of_documents(factory: CatalogFactory) -> None:
    made = factory.serve_content([document("acme/clock", version("1.0.0")), document("acme/map")])
    try:
        assert detail(made)["latestVersion"] == "1.0.0"
        assert made.installs("acme/map") == 0
    finally:
        made.close()


def test_a_catalog_can_be_made_of_a_catalog_file(factory: CatalogFactory) -> None:
    made = factory.serve_content(ROOT / "seed" / "demo.jsonl")
    try:
        assert detail(made, "acme/weather")["latestVersion"] == "3.1.0"
    finally:
        made.close()


def test_a_catalog_can_be_made_of_a_copy_of_a_database_with_its_bundles(
    factory: CatalogFactory, catalog: WidgetCatalog
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    copy = factory.serve_content(catalog.database)
    try:
        (entry,) = detail(copy)["versions"]
        assert entry["bundleUrl"].startswith(copy.url)
        assert len(get(entry["bundleUrl"])) == entry["bundleSize"]
        copy.delete("acme/clock")
        assert catalog.installs("acme/clock") == 0
    finally:
        copy.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "line 1: is not a line of JSON"),
        (None, "No such file"),
        (b"SQLite format 3\0nonsense", "cannot be restored"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(
    factory: CatalogFactory, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "some-file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WidgetCatalogError, match=message):
        factory.serve_content(path)


def test_a_seeded_file_is_a_catalog(factory: CatalogFactory) -> None:
    path = factory.create_file("demo")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM widget").fetchone() == (34,)
    connection.close()


def test_a_closed_catalog_leaves_no_file_and_no_process(factory: CatalogFactory) -> None:
    closed = factory.serve("empty")
    closed.close()
    assert not closed.database.parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(closed.pid, 0)


def test_after_the_server_was_killed_the_next_use_says_so(
    tmp_path: Path,
) -> None:
    factory = CatalogFactory(tmp_path)
    first = factory.serve("empty")
    os.kill(parent_of(first.pid), signal.SIGKILL)
    wait_for_end(first.pid)
    with pytest.raises(WidgetCatalogError, match="server of widget-catalog was killed by signal 9"):
        first.installs("acme/clock")
    first.close()
    factory.close()
