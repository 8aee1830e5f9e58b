"""The server process: its settings, and how it starts and stops."""

import contextlib
import ctypes
import errno
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from click import ClickException
from flask import Flask

from ..settings import split_address
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, DatabaseGoneError
from ..text import error_reason, plural
from .access_log import AccessLog, logging_to_standard_streams
from .connection_limits import MAX_ACCEPTS, ConnectionLimits
from .context import Context
from .dispatch import Dispatcher
from .event_loop import EventLoop
from .listeners import Listener, bind, bind_path
from .proxies import Proxies
from .socket_activation import (
    notify_ready,
    take_passed_sockets,
    warn_of_ignored_settings,
)
from .uploads import Uploads

# Threads release the GIL often while they read the database. Python's default of 5 ms to get it
# back would leave a busy service waiting.
SWITCH_INTERVAL = 0.0005  # seconds
# While the service stops, an idle connection stays open for this long: its next request may be on
# the way.
STOP_IDLE_TIME = 0.3  # seconds

# Open files: of Python, waitress and the database; of each thread's database connection; and of
# each client, its connection and the bundle that it is being sent.
BASE_FILES = 50
FILES_PER_THREAD = 3
FILES_PER_CLIENT = 2
# Besides those of installs.
THREADS = 4

# The application refuses bodies that are only a little too large, with its own message.
BODY_TOLERANCE = 16 * 1024  # bytes
# A control request of a test may contain a bundle or a whole catalog. Delayed requests wait on the
# quick threads.
TESTING_BODY = 64 * 1024 * 1024  # bytes
TESTING_THREADS = 16
# From glibc's malloc.h.
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 1024 * 1024  # bytes

logger = logging.getLogger(__name__)


def serve(
    app: Flask,
    *,
    unix_path: Path | None = None,
    print_json: bool = False,
    testing: bool = False,
) -> None:
    """Serve until a signal stops the process; raise ClickException if it cannot start.

    If the database file is removed or replaced, the process ends with an error: it must be started
    again. No other process may find a file that this one still writes.

    Sockets passed by systemd take precedence over a Unix socket at a path, and that one over
    CATALOG_HOST and CATALOG_PORT. With print_json, the first line of output is a JSON object. With
    testing, requests may wait on purpose, have large bodies, and are logged to standard error.
    """
    database = app.extensions["database"]
    release_large_blocks()
    raise_file_limit(app.config["MAX_CONNECTIONS"], THREADS + database.writer_threads)
    sys.setswitchinterval(SWITCH_INTERVAL)
    passed = take_passed_sockets()
    unix_path = None if passed else unix_path
    bound = passed or ([bind_path(unix_path)] if unix_path else bind_address(app))
    try:
        # It migrates a file of an earlier release. A second service on the same address has failed
        # already, and does not do that to the file of the first.
        database.open_for_serving()
    except DatabaseError as error:
        if unix_path:
            unix_path.unlink(missing_ok=True)
        for each in bound:
            each.close()
        raise ClickException(str(error)) from error
    loop = EventLoop()
    log_options = app.config["LOG_LEVEL"], app.config["LOG_FORMAT"]
    stream = sys.stderr if testing else sys.stdout
    with logging_to_standard_streams(*log_options, stream) as log:
        loop.context = create_context(app, loop, log, testing)
        handle_signals(loop)
        warn_of_ignored_settings(passed)
        metrics_url = start_metrics(app, loop)
        name, is_passed = app.config["HOST"], bool(passed)
        loop.listeners = [
            Listener(loop.context, loop.limits, loop.sockets, each, name=name, is_passed=is_passed)
            for each in bound
        ]
        print_start(database, loop.listeners[0].url, metrics_url, print_json)
        loop.periodic.append(lambda: stop_if_gone(loop, database))
        notify_ready()
        loop.run()
        if unix_path:
            unix_path.unlink(missing_ok=True)
        drain(loop, app.config["STOP_TIMEOUT"])
        database.close()
    if loop.has_failed:
        sys.exit(1)


def print_start(database: Database, url: str, metrics_url: str | None, as_json: bool) -> None:
    """Print what is served, and where."""
    if as_json:
        path = os.fspath(database.path.absolute())
        start = {"url": url, "database": path, "pid": os.getpid()}
        print(json.dumps(start | ({"metrics": metrics_url} if metrics_url else {})), flush=True)
        return
    print(f"Serving {database.name} on {url}", flush=True)
    if metrics_url:
        print(f"Metrics on {metrics_url}", flush=True)
    if sys.stdout.isatty() and url.startswith("http"):
        print(f"Pages: {url}/\nAPI reference: {url}/docs", flush=True)


