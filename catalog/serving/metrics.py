"""Metrics of the service for Prometheus; docs/metrics.md lists them.

Requests are counted as they are answered; the collectors read everything else when it is scraped.
No label contains text of a client: routes, methods, pools and reasons are fixed lists.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from flask import Flask
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from .. import __version__
from ..atomic_files import file_size
from ..store.connection.database import Database
from ..store.connection.database_file import wal_path
from ..store.connection.sqlite import DatabaseError, DeadlineExceeded
from ..store.write.tokens import next_expiry
from .event_loop import EventLoop

# How long the statements of one scrape may take.
SQL_DEADLINE = 2.0  # seconds
UNMATCHED = "unmatched"
INSTALL_ENDPOINTS = ("v1.install", "v1.install_version")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"})
OTHER_METHOD = "other"
PREFIX = "widget_catalog"
# Upper bounds of the histogram.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds

REVISION = "SELECT content FROM revision"
CATALOG_SIZE = """
SELECT (SELECT count(*) FROM listing) AS widgets,
       (SELECT count(*) FROM version JOIN listing USING (widget_id)) AS versions
"""


def start(app: Flask, loop: EventLoop, host: str, port: int) -> str:
    """Serve metrics on an address, and return their URL; raise OSError or UnicodeError."""
    # They would double the number of series.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    server, _ = start_http_server(port, host, registry)
    Info(f"{PREFIX}_build", "Version of the service.", registry=registry).info(
        {"version": __version__}
    )
    registry.register(ServerCollector(app, loop))
    registry.register(DatabaseCollector(app))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    loop.context.count_request = RequestCounts(registry, route_names(app)).add
    name, port = server.socket.getsockname()[:2]
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"


def route_names(app: Flask) -> dict[str, str]:
    """Return the path of each endpoint, in the notation of the API's description."""
    return {
        rule.endpoint: re.sub(r"<(?:[^:<>]+:)?(\w+)>", r"{\1}", rule.rule)
        for rule in app.url_map.iter_rules()
        # The catch-all routes have no methods.
        if rule.methods is not None
    }


