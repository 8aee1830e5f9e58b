"""The event loop of the I/O thread: each turn reads, sends and accepts.

A turn serves connections from a queue that is fair to all clients, until TURN_TIME is over. The
remaining connections keep their places for the next turn. As a result, a flood from one client
hardly delays other clients.

Sockets stay registered for their events from turn to turn. A registration changes only for a
connection that entered another phase, so the cost of a turn does not grow with idle connections.
"""

import logging
import selectors
import time
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE

from .connection_limits import ConnectionLimits
from .connections import Connection, Phase
from .context import Context
from .fair_queue import FairQueue
from .listeners import Listener

# How long a turn may run before the loop polls for new events: a flood from one client delays
# requests from other clients by up to this time.
TURN_TIME = 0.001  # seconds
# The time between checks of the deadlines and the database file.
CHECK_INTERVAL = 1  # seconds
# The events that a connection waits for in each phase. HANDLING has no entry: the connection stays
# registered until more input arrives, and that input has to wait.
EVENTS = {
    Phase.RECEIVING: EVENT_READ,
    Phase.SENDING: EVENT_WRITE,
    Phase.IDLE: EVENT_READ,
    Phase.DISCARDING: EVENT_READ,
    Phase.CLOSED: 0,
}

logger = logging.getLogger(__name__)


class EventLoop:
    """The service's sockets, and the work of each turn."""

    def __init__(
        self,
        context: Context,
        limits: ConnectionLimits,
        listeners: list[Listener],
        check_files: Callable[[], None],
    ) -> None:
        """Store the listening sockets, and a function that is called every CHECK_INTERVAL."""
        self.context, self.limits, self.listeners = context, limits, listeners
        self._check_files = check_files
        self._next_check = 0.0
        self._selector = selectors.DefaultSelector()
        self._selector.register(context.dispatcher.wake_socket, EVENT_READ)
        # The connections with events or pipelined requests.
        self._ready: FairQueue[Connection] = FairQueue()

    def run(self) -> None:
        """Run turns until the service stops."""
        while not self.context.is_stopping:
            self.run_turn(CHECK_INTERVAL)

    def run_turn(self, timeout: float) -> None:
        """Wait up to the timeout for an event; then send, read and accept as much as possible."""
        context = self.context
        self._settle()
        self._register_listeners()
        listeners = []
        for key, _ in self._selector.select(0 if self._ready.length else timeout):
            source = key.data
            if isinstance(source, Connection):
                self._queue(source)
            elif isinstance(source, Listener):
                listeners.append(source)
            else:
                # Empty the wake socket before deliver(), so that a later response wakes the loop
                # again.
                context.dispatcher.wake_socket.recv(4096)
        context.dispatcher.deliver()
        end = time.perf_counter() + TURN_TIME
        while self._ready.length:
            connection = self._ready.popleft()
            connection.is_queued = False
            self._attempt(connection, self._serve)
            if time.perf_counter() > end:
                break
        # New connections may replace others, but never one whose request has arrived.
        self._settle()
        for listener in self.listeners if context.is_stopping else listeners:
            room = self.limits.room(has_unread=self._ready.length > 0)
            for connection in listener.accept_queued(context, room):
                self.limits.add(connection)
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            for connection in self.limits.connections():
                if connection.deadline <= now:
                    self._attempt(connection, Connection.time_out)
            self._check_files()
        context.access_log.flush()

    def _settle(self) -> None:
        """Update the tables and registrations of connections that have entered another phase."""
        while touched := self.context.touched:
            self.context.touched = {}
            for connection in touched:
                self.limits.update(connection)
                phase = connection.phase
                self._register(connection, EVENTS.get(phase, connection.registered_events))
                if connection.has_input:
                    self._queue(connection)
                elif phase == Phase.CLOSED:
                    connection.socket.close()

    def _register(self, source: Connection | Listener, events: int) -> None:
        """Starting with the next turn, wait for these events on a socket."""
        if events == source.registered_events:
            return
        if not source.registered_events:
            self._selector.register(source.socket, events, source)
        elif events:
            self._selector.modify(source.socket, events, source)
        else:
            self._selector.unregister(source.socket)
        source.registered_events = events

    def _register_listeners(self) -> None:
        has_room = self.limits.room() > 0
        for listener in self.listeners:
            self._register(listener, EVENT_READ if has_room and not listener.is_paused() else 0)

    def _queue(self, connection: Connection) -> None:
        if not connection.is_queued:
            connection.is_queued = True
            self._ready.append(connection)

    def _serve(self, connection: Connection) -> None:
        phase = connection.phase
        if phase == Phase.HANDLING:
            # The connection is registered again when its response is ready.
            self._register(connection, 0)
        elif phase == Phase.SENDING:
            connection.send()
        elif phase != Phase.CLOSED:
            connection.receive()

    def _attempt(self, connection: Connection, action: Callable[[Connection], None]) -> None:
        try:
            action(connection)
        except Exception:
            logger.exception("A connection failed.")
            connection.close()

    def close_listeners(self, condition: Callable[[Listener], bool]) -> None:
        """Close the listening sockets that meet the condition."""
        for listener in filter(condition, self.listeners[:]):
            self.listeners.remove(listener)
            # Unregister the socket first: closing it is not enough if systemd has it open too.
            self._register(listener, 0)
            listener.socket.close()

    def close(self) -> None:
        """Close all sockets."""
        self.close_listeners(lambda listener: True)
        for connection in self.limits.connections():
            connection.close()
        self._settle()
        self._selector.close()
