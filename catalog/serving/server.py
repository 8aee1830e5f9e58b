"""The server process: its settings, and how it starts and stops."""

import errno
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from click import ClickException
from flask import Flask

from ..domain.messages import plural
from ..store.connection.database import Database
from ..store.connection.sqlite import DatabaseError, DatabaseGoneError
from ..system.bound_sockets import bind, bind_path
from ..system.paths import error_reason
from ..system.process import allow_open_files, open_closed_outputs, release_large_blocks
from ..system.systemd import notify_ready, take_passed_sockets
from .access_log import AccessLog, logging_to_standard_streams
from .connection_limits import MAX_ACCEPTS, ConnectionLimits
from .context import Context
from .dispatch import Dispatcher
from .event_loop import EventLoop
from .listeners import Listener
from .uploads import Uploads

# Threads release the GIL often while they read the database. With Python's default of 5 ms to get
# the GIL back, a busy service would spend its time waiting.
SWITCH_INTERVAL = 0.0005  # seconds
# How long an idle connection stays open while the service stops: a request may be on its way.
STOP_IDLE_TIME = 0.3  # seconds

# How many files the process may open. The base number includes three files for the database
# connection of each of up to 20 threads. Each client needs a socket, and a file while it downloads
# a bundle.
BASE_FILES = 110
FILES_PER_CLIENT = 2

# Bodies that exceed the limit by up to this much reach the application, which rejects them.
BODY_TOLERANCE = 16 * 1024  # bytes
# A control request in testing mode may contain a bundle or a whole catalog.
TESTING_BODY = 64 * 1024 * 1024  # bytes

logger = logging.getLogger(__name__)


def serve(
    app: Flask,
    *,
    unix_path: Path | None = None,
    print_json: bool = False,
    testing: bool = False,
) -> None:
    """Serve until a signal stops the process; raise ClickException if the service cannot start.

    If the database file is removed or replaced, the process ends with an error and must be
    restarted: otherwise, it would keep writing to a file that other processes no longer use.

    Sockets passed by systemd take precedence over a Unix socket at a path, and a Unix socket takes
    precedence over CATALOG_HOST and CATALOG_PORT. With print_json, the first line of output is a
    JSON object. In testing mode, requests may be delayed and have large bodies, and are logged to
    standard error.
    """
    database = app.extensions["database"]
    open_closed_outputs()
    release_large_blocks()
    raise_file_limit(app.config["MAX_CONNECTIONS"])
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        passed = take_passed_sockets()
    except ValueError as error:
        raise ClickException(str(error)) from error
    unix_path = None if passed else unix_path
    bound = passed or bind_sockets(app, unix_path)
    try:
        # This call migrates a file that an earlier release wrote. It comes after bind(), so that a
        # second service on the same address fails before it migrates the first service's file.
        database.open_for_serving()
    except DatabaseError as error:
        if unix_path:
            unix_path.unlink(missing_ok=True)
        for each in bound:
            each.close()
        raise ClickException(str(error)) from error
    stream = sys.stderr if testing else sys.stdout
    log_options = app.config["LOG_LEVEL"], app.config["LOG_FORMAT"]
    with logging_to_standard_streams(*log_options, stream) as log:
        context = create_context(app, log, testing)
        handle_signals(context)
        for setting in ("CATALOG_HOST", "CATALOG_PORT"):
            if passed and setting in os.environ:
                logger.warning("%s is ignored: the systemd socket unit sets the address.", setting)
        name = app.config["HOST"]
        listeners = [Listener(each, name=name, is_passed=bool(passed)) for each in bound]
        limits = ConnectionLimits(
            app.config["MAX_CONNECTIONS"],
            app.config["MAX_CONNECTIONS_PER_CLIENT"],
            context.proxies,
        )
        loop = EventLoop(context, limits, listeners, lambda: stop_if_gone(context, database))
        metrics_url = None
        if app.config["METRICS"]:
            # This import is local so that a service without metrics starts faster.
            from . import metrics

            metrics_url = metrics.start(app, loop)
        print_start(database, listeners[0].url, metrics_url, print_json)
        notify_ready()
        loop.run()
        if unix_path:
            unix_path.unlink(missing_ok=True)
        drain(loop, app.config["STOP_TIMEOUT"])
        database.close()
    if context.has_failed:
        sys.exit(1)


