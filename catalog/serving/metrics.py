"""The service's Prometheus metrics; docs/operate/metrics.md lists them.

Requests are counted as responses are sent; the collectors read everything else during a scrape. No
label contains text from a client: routes, methods, pools and reasons are fixed lists.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from click import ClickException
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
    make_wsgi_app,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from .. import __version__
from ..settings import split_address
from ..store.connection.database import Database
from ..store.connection.file_paths import wal_path
from ..store.connection.revision import read_revision
from ..store.connection.sqlite import DatabaseError, DeadlineExceeded
from ..store.read.statistics import read_statistics
from ..store.read.tokens import next_expiry
from ..system.atomic_files import file_size
from ..system.dated_files import find_newest
from ..system.paths import error_reason
from ..system.small_server import serve_in_thread
from .event_loop import EventLoop

# The maximum duration of the statements in one scrape.
SQL_DEADLINE = 2.0  # seconds
INSTALL_ENDPOINTS = ("v1.install", "v1.install_version")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"})
PREFIX = "widget_catalog"
# Upper bounds of the histogram's buckets.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # seconds


def start(app: Flask, loop: EventLoop) -> str:
    """Serve metrics on CATALOG_METRICS and return their URL; raise ClickException if that fails."""
    address, registry = app.config["METRICS"], CollectorRegistry()
    try:
        name, port = serve_in_thread(make_wsgi_app(registry), *split_address(address))
    except (OSError, UnicodeError) as error:
        raise ClickException(
            f"Cannot serve CATALOG_METRICS on {address}: {error_reason(error)}."
        ) from error
    # Without this call, each counter and histogram would get a second series, _created.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    Info(f"{PREFIX}_build", "Version of the service.", registry=registry).info(
        {"version": __version__}
    )
    registry.register(ServerCollector(app, loop))
    registry.register(DatabaseCollector(app))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    loop.context.count_request = RequestCounts(registry, route_names(app)).add
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
    """Counts installs, and requests by route, method and status; measures request durations."""

    def __init__(self, registry: CollectorRegistry, routes: dict[str, str]) -> None:
        self._routes = routes
        labels = ("route", "method")
        requests = Counter(
            f"{PREFIX}_http_requests", "Responses.", (*labels, "status"), registry=registry
        )
        durations = Histogram(
            f"{PREFIX}_http_request_duration_seconds",
            "Time from the end of the request head to the end of the response.",
            labels,
            registry=registry,
            buckets=BOUNDS,
        )
        self._installs = Counter(f"{PREFIX}_installs", "Acknowledged installs.", registry=registry)
        # Series are cached: looking one up by its labels takes a lock and builds a tuple.
        self._request = lru_cache(1000)(requests.labels)
        self._duration = lru_cache(1000)(durations.labels)

    def add(self, endpoint: str | None, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        route = self._routes.get(endpoint or "", "unmatched")
        method = method if method in METHODS else "other"
        self._request(route, method, str(status)).inc()
        self._duration(route, method).observe(seconds)
        if endpoint in INSTALL_ENDPOINTS and status == 200:
            self._installs.inc()


class ServerCollector(Collector):
    """Collects metrics about connections, threads, the log and the response cache."""

    def __init__(self, app: Flask, loop: EventLoop) -> None:
        self._loop, self._cache = loop, app.extensions["response_cache"]

    def collect(self) -> Iterator[Metric]:
        limits, cache = self._loop.limits, self._cache
        yield _gauge("open_connections", "Open connections.", limits.all.size)
        yield _gauge("max_connections", "CATALOG_MAX_CONNECTIONS.", limits.all.maximum)
        yield _counter(
            "refused_connections",
            "Connections closed at once: the client's other connections were all in use.",
            limits.refused,
        )
        pools = self._loop.context.dispatcher.pools.items()
        for name, text, attribute in (
            ("queued_requests", "Waiting requests.", "queue.length"),
            ("threads", "Threads.", "threads"),
            ("busy_threads", "Busy threads.", "busy"),
        ):
            family = GaugeMetricFamily(f"{PREFIX}_pool_{name}", text, labels=("pool",))
            for key, pool in pools:
                family.add_metric((key,), attrgetter(attribute)(pool))
            yield family
        yield _counter("response_cache_hits", "Responses from the cache.", cache.hits)
        yield _counter("response_cache_misses", "Responses rendered.", cache.misses)
        yield _gauge("response_cache_size_bytes", "Memory used by the cache.", cache.size())
        lost = sum(writer.lost_lines for writer in self._loop.context.access_log.writers)
        yield _counter("log_lines_lost", "Log lines lost because they were not read in time.", lost)


class DatabaseCollector(Collector):
    """Collects metrics about the database file, its writes and backups, and the catalog's size."""

    def __init__(self, app: Flask) -> None:
        self._database: Database = app.extensions["database"]
        self._bundles: Path = app.extensions["bundles"].directory
        self._backups: str = app.config["BACKUPS"]
        # How many widgets and versions are listed, and the revision at which they were counted.
        self._sizes = (0, 0)
        self._counted_at: int | None = None

    def collect(self) -> Iterator[Metric]:
        counts = self._database.write_counts
        yield SummaryMetricFamily(
            f"{PREFIX}_write_duration_seconds",
            "Duration of writes, including waits for locks.",
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
        yield _gauge("database_size_bytes", "Size of the database file.", file_size(path))
        yield _gauge("wal_size_bytes", "Size of the WAL.", file_size(wal_path(path)))
        read = self._read()
        is_readable = read is not None and not self._database.is_damaged
        is_writable = is_readable and self._database.is_writable
        yield _gauge("database_readable", "1 if the database can be read.", is_readable)
        yield _gauge(
            "database_writable", "0 if the last write failed because of the database.", is_writable
        )
        revision, widgets, versions, expiry = read or (None, None, None, None)
        text = "When the next valid token expires."
        yield _gauge("next_token_expiry_timestamp_seconds", text, expiry)
        yield _gauge("revision", "Number of content changes.", revision)
        yield _gauge("widgets", "Listed widgets.", widgets)
        yield _gauge("versions", "Versions of listed widgets.", versions)
        yield from self._backup_times()
        yield from self._disks()

    def _backup_times(self) -> Iterator[Metric]:
        """Yield the time of the newest backup of each kind, if CATALOG_BACKUPS is set."""
        text = "Time of the newest backup; 0 if there is none."
        family = GaugeMetricFamily(f"{PREFIX}_last_backup_timestamp_seconds", text, labels=["kind"])
        if self._backups:
            family.add_metric(["database"], newest_backup(self._backups, ".db"))
            pack = newest_backup(self._backups, ".pack")
            # The nightly backup writes packs only if the catalog stores bundles.
            if pack or any(self._bundles.glob("*")):
                family.add_metric(["pack"], pack)
        yield family

    def _disks(self) -> Iterator[Metric]:
        """Yield the free space and the size of the disks with the database and the backups."""
        labels = ["directory"]
        free = GaugeMetricFamily(f"{PREFIX}_disk_free_bytes", "Free space.", labels=labels)
        size = GaugeMetricFamily(f"{PREFIX}_disk_size_bytes", "Size of the disk.", labels=labels)
        directories = {"database": str(self._database.real_path.parent), "backups": self._backups}
        for name, directory in directories.items():
            # The directory may be missing, and the path may be empty.
            with suppress(OSError):
                disk = os.statvfs(directory)
                free.add_metric([name], disk.f_bavail * disk.f_frsize)
                size.add_metric([name], disk.f_blocks * disk.f_frsize)
        yield free
        yield size

    def _read(self) -> tuple[int, int, int, float | None] | None:
        """Return the revision, widget count, version count and next expiry; None if unreadable."""
        self._database.deadline.set(SQL_DEADLINE)
        try:
            with self._database.read() as connection:
                revision = read_revision(connection).content
                if self._counted_at != revision:
                    statistics = read_statistics(connection)
                    self._sizes = statistics["widgets"], statistics["versions"]
                    self._counted_at = revision
                return revision, *self._sizes, next_expiry(connection)
        except (DatabaseError, DeadlineExceeded, sqlite3.Error):
            return None


def newest_backup(directory: str, suffix: str) -> float:
    """Return the time of the newest dated file with this suffix; 0 if there is none."""
    # The directory may be unreadable, or the file may just have been removed.
    with suppress(OSError):
        newest = find_newest(Path(directory), suffix)
        return newest.stat().st_mtime if newest else 0
    return 0


def _gauge(name: str, text: str, value: Any) -> Metric:
    """Return a gauge without labels; if the value is None, the gauge has no sample."""
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value)
