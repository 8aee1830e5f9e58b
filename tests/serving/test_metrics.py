"""CATALOG_METRICS: what is counted, the labels, the second listener, and its failures."""

import json
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path

import pytest
from conftest import Limits, create_catalog, create_demo, run_here, run_on
from prometheus_client.parser import text_string_to_metric_families
from scrapes import MeasuredServer, documented, get, run_promtool

from app import create_app
from catalog.system.small_server import MAX_CONNECTIONS

WIDGET = "/api/v1/widgets/acme/clock"
WIDGET_ROUTE = "/api/v1/widgets/{scope}/{name}"
REQUESTS = "widget_catalog_http_requests_total"
DURATIONS = "widget_catalog_http_request_duration_seconds"
FAILURES = "widget_catalog_write_failures_total"
METHODS = {"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "other"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredServer]:
    """A service with metrics whose writes do not wait long for a lock."""
    folder = tmp_path_factory.mktemp("metrics")
    limits = Limits(folder)
    environment = {**limits.set_busy_timeout(20), "CATALOG_BACKUPS": str(folder)}
    with MeasuredServer(create_demo(folder / "catalog.db"), **environment) as server:
        server.request("GET", "/api/v1/widgets/search")
        server.request("POST", WIDGET)
        yield server


def test_the_page_lists_every_metric_with_its_type_and_labels(measured: MeasuredServer) -> None:
    _, text = get(measured.metrics_url)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    scraped = {}
    for family in text_string_to_metric_families(text):
        name = family.name if family.name in types else f"{family.name}_total"
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        scraped[name] = types[name], labels
    assert scraped == {name: (kind, set(labels)) for name, (kind, labels) in documented().items()}


def test_promtool_accepts_a_scrape(measured: MeasuredServer) -> None:
    run_promtool("check", "metrics", stdin=get(measured.metrics_url)[1])


def test_the_port_of_the_service_has_no_metrics(measured: MeasuredServer) -> None:
    response, body = measured.request("GET", "/metrics")
    assert response.status == 404
    assert b"widget_catalog_" not in body


def test_requests_and_durations_are_counted_by_route_and_method(measured: MeasuredServer) -> None:
    labels = {"route": WIDGET_ROUTE, "method": "HEAD"}
    names = {REQUESTS: {"status": "404"}, f"{DURATIONS}_count": {}}
    names[f"{DURATIONS}_bucket"] = {"le": "+Inf"}
    before = [measured.value(name, **labels, **more) for name, more in names.items()]
    measured.request("HEAD", "/api/v1/widgets/acme/none")
    after = [measured.value(name, **labels, **more) for name, more in names.items()]
    assert after == [count + 1 for count in before]
    assert 0 < measured.value(f"{DURATIONS}_sum", **labels) < 60


def test_only_acknowledged_installs_are_counted(measured: MeasuredServer) -> None:
    before = measured.value("widget_catalog_installs_total")
    measured.request("POST", WIDGET)
    measured.request("POST", f"{WIDGET}/2.2.0")
    measured.request("POST", f"{WIDGET}/9.9.9")
    measured.request("POST", "/api/v1/widgets/acme/none")
    assert measured.value("widget_catalog_installs_total") == before + 2


def test_the_cache_counts_what_it_renders_once_and_returns_again(measured: MeasuredServer) -> None:
    names = [f"widget_catalog_response_cache_{kind}_total" for kind in ("hits", "misses")]
    hits, misses = (measured.value(name) for name in names)
    for _ in range(3):
        measured.request("GET", "/api/v1/widgets/search?q=nothing+like+this")
    assert [measured.value(name) for name in names] == [hits + 2, misses + 1]
    assert measured.value("widget_catalog_response_cache_size_bytes") > 1000


HOSTILE = [
    b"GET /api/v1/widgets/%s/%s HTTP/1.1\r\nHost: a\r\n",
    b"GET /static/%s HTTP/1.1\r\nHost: %s.example.com\r\nUser-Agent: %s\r\n",
    b'PUT /"}%%0A%s HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %s\r\n',
    b"%s / HTTP/1.1\r\nHost: a\r\n",
    b"GET http://%s/api/v1/widgets/search?%s=%s HTTP/1.1\r\nHost: a\r\n",
    b"GET / %s\r\nHost: a\r\n",
]


def send_hostile(port: int, word: bytes) -> None:
    """Send requests that contain the word in every place, and read the responses."""
    for head in HOSTILE:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(head.replace(b"%s", word).replace(b"%%", b"%"))
            client.sendall(b"Connection: close\r\n\r\n")
            while client.recv(65536):
                pass


def test_no_text_of_a_client_becomes_a_label(measured: MeasuredServer) -> None:
    send_hostile(measured.port, b"FIRST")
    before = measured.scrape().keys()
    for number in range(3):
        send_hostile(measured.port, b"OTHER%d" % number)
    assert measured.scrape().keys() == before
    # The last of them is malformed.
    refused = {"route": "unmatched", "method": "other", "status": "400"}
    assert measured.value(REQUESTS, **refused) >= 4
    values = {(name, value) for _, labels in before for name, value in labels}
    assert not [value for _, value in values if "first" in value.lower()]
    assert {value for name, value in values if name == "method"} <= METHODS
    rules = {str(rule) for rule in create_app().url_map.iter_rules()}
    routes = {re.sub(r"<(\w+:)?(\w+)>", r"{\2}", rule) for rule in rules}
    assert {value for name, value in values if name == "route"} <= routes | {"unmatched"}


def test_the_service_goes_on_and_counts_lines_when_the_reader_of_its_log_has_ended(
    tmp_path: Path,
) -> None:
    server = MeasuredServer(create_demo(tmp_path / "catalog.db"), CATALOG_LOG_LEVEL="info")
    server.process.stdout.close()
    for _ in range(3):
        assert server.request("GET", "/api/version")[0].status == 200
    assert server.value("widget_catalog_log_lines_lost_total") >= 2
    server.process.terminate()
    assert server.process.wait(10) == 0
    with server.process.stderr as errors:
        assert errors.read() == ""


def test_connections_and_the_sizes_of_the_files_are_measured(measured: MeasuredServer) -> None:
    # Another test may have removed the WAL.
    measured.request("POST", WIDGET)
    wal = Path(f"{measured.database}-wal")
    sizes = {"database": measured.database.stat().st_size, "wal": wal.stat().st_size}
    for name, size in sizes.items():
        assert measured.value(f"widget_catalog_{name}_size_bytes") == size > 0
    with socket.create_connection(("127.0.0.1", measured.port), timeout=60) as client:
        client.sendall(b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.recv(65536)
        assert measured.value("widget_catalog_open_connections") >= 1


def test_the_size_of_the_catalog_follows_its_changes(measured: MeasuredServer) -> None:
    names = [f"widget_catalog_{name}" for name in ("revision", "widgets")]
    revision, widgets = (measured.value(name) for name in names)
    assert run_on(measured.database, "unlist", "acme/clock").exit_code == 0
    changed = [measured.value(name) for name in names]
    assert run_on(measured.database, "relist", "acme/clock").exit_code == 0
    assert changed[0] > revision
    assert changed[1] == widgets - 1


def test_a_write_that_finds_the_database_locked_is_counted(measured: MeasuredServer) -> None:
    before = measured.value(FAILURES, reason="locked")
    with closing(sqlite3.connect(measured.database)) as other:
        other.execute("BEGIN IMMEDIATE")
        response, _ = measured.request("POST", WIDGET)
    assert response.status == 503
    assert measured.value(FAILURES, reason="locked") == before + 1
    assert 0.02 < measured.value("widget_catalog_write_duration_seconds_sum") < 5


def test_a_stop_does_not_wait_for_a_scraper(tmp_path: Path) -> None:
    with (
        MeasuredServer(create_demo(tmp_path / "catalog.db")) as server,
        socket.create_connection(server.metrics_address()) as client,
    ):
        client.sendall(b"GET /metrics")
        # It delays nobody.
        assert server.request("GET", "/api/version")[0].status == 200
        assert server.value("widget_catalog_database_readable") == 1
        assert (server.stop(), server.errors) == (0, "")


def test_an_address_in_use_is_an_error(
    measured: MeasuredServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = measured.metrics_address()
    monkeypatch.setenv("CATALOG_METRICS", f"{host}:{port}")
    result = run_here(create_demo(tmp_path / "catalog.db"), "app.py")
    message = f"Cannot serve CATALOG_METRICS on {host}:{port}: Address already in use."
    assert (result.returncode, result.stdout, result.stderr) == (1, "", f"Error: {message}\n")


def test_the_time_of_the_newest_backup_of_each_kind_is_a_metric(tmp_path: Path) -> None:
    database, backups = create_demo(tmp_path / "catalog.db"), tmp_path / "backups"
    backups.mkdir()
    name = "widget_catalog_last_backup_timestamp_seconds"
    with MeasuredServer(database, CATALOG_BACKUPS=str(backups)) as server:
        assert server.value(name, kind="database") == 0
        assert server.scrape()[name, (("kind", "pack"),)] == 0
        for number, file in enumerate(
            (
                "catalog-20250101T030405Z.pack",
                "catalog-20250101T030405Z.db",
                "catalog-20250102T030405Z.db",
            )
        ):
            (backups / file).touch()
            os.utime(backups / file, (1000 + number, 1000 + number))
        (backups / "other.db").touch()
        # Made while the clock was wrong.
        future = backups / "catalog-21000101T030405Z.db"
        future.touch()
        os.utime(future, (4_102_455_845, 4_102_455_845))
        assert (server.value(name, kind="database"), server.value(name, kind="pack")) == (
            1002,
            1000,
        )


def test_no_pack_is_expected_of_a_catalog_without_stored_bundles(tmp_path: Path) -> None:
    database, backups = create_catalog(tmp_path / "catalog.db"), tmp_path / "backups"
    backups.mkdir()
    with MeasuredServer(database, CATALOG_BACKUPS=str(backups)) as server:
        name = "widget_catalog_last_backup_timestamp_seconds"
        assert [labels for key, labels in server.scrape() if key == name] == [
            (("kind", "database"),)
        ]


def test_the_free_space_of_the_database_and_of_the_backups_is_a_metric(tmp_path: Path) -> None:
    database, backups = create_catalog(tmp_path / "catalog.db"), tmp_path / "backups"
    with MeasuredServer(database, CATALOG_BACKUPS=str(backups)) as server:
        directories = {
            dict(labels)["directory"]
            for name, labels in server.scrape()
            if name == "widget_catalog_disk_free_bytes"
        }
        # The directory of the backups does not exist yet.
        assert directories == {"database"}
        backups.mkdir()
        size = os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
        for directory in ("database", "backups"):
            assert server.value("widget_catalog_disk_size_bytes", directory=directory) == size
            free = server.value("widget_catalog_disk_free_bytes", directory=directory)
            assert 0 < free <= size


def test_the_next_expiry_of_a_valid_token_is_a_metric(measured: MeasuredServer) -> None:
    name = "widget_catalog_next_token_expiry_timestamp_seconds"
    assert (name, ()) not in measured.scrape()
    database = measured.database
    # One that was created for at most 14 days is meant to expire soon.
    for token, expires in {"long": "90d", "short": "15d", "job": "14d", "none": "never"}.items():
        arguments = ["token", "create", token, "--expires", expires, "--scope", "acme"]
        assert run_on(database, *arguments).exit_code == 0
    listed = json.loads(run_on(database, "token", "list", "--json").stdout)
    ends = {each["token"]: each["expiresAt"] for each in listed}
    for token in ("short", "long"):
        end = datetime.fromisoformat(ends[token]).timestamp()
        assert measured.value(name) == pytest.approx(end, abs=0.001)
        assert run_on(database, "token", "revoke", token).exit_code == 0
    assert (name, ()) not in measured.scrape()


def test_few_silent_connections_stay_open_and_they_keep_nobody_from_a_scrape(
    tmp_path: Path, limits: Limits
) -> None:
    environment = limits.set("system.small_server", MAX_SECONDS=3600)
    with (
        MeasuredServer(create_demo(tmp_path / "catalog.db"), **environment) as server,
        ExitStack() as clients,
    ):
        connections = [
            clients.enter_context(socket.create_connection(server.metrics_address(), timeout=30))
            for _ in range(3 * MAX_CONNECTIONS)
        ]
        # Connections are accepted in order, so that all others were accepted before this one.
        assert "widget_catalog_build_info" in get(server.metrics_url)[1]
        for connection in connections[: 1 - MAX_CONNECTIONS]:
            assert connection.recv(100) == b""


def test_a_silent_connection_for_metrics_is_closed(tmp_path: Path, limits: Limits) -> None:
    environment = limits.set("system.small_server", MAX_SECONDS=0.1)
    with (
        MeasuredServer(create_demo(tmp_path / "catalog.db"), **environment) as server,
        socket.create_connection(server.metrics_address(), timeout=60) as connection,
    ):
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert connection.recv(100) == b""
