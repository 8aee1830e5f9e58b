"""The service as one process: waitress on one address, from its start to its orderly end."""

import contextlib
import ctypes
import logging
import resource
import signal
import socket
import sys
import time
from functools import partial
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
from catalog.serving.socket_activation import take_passed_sockets
from catalog.settings import trusted_networks
from catalog.store.sqlite import DatabaseError
from catalog.text import plural

SWITCH_INTERVAL = 0.0005  # seconds
SETTLE = 0.3  # seconds that a stop leaves to requests that are on their way
FRAME_BYTES = 16 * 1024  # of a body in chunks; and what is a little too large, the app refuses
OWN_FILES = 50  # what Python and waitress open, and the database's own
FILES_OF_A_THREAD = 3  # its connection to the database
FILES_OF_A_CLIENT = 2  # its connection, and the bundle that it is being sent

CHECK_EVERY = 1  # seconds
# Bytes that the kernel takes of a response before the client's window has room for them. A slow
# client holds no more of its memory, and a fast one is not slowed: what is on its way is no part.
KERNEL_BYTES = 128 * 1024
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
LARGE_BLOCK = 1024 * 1024  # bytes

Sockets = dict[int, object]  # what waitress listens to: by file descriptor

logger = logging.getLogger(__name__)


def serve(app: Flask) -> None:
    """Serve until told to stop; raises ClickException where it cannot start."""
    database = app.extensions["database"]
    try:
        database.check_permissions()
        database.check()
    except DatabaseError as error:
        raise ClickException(str(error)) from error
    return_freed_memory()
    make_room_for_files(app.config["MAX_CONNECTIONS"], app.config["THREADS"])
    # A short burst fills the queue for a moment; that is no news to an operator.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    # Reading the database, a thread lets go of the interpreter's lock many times; with Python's own
    # five milliseconds to get it back, a busy service would spend its time waiting for turns.
    sys.setswitchinterval(SWITCH_INTERVAL)
    sockets: Sockets = {}
    listeners = listen(app, sockets)
    stop_on_signals(listeners)
    with logging_to_standard_streams(app.config["LOG_LEVEL"], app.config["LOG_FORMAT"]) as log:
        for listener in listeners:
            listener.access_log = log
        print(f"Serving {database.name} on {listeners[0].url}", flush=True)
        run(sockets, listeners)
        drain(sockets, listeners, app.config["STOP_TIMEOUT"])
        database.close()


def listen(app: Flask, sockets: Sockets) -> list[Listener]:
    """Listen on the sockets passed by systemd, or else on CATALOG_HOST and CATALOG_PORT.

    A name such as localhost can stand for several addresses.
    """
    config = app.config
    host, port = config["HOST"], config["PORT"]
    passed = take_passed_sockets()
    try:
        adjustments = Adjustments(
            **({} if passed else {"host": host, "port": port}),
            backlog=config["BACKLOG"],
            connection_limit=config["MAX_CONNECTIONS"],
            max_request_header_size=config["MAX_HEAD_BYTES"],
            max_request_body_size=config["MAX_BODY_BYTES"] + FRAME_BYTES,
            outbuf_high_watermark=sys.maxsize,  # no thread waits for a client; see connections.py
            clear_untrusted_proxy_headers=False,  # nothing reads them; see proxies.py
            ident=None,
            server_name=host,
        )
        dispatcher = Dispatcher(app.extensions["database"], config["THREADS"])
        create = partial(Listener, app, sockets, dispatcher=dispatcher, adj=adjustments)
        if passed:
            listeners = [create(passed=each) for each in passed]
        else:
            listeners = [create(sockinfo=info) for info in adjustments.listen]
    except ValueError as error:
        raise ClickException(f"CATALOG_HOST {host} is not an address to serve on.") from error
    except OSError as error:
        raise ClickException(
            f"CATALOG_HOST {host} with CATALOG_PORT {port} cannot be served on: {error.strerror}."
        ) from error
    limits = ConnectionLimits(
        config["MAX_CONNECTIONS_PER_CLIENT"], trusted_networks(config["TRUSTED_PROXY"])
    )
    for listener in listeners:
        listener.request_timeout = config["REQUEST_TIMEOUT"]
        listener.idle_timeout = config["IDLE_TIMEOUT"]
        listener.limits = limits
        if listener.family != socket.AF_UNIX:
            # Accepted connections inherit it.
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BYTES)
    return listeners


def make_room_for_files(connections: int, threads: int) -> None:
    """Let the process open as many files as its connections can need, and those of its own."""
    needed = connections * FILES_OF_A_CLIENT + threads * FILES_OF_A_THREAD + OWN_FILES
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
        except ValueError as error:
            raise ClickException(
                f"CATALOG_MAX_CONNECTIONS {connections} needs {needed} open files, and this system "
                f"allows {most}."
            ) from error


def return_freed_memory() -> None:
    """Have large blocks given back to the system when they are freed.

    glibc would keep them for each thread: after 20 registries of 20 MB, 960 MB instead of 180.
    """
    with contextlib.suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def stop_on_signals(listeners: list[Listener]) -> None:
    """Stop in order on the first signal, at once on the second."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        for listener in listeners:
            listener.stopping = True
        listeners[0].trigger.pull_trigger()

    # Whoever starts a service in the background may have chosen that an interrupt is not for it.
    signals = [
        each
        for each in (signal.SIGTERM, signal.SIGINT)
        if signal.getsignal(each) is not signal.SIG_IGN
    ]
    for each in signals:
        signal.signal(each, stop)


def run(sockets: Sockets, listeners: list[Listener]) -> None:
    """Serve until told to stop."""
    next_check = 0.0
    while not listeners[0].stopping:
        take_turn(CHECK_EVERY, sockets, listeners)
        if time.monotonic() >= next_check:
            next_check = time.monotonic() + CHECK_EVERY
            end_overdue(sockets)


def take_turn(timeout: float, sockets: Sockets, listeners: list[Listener]) -> None:
    """Wait for what comes, and do what can be done at once."""
    listeners[0].task_dispatcher.begin_turn()
    wasyncore.poll2(timeout, sockets)
    limits = listeners[0].limits
    limits.begin_turn()
    for listener in listeners:
        listener.accept_queued()
    if limits.unsent_since_check >= UNSENT_STEP:
        limits.bound_unsent(time.monotonic())


def channels(sockets: Sockets) -> list[Channel]:
    return [channel for channel in list(sockets.values()) if isinstance(channel, Channel)]


def end_overdue(sockets: Sockets) -> None:
    """End the connections whose deadlines have passed."""
    now = time.monotonic()
    for channel in channels(sockets):
        if channel.deadline(now) <= now:
            channel.end()


def drain(sockets: Sockets, listeners: list[Listener], seconds: int) -> None:
    """Respond to the requests of connected clients, queued ones included, for up to the timeout."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        for listener in listeners:
            listener.stop_accepting()
        take_turn(0.05, sockets, listeners)
        end_overdue(sockets)
        busy = [
            channel for channel in channels(sockets) if channel.lingering or not channel.is_idle
        ]
        if passed > SETTLE and not busy:
            break
    else:
        logger.warning(
            "%s not finished %s after the stop.",
            f"{plural(len(busy), 'connection')} {'was' if len(busy) == 1 else 'were'}",
            plural(seconds, "second"),
        )
    listeners[0].task_dispatcher.shutdown(timeout=0.5)
    wasyncore.close_all(sockets)
