"""The server process: its sockets, its event loop, and how it starts and stops."""

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
from functools import partial
from pathlib import Path
from types import FrameType

from click import ClickException
from flask import Flask
from waitress import wasyncore
from waitress.adjustments import Adjustments

from catalog.serving.access_log import logging_to_standard_streams
from catalog.serving.connection_limits import UNSENT_STEP, ConnectionLimits
from catalog.serving.connections import Channel
from catalog.serving.dispatch import Dispatcher
from catalog.serving.listeners import Listener
from catalog.serving.metrics_server import start_metrics
from catalog.serving.socket_activation import (
    notify_ready,
    take_passed_sockets,
    warn_of_ignored_settings,
)
from catalog.serving.socket_files import SocketFile
from catalog.serving.uploads import Uploads
from catalog.settings import trusted_networks
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import DatabaseError, DatabaseGoneError
from catalog.text import plural

# Threads release the GIL often while they read the database. Python's default of 5 ms to get it
# back would leave a busy service waiting.
SWITCH_INTERVAL = 0.0005  # seconds
# Between two checks of the deadlines.
CHECK_INTERVAL = 1  # seconds
# While the service stops, an idle connection stays open for this long: its next request may be on
# the way.
STOP_IDLE_TIME = 0.3  # seconds

# Open files: of Python, waitress and the database; of each thread's database connection; and of
# each client, its connection and the bundle that it is being sent.
BASE_FILES = 50
FILES_PER_THREAD = 3
FILES_PER_CLIENT = 2

# The framing of a chunked body may take this much beside the body itself. The application refuses
# bodies that are only a little too large.
CHUNK_OVERHEAD = 16 * 1024  # bytes
# Unsent bytes of a response that the kernel buffers. A slow client takes no more of the kernel's
# memory. A fast one is not slowed down, since bytes in transit do not count.
KERNEL_BUFFER = 128 * 1024  # bytes
# From glibc's malloc.h.
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 1024 * 1024  # bytes

# Waitress's map of all sockets, by file descriptor.
SocketMap = dict[int, object]

logger = logging.getLogger(__name__)


def serve(app: Flask, *, unix_path: Path | None = None, print_json: bool = False) -> None:
    """Serve until a signal stops the process; raise ClickException if it cannot start.

    If the database file is removed or replaced, the process ends with an error: it must be started
    again. No other process may find a file that this one still writes.

    Sockets passed by systemd take precedence over a Unix socket at a path, and that one over
    CATALOG_HOST and CATALOG_PORT. With print_json, the first line of output is a JSON object.
    """
    database: Database = app.extensions["database"]
    try:
        database.check_start()
    except DatabaseError as error:
        raise ClickException(str(error)) from error
    release_large_blocks()
    threads = app.config["THREADS"] + database.writer_threads - 1
    raise_file_limit(app.config["MAX_CONNECTIONS"], threads)
    # Waitress warns whenever a request waits for a thread, which is normal in a burst.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_INTERVAL)
    sockets: SocketMap = {}
    passed = take_passed_sockets()
    socket_file = SocketFile(unix_path) if unix_path and not passed else None
    listeners = create_listeners(app, sockets, passed, socket_file)
    handle_signals(listeners)
    with logging_to_standard_streams(app.config["LOG_LEVEL"], app.config["LOG_FORMAT"]) as log:
        for listener in listeners:
            listener.access_log = log
        warn_of_ignored_settings(passed)
        metrics = start_metrics(app, listeners)
        url = listeners[0].url
        path = os.fspath(database.path.absolute())
        start = {"url": url, "database": path, "pid": os.getpid()}
        if metrics:
            start["metrics"] = metrics.url
        print(json.dumps(start) if print_json else f"Serving {database.name} on {url}", flush=True)
        if metrics and not print_json:
            print(f"Metrics on {metrics.url}", flush=True)
        notify_ready()
        is_in_place = run(sockets, listeners, database)
        if socket_file:
            socket_file.remove()
        drain(sockets, listeners, app.config["STOP_TIMEOUT"])
        if metrics:
            metrics.stop()
        database.close()
    if not is_in_place:
        sys.exit(1)