class RequestCounts:
    """Requests by route, method and status, their durations, and installs."""

    def __init__(self, registry: CollectorRegistry, routes: dict[str, str]) -> None:
        self._routes = routes
        labels = ("route", "method")
        requests = Counter(
            f"{PREFIX}_http_requests", "Responses.", (*labels, "status"), registry=registry
        )
        durations = Histogram(
            f"{PREFIX}_http_request_duration_seconds",
            "From the end of the request head to the end of the response.",
            labels,
            registry=registry,
            buckets=BOUNDS,
        )
        self._installs = Counter(f"{PREFIX}_installs", "Acknowledged installs.", registry=registry)
        # The lookup of a series by its labels takes a lock and builds a tuple.
        self._request = lru_cache(1000)(requests.labels)
        self._duration = lru_cache(1000)(durations.labels)

    def add(self, endpoint: str | None, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        route = self._routes.get(endpoint or "", UNMATCHED)
        method = method if method in METHODS else OTHER_METHOD
        self._request(route, method, str(status)).inc()
        self._duration(route, method).observe(seconds)
        if endpoint in INSTALL_ENDPOINTS and status == 200:
            self._installs.inc()


class ServerCollector(Collector):
    """Connections, threads, log and response cache."""

    def __init__(self, app: Flask, loop: EventLoop) -> None:
        self._loop, self._cache = loop, app.extensions["response_cache"]

    def collect(self) -> Iterator[Metric]:
        limits, cache = self._loop.limits, self._cache
        yield _gauge("open_connections", "Open connections.", len(limits.connections))
        yield _gauge("max_connections", "CATALOG_MAX_CONNECTIONS.", limits.maximum)
        yield _counter(
            "refused_connections",
            "Connections closed at once, as all others of the client were being processed.",
            limits.refused,
        )
        pools = self._loop.context.dispatcher.pools.items()
        for name, text, values in (
            ("queued_requests", "Requests that wait.", {key: len(pool) for key, pool in pools}),
            ("threads", "Threads.", {key: pool.threads for key, pool in pools}),
            ("busy_threads", "Threads at work.", {key: pool.busy for key, pool in pools}),
        ):
            family = GaugeMetricFamily(f"{PREFIX}_pool_{name}", text, labels=("pool",))
            for key, value in values.items():
                family.add_metric((key,), value)
            yield family
        yield _counter("response_cache_hits", "Responses from the cache.", cache.hits)
        yield _counter("response_cache_misses", "Responses rendered.", cache.misses)
        yield _gauge("response_cache_size_bytes", "Memory of the cache.", cache.size())
        lost = self._loop.context.access_log.lost_lines()
        yield _counter("log_lines_lost", "Log lines that were not read in time.", lost)


class DatabaseCollector(Collector):
    """The database file, its writes, its backups, and the size of the catalog."""

    def __init__(self, app: Flask) -> None:
        self._database: Database = app.extensions["database"]
        self._backups: str = app.config["BACKUPS"]
        # Widgets and versions, and the revision they belong to.
        self._sizes = (0, 0)
        self._counted_at: int | None = None

    def collect(self) -> Iterator[Metric]:
        counts = self._database.write_counts
        yield SummaryMetricFamily(
            f"{PREFIX}_write_duration_seconds",
            "Writes of the service, with their waits for locks.",
            count_value=counts.writes,
            sum_value=counts.seconds,
        )
        failures = CounterMetricFamily(
            f"{PREFIX}_write_failures", "Writes that failed.", labels=("reason",)
        )
        for reason, number in counts.failures.items():
            failures.add_metric((reason,), number)
        yield failures
        path = self._database.real_path
        yield _gauge("database_size_bytes", "Database file.", file_size(path))
        yield _gauge("wal_size_bytes", "WAL of the database.", file_size(wal_path(path)))
        sizes = self._read()
        is_readable = sizes is not None and not self._database.is_damaged
        is_writable = is_readable and self._database.is_writable()
        yield _gauge("database_readable", "1 if it can be read.", is_readable)
        yield _gauge("database_writable", "0 if it made the last write fail.", is_writable)
        revision, expiry, widgets, versions = sizes or (None, None, None, None)
        text = "When the first of the valid tokens expires."
        yield _gauge("next_token_expiry_timestamp_seconds", text, expiry)
        yield _gauge("revision", "Changes of the content.", revision)
        yield _gauge("widgets", "Listed widgets.", widgets)
        yield _gauge("versions", "Versions of listed widgets.", versions)
        newest = newest_backup(self._backups) if self._backups else None
        text = "Time of the newest backup; 0 if there is none."
        yield _gauge("last_backup_timestamp_seconds", text, newest)

    def _read(self) -> tuple[int, float | None, int, int] | None:
        """Return revision, next expiry, widgets and versions; None if not readable in time."""
        database = self._database
        database.deadline.set(SQL_DEADLINE)
        try:
            with database.read() as connection:
                (revision,) = connection.execute(REVISION).fetchone()
                expiry = next_expiry(connection)
                if self._counted_at != revision:
                    widgets, versions = connection.execute(CATALOG_SIZE).fetchone()
                    self._sizes = widgets, versions
                    self._counted_at = revision
        except (DatabaseError, DeadlineExceeded, sqlite3.Error):
            return None
        return revision, expiry, *self._sizes


def newest_backup(directory: str) -> float:
    """Return the time of the newest file in the directory of CATALOG_BACKUPS, 0 if it has none."""
    times = [0.0]
    for path in Path(directory).glob("catalog-*T*Z.*"):
        # It may be removed just now.
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    # With a time of the future, as a wrong clock gives it, nobody would learn that backups fail.
    return max(each for each in times if each <= time.time())


def _gauge(name: str, text: str, value: Any) -> Metric:
    """Return a gauge without labels; without a value, it has no sample."""
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value)
