"""Metrics of the service for Prometheus; docs/metrics.md lists them.

Requests update plain counters. The collector reads these, and everything else, when it is scraped.
No label contains text of a client: routes, methods, pools and reasons are fixed lists.
"""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar

from flask import Flask
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from catalog import __version__
from catalog.atomic_files import file_size
from catalog.serving.dispatch import PoolLoad
from catalog.serving.listeners import Listener
from catalog.serving.request_counts import BOUNDS, RequestCounts
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError, DeadlineExceeded
from catalog.store.connection.wal import wal_path

# How long the statements of one scrape may take.
SQL_DEADLINE = 2.0  # seconds
UNMATCHED = "unmatched"
INSTALL_ENDPOINT = "v1.install"
PREFIX = "widget_catalog"

REVISION = "SELECT content FROM revision"
CATALOG_SIZE = """
SELECT (SELECT count(*) FROM listing) AS widgets,
       (SELECT count(*) FROM version JOIN listing USING (widget_id)) AS versions
"""


class CacheCounts(Protocol):
    """What this module needs of the response cache."""

    hits: int
    misses: int

    def size(self) -> int:
        """Return the bytes in memory."""


def create_registry(app: Flask, listeners: list[Listener]) -> CollectorRegistry:
    """Return a registry of the metrics of this service, and of its process."""
    registry = CollectorRegistry()
    counts = RequestCounts()
    for listener in listeners:
        listener.request_counts = counts
    database: Database = app.extensions["database"]
    registry.register(BuildCollector())
    registry.register(RequestCollector(counts, route_names(app)))
    registry.register(ServerCollector(listeners[0], app.extensions["response_cache"]))
    registry.register(DatabaseCollector(database))
    registry.register(BackupCollector(app.config["BACKUPS"]))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def route_names(app: Flask) -> dict[str, str]:
    """Return the path of each endpoint, in the notation of the API's description."""
    return {
        rule.endpoint: re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for rule in app.url_map.iter_rules()
        # The catch-all routes have no methods.
        if rule.methods is not None
    }


class BuildCollector(Collector):
    """The version of the service."""

    def collect(self) -> Iterator[Metric]:
        version = {"version": __version__}
        yield InfoMetricFamily(f"{PREFIX}_build", "Version of the service.", version)


class RequestCollector(Collector):
    """Requests by route, method and status, their durations, and installs."""

    def __init__(self, counts: RequestCounts, routes: dict[str, str]) -> None:
        self._counts, self._routes = counts, routes

    def collect(self) -> Iterator[Metric]:
        requests: dict[tuple[str, ...], int] = defaultdict(int)
        buckets: dict[tuple[str, str], list[int]] = {}
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        installs = 0
        for (endpoint, method, status), numbers, duration in self._counts.items():
            route = self._routes.get(endpoint or "", UNMATCHED)
            requests[route, method, str(status)] += sum(numbers)
            others = buckets.get((route, method), [0] * len(numbers))
            buckets[route, method] = [sum(pair) for pair in zip(others, numbers, strict=True)]
            seconds[route, method] += duration
            if endpoint == INSTALL_ENDPOINT and status == 200:
                installs += sum(numbers)
        labels = ("route", "method", "status")
        family = CounterMetricFamily(f"{PREFIX}_http_requests", "Responses.", labels=labels)
        yield _fill(family, requests)
        yield _histogram(buckets, seconds)
        yield _counter("installs", "Acknowledged installs.", installs)