def create_listeners(
    app: Flask,
    sockets: SocketMap,
    passed: list[socket.socket],
    socket_file: SocketFile | None,
) -> list[Listener]:
    """Listen on the sockets passed by systemd, on the Unix socket, or on host and port.

    A name such as localhost can stand for several addresses.
    """
    config = app.config
    host, port = config["HOST"], config["PORT"]
    uses_host = not passed and not socket_file
    try:
        adjustments = Adjustments(
            **({"host": host, "port": port} if uses_host else {}),
            backlog=config["BACKLOG"],
            connection_limit=config["MAX_CONNECTIONS"],
            max_request_header_size=config["MAX_HEAD_BYTES"],
            max_request_body_size=config["MAX_BODY_BYTES"] + CHUNK_OVERHEAD,
            # No thread waits until a client has read; see connections.py.
            outbuf_high_watermark=sys.maxsize,
            # The application decides which of them it reads; see proxies.py.
            clear_untrusted_proxy_headers=False,
            ident=None,
            server_name=host,
        )
        dispatcher = Dispatcher(app.extensions["database"], config["THREADS"])
        app.extensions["response_cache"].run_in_worker = dispatcher.run_in_worker
        create = partial(Listener, app, sockets, dispatcher=dispatcher, adj=adjustments)
        if passed:
            listeners = [create(bound=each, is_passed=True) for each in passed]
        elif socket_file:
            listeners = [create(bound=socket_file.socket)]
        else:
            listeners = [create(sockinfo=info) for info in adjustments.listen]
    except ValueError as error:
        raise ClickException(f"CATALOG_HOST {host} is not an address to serve on.") from error
    except OSError as error:
        advice = "; set another port" if error.errno == errno.EADDRINUSE else ""
        raise ClickException(
            f"CATALOG_HOST {host} with CATALOG_PORT {port} cannot be served on: "
            f"{error.strerror}{advice}."
        ) from error
    limits = ConnectionLimits(
        config["MAX_CONNECTIONS_PER_CLIENT"], trusted_networks(config["TRUSTED_PROXY"])
    )
    uploads = Uploads(
        app.extensions["database"],
        app.extensions["bundles"].directory,
        config["MAX_BUNDLE_BYTES"],
        config["REQUEST_TIMEOUT"],
        dispatcher.run_in_publisher,
    )
    for listener in listeners:
        listener.uploads = uploads
        listener.request_timeout = config["REQUEST_TIMEOUT"]
        listener.idle_timeout = config["IDLE_TIMEOUT"]
        listener.limits = limits
        if listener.family != socket.AF_UNIX:
            # Accepted connections inherit it.
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BUFFER)
    return listeners


def raise_file_limit(connections: int, threads: int) -> None:
    """Let the process open as many files as its connections and threads can need."""
    needed = connections * FILES_PER_CLIENT + threads * FILES_PER_THREAD + BASE_FILES
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


def handle_signals(listeners: list[Listener]) -> None:
    """Stop gracefully on SIGTERM, SIGINT or SIGHUP; the second of them ends the process at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        for listener in listeners:
            listener.stopping = True
        listeners[0].trigger.pull_trigger()

    # A shell ignores SIGINT for what it starts in the background, and nohup ignores SIGHUP: leave
    # that as it is.
    signals = [
        each
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN
    ]
    for each in signals:
        signal.signal(each, stop)


def run(sockets: SocketMap, listeners: list[Listener], database: Database) -> bool:
    """Run the event loop until a signal stops it; return False if the database file is gone."""
    next_check = 0.0
    while not listeners[0].stopping:
        run_turn(CHECK_INTERVAL, sockets, listeners)
        if time.monotonic() >= next_check:
            next_check = time.monotonic() + CHECK_INTERVAL
            close_overdue(sockets)
            try:
                database.check_in_place()
            except DatabaseGoneError as error:
                database.faults.log("The service stops", error)
                for listener in listeners:
                    listener.stopping = True
                return False
    return True


def run_turn(timeout: float, sockets: SocketMap, listeners: list[Listener]) -> None:
    """Run one turn of the event loop: read and write all sockets, then accept connections."""
    listeners[0].task_dispatcher.begin_turn()
    wasyncore.poll2(timeout, sockets)
    limits = listeners[0].limits
    limits.begin_turn()
    for listener in listeners:
        listener.accept_queued()
    if limits.unsent_since_check >= UNSENT_STEP:
        limits.bound_unsent(time.monotonic())


def channels(sockets: SocketMap) -> list[Channel]:
    """Return the open connections."""
    return [channel for channel in list(sockets.values()) if isinstance(channel, Channel)]


def close_overdue(sockets: SocketMap) -> None:
    """Close the connections whose deadlines have passed."""
    now = time.monotonic()
    for channel in channels(sockets):
        if channel.deadline(now) <= now:
            channel.time_out()


def drain(sockets: SocketMap, listeners: list[Listener], timeout: int) -> None:
    """Accept no more connections, respond to the requests of all others, and close them.

    Requests that are not finished after the timeout are aborted.
    """
    started = time.monotonic()
    # To make room for a queued connection, none may be closed whose request has arrived.
    run_turn(0, sockets, listeners)
    while (elapsed := time.monotonic() - started) < timeout:
        for listener in listeners:
            listener.stop_accepting()
        run_turn(0.05, sockets, listeners)
        close_overdue(sockets)
        busy = [
            channel
            for channel in channels(sockets)
            if channel.is_half_closed or not channel.is_idle
        ]
        if elapsed > STOP_IDLE_TIME and not busy:
            break
    else:
        logger.warning(
            "%s not finished %s after the stop.",
            f"{plural(len(busy), 'connection')} {'was' if len(busy) == 1 else 'were'}",
            plural(timeout, "second"),
        )
    listeners[0].task_dispatcher.shutdown(timeout=0.5)
    wasyncore.close_all(sockets)