def stop_if_gone(loop: EventLoop, database: Database) -> None:
    """Stop the service if the database file is no longer the one that it opened."""
    try:
        database.check_in_place()
    except DatabaseGoneError as error:
        if not loop.has_failed:
            logger.error("%s The service must be started again.", error)
        loop.has_failed = loop.context.is_stopping = True


def bind_address(app: Flask) -> list[socket.socket]:
    """Return sockets for CATALOG_HOST and CATALOG_PORT; raise ClickException."""
    host, port = app.config["HOST"], app.config["PORT"]
    try:
        return bind(host, port)
    except (socket.gaierror, UnicodeError) as error:
        raise ClickException(f"CATALOG_HOST {host} is not an address to serve on.") from error
    except OSError as error:
        advice = "; set another port" if error.errno == errno.EADDRINUSE else ""
        raise ClickException(
            f"CATALOG_HOST {host} with CATALOG_PORT {port} cannot be served on: "
            f"{error.strerror}{advice}."
        ) from error


def create_context(app: Flask, loop: EventLoop, log: AccessLog, testing: bool) -> Context:
    """Return what all connections share, and start the threads."""
    config, database = app.config, app.extensions["database"]
    quick_threads = TESTING_THREADS if testing else 1
    dispatcher = Dispatcher(app, database, loop.wake, quick_threads)
    max_body = TESTING_BODY if testing else config["MAX_BODY_BYTES"] + BODY_TOLERANCE
    proxies = Proxies(config["TRUSTED_PROXY"])
    loop.limits = ConnectionLimits(
        loop.sockets, config["MAX_CONNECTIONS"], config["MAX_CONNECTIONS_PER_CLIENT"], proxies
    )
    return Context(
        dispatcher=dispatcher,
        uploads=Uploads(database, app.extensions["bundles"].directory, config["MAX_BUNDLE_BYTES"]),
        proxies=proxies,
        access_log=log,
        request_timeout=config["REQUEST_TIMEOUT"],
        idle_timeout=config["IDLE_TIMEOUT"],
        max_body=max_body,
    )


def start_metrics(app: Flask, loop: EventLoop) -> str | None:
    """Serve metrics if CATALOG_METRICS is set, and return where; raise ClickException."""
    address = app.config["METRICS"]
    if not address:
        return None
    # Most services do without, and start faster.
    from . import metrics

    try:
        return metrics.start(app, loop, *split_address(address))
    except (OSError, UnicodeError) as error:
        raise ClickException(
            f"CATALOG_METRICS {address} cannot be served on: {error_reason(error)}."
        ) from error


def raise_file_limit(connections: int, threads: int) -> None:
    """Let the process open as many files as its connections and threads can need."""
    needed = connections * FILES_PER_CLIENT + threads * FILES_PER_THREAD + BASE_FILES
    # Accepted before others are closed.
    needed += MAX_ACCEPTS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        except ValueError as error:
            raise ClickException(
                f"CATALOG_MAX_CONNECTIONS {connections} needs {needed} open files, and this system "
                f"allows {hard}."
            ) from error


def release_large_blocks() -> None:
    """Have malloc return large blocks to the system when they are freed.

    glibc would keep them for each thread: after 20 registries of 20 MB, 960 MB instead of 180.
    """
    # Other C libraries have no mallopt.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def handle_signals(loop: EventLoop) -> None:
    """Stop gracefully on SIGTERM, SIGINT or SIGHUP; the second of them ends the process at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        loop.context.is_stopping = True
        loop.wake()

    # A shell ignores SIGINT for what it starts in the background, and nohup ignores SIGHUP: leave
    # that as it is.
    signals = [
        each
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN
    ]
    for each in signals:
        signal.signal(each, stop)


def drain(loop: EventLoop, timeout: int) -> None:
    """Accept no more connections, respond to the requests of all others, and close them.

    A request that is still arriving is waited for too. What is not finished after the timeout is
    aborted.
    """
    started = time.monotonic()
    # What waits at a socket of systemd is left to the next process.
    loop.close_listeners(lambda listener: listener.is_passed)
    while True:
        loop.run_turn(0.05)
        loop.close_listeners(lambda listener: listener.is_empty)
        elapsed = time.monotonic() - started
        busy = sum(not channel.is_idle for channel in loop.limits.connections)
        if not busy and elapsed > STOP_IDLE_TIME:
            break
        if elapsed >= timeout:
            if busy:
                connections = f"{plural(busy, 'connection')} {'was' if busy == 1 else 'were'}"
                seconds = plural(timeout, "second")
                logger.warning("%s not finished %s after the stop.", connections, seconds)
            break
    for pool in loop.context.dispatcher.pools.values():
        pool.clear()
    loop.close()