def raise_file_limit(connections: int) -> None:
    """Raise the limit on open files to the number that this many connections may need."""
    # Allow for MAX_ACCEPTS connections that are accepted before old ones are closed.
    needed = connections * FILES_PER_CLIENT + MAX_ACCEPTS + BASE_FILES
    try:
        allow_open_files(needed)
    except ValueError as error:
        raise ClickException(
            f"CATALOG_MAX_CONNECTIONS {connections} needs {needed} open files: {error}."
        ) from error


def print_start(database: Database, url: str, metrics_url: str | None, as_json: bool) -> None:
    """Print the database path and the address of the service."""
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


def stop_if_gone(context: Context, database: Database) -> None:
    """Stop the service if the database file was removed or replaced."""
    try:
        database.check_in_place()
    except DatabaseGoneError as error:
        if not context.has_failed:
            logger.error("%s The service must be restarted.", error)
        context.has_failed = context.is_stopping = True


def bind_sockets(app: Flask, unix_path: Path | None) -> list[socket.socket]:
    """Return the sockets to listen on; raise ClickException if that fails.

    Without a path for a Unix socket, use CATALOG_HOST and CATALOG_PORT.
    """
    host, port = app.config["HOST"], app.config["PORT"]
    try:
        return [bind_path(unix_path)] if unix_path else bind(host, port)
    except (socket.gaierror, UnicodeError) as error:
        raise ClickException(f"Cannot listen on {host}: unknown host name or address.") from error
    except OSError as error:
        address = unix_path or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        other = "path" if unix_path else "port with --port or CATALOG_PORT"
        advice = f" Choose another {other}." if error.errno == errno.EADDRINUSE else ""
        raise ClickException(
            f"Cannot listen on {address}: {error_reason(error)}.{advice}"
        ) from error


def create_context(app: Flask, log: AccessLog, testing: bool) -> Context:
    """Return the context that all connections share, and start the threads."""
    config, database = app.config, app.extensions["database"]
    timeout, max_bundle = config["REQUEST_TIMEOUT"], config["MAX_BUNDLE_BYTES"]
    return Context(
        dispatcher=Dispatcher(app, database, testing=testing),
        uploads=Uploads(database, app.extensions["bundles"].directory, max_bundle, timeout),
        proxies=config["TRUSTED_PROXY"],
        access_log=log,
        request_timeout=timeout,
        idle_timeout=config["IDLE_TIMEOUT"],
        max_body=TESTING_BODY if testing else config["MAX_BODY_BYTES"] + BODY_TOLERANCE,
    )


def handle_signals(context: Context) -> None:
    """Stop gracefully on SIGTERM, SIGINT or SIGHUP; a second signal ends the process at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        context.is_stopping = True

    # A shell ignores SIGINT for background programs, and nohup ignores SIGHUP: leave ignored
    # signals ignored.
    signals = [
        each
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN
    ]
    for each in signals:
        signal.signal(each, stop)
    # The kernel may deliver a signal to any thread. The wake-up descriptor wakes the I/O thread,
    # which runs stop().
    signal.set_wakeup_fd(context.dispatcher.wake_descriptor, warn_on_full_buffer=False)


def drain(loop: EventLoop, timeout: int) -> None:
    """Stop accepting connections, respond to all requests, and close the connections.

    This includes requests that are still arriving. After the timeout, abort unfinished requests.
    """
    started = time.monotonic()
    # Connections that wait on a socket from systemd are left to the next process.
    loop.close_listeners(lambda listener: listener.is_passed)
    while True:
        loop.run_turn(0.05)
        loop.close_listeners(lambda listener: listener.is_empty)
        elapsed = time.monotonic() - started
        busy = sum(not each.is_idle for each in loop.limits.connections())
        if not busy and elapsed > STOP_IDLE_TIME:
            break
        if elapsed >= timeout:
            if busy:
                connections = plural(busy, "connection")
                seconds = plural(timeout, "second")
                logger.warning("Closing %s still busy after %s.", connections, seconds)
            break
    for pool in loop.context.dispatcher.pools.values():
        pool.clear()
    loop.close()