class ServerCollector(Collector):
    """Connections, threads, log and response cache."""

    def __init__(self, listener: Listener, cache: CacheCounts) -> None:
        self._listener, self._cache = listener, cache

    def collect(self) -> Iterator[Metric]:
        limits, cache = self._listener.limits, self._cache
        maximum = self._listener.adj.connection_limit
        yield _gauge("open_connections", "Open connections.", len(limits.all_connections.members))
        yield _gauge("max_connections", "CATALOG_MAX_CONNECTIONS.", maximum)
        yield _counter(
            "refused_connections",
            "Connections closed at once, as all others of the client were being processed.",
            limits.refused,
        )
        yield from self._pools()
        yield _counter("response_cache_hits", "Responses from the cache.", cache.hits)
        yield _counter("response_cache_misses", "Responses rendered.", cache.misses)
        yield _gauge("response_cache_size_bytes", "Memory of the cache.", cache.size())
        lost = self._listener.access_log.lost_lines()
        yield _counter("log_lines_lost", "Log lines that were not read in time.", lost)

    def _pools(self) -> Iterator[Metric]:
        loads: dict[str, PoolLoad] = self._listener.task_dispatcher.loads()
        queued = {(name,): load.queued for name, load in loads.items()}
        threads = {(name,): load.threads for name, load in loads.items()}
        busy = {(name,): load.busy for name, load in loads.items()}
        for name, text, values in (
            ("queued_requests", "Requests that wait for a thread.", queued),
            ("threads", "Threads.", threads),
            ("busy_threads", "Threads that handle a request.", busy),
        ):
            yield _fill(GaugeMetricFamily(f"{PREFIX}_pool_{name}", text, labels=("pool",)), values)


class DatabaseCollector(Collector):
    """The database file, its writes, and the size of the catalog."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Widgets and versions, and the revision they belong to.
        self._sizes = (0, 0)
        self._counted_at: int | None = None

    def collect(self) -> Iterator[Metric]:
        yield from self._writes()
        path = self._database.real_path
        yield _gauge("database_size_bytes", "Database file.", file_size(path))
        yield _gauge("wal_size_bytes", "WAL of the database.", file_size(wal_path(path)))
        counts = self._read()
        is_readable = counts is not None and not self._database.faults.is_damaged
        is_writable = is_readable and self._database.is_writable()
        yield _gauge("database_readable", "1 if it can be read.", is_readable)
        yield _gauge("database_writable", "0 if it made the last write fail.", is_writable)
        revision, widgets, versions = counts or (None, None, None)
        yield _gauge("revision", "Changes of the content.", revision)
        yield _gauge("widgets", "Listed widgets.", widgets)
        yield _gauge("versions", "Versions of listed widgets.", versions)

    def _writes(self) -> Iterator[Metric]:
        counts = self._database.write_counts
        yield SummaryMetricFamily(
            f"{PREFIX}_write_duration_seconds",
            "Writes of the service, with their waits for locks.",
            count_value=counts.writes,
            sum_value=counts.seconds,
        )
        name, text = f"{PREFIX}_write_failures", "Writes that failed."
        failures = {(reason,): number for reason, number in counts.failures.items()}
        yield _fill(CounterMetricFamily(name, text, labels=("reason",)), failures)

    def _read(self) -> tuple[int, int, int] | None:
        """Return revision, widgets and versions; None if the database cannot be read in time."""
        database = self._database
        database.set_deadline(SQL_DEADLINE)
        try:
            with database.read() as connection:
                (revision,) = connection.execute(REVISION).fetchone()
                if self._counted_at != revision:
                    widgets, versions = connection.execute(CATALOG_SIZE).fetchone()
                    self._sizes = widgets, versions
                    self._counted_at = revision
        except (DatabaseError, DeadlineExceeded, sqlite3.Error):
            return None
        return revision, *self._sizes


class BackupCollector(Collector):
    """The newest file in the directory of CATALOG_BACKUPS."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        text = "Time of the newest backup; 0 if there is none."
        newest = self._newest() if self._directory else None
        yield _gauge("last_backup_timestamp_seconds", text, newest)

    def _newest(self) -> float:
        times = [0.0]
        for path in Path(self._directory).glob("catalog-*T*Z.*"):
            # It may be removed just now.
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge without labels; without a value, it has no sample."""
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value)


Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def _fill(family: Family, values: Mapping[Any, float]) -> Family:
    """Add a sample for each tuple of label values."""
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _histogram(
    buckets: dict[tuple[str, str], list[int]], seconds: dict[tuple[str, str], float]
) -> Metric:
    name = f"{PREFIX}_http_request_duration_seconds"
    text = "From the end of the request head to the end of the response."
    family = HistogramMetricFamily(name, text, labels=("route", "method"))
    bounds = [*map(str, map(float, BOUNDS)), "+Inf"]
    for labels, numbers in buckets.items():
        pairs = list(zip(bounds, accumulate(numbers), strict=True))
        family.add_metric(labels, pairs, seconds[labels])
    return family
