"""The event loop of the I/O thread: one turn after another reads, sends and accepts.

A turn serves the connections in an order that is fair by client, each client for CLIENT_TIME and
all of them for TURN_TIME: the rest is served in the next turns, those that waited longest first. So
a flood of one client delays itself.
"""

import select
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.trigger import trigger

from .connection_limits import ConnectionLimits
from .connections import Channel
from .context import Context
from .fair_queue import FairQueue
from .listeners import Listener

# How long a turn serves the connections of one client, and all connections.
CLIENT_TIME = 0.005  # seconds of CPU time
TURN_TIME = 0.015  # seconds of CPU time
# Between two checks of the deadlines, and two calls of other periodic work.
CHECK_INTERVAL = 1  # seconds
POLL_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL


class EventLoop:
    """The sockets of the service and what happens in each turn."""

    context: Context
    limits: ConnectionLimits

    def __init__(self) -> None:
        # Waitress's map of all sockets, by file descriptor.
        self.sockets: dict[int, Any] = {}
        self.listeners: list[Listener] = []
        # Whether the service stops for another reason than a signal.
        self.has_failed = False
        # Called every CHECK_INTERVAL.
        self.periodic: list[Callable[[], None]] = [self._close_overdue]
        self._trigger = trigger(self.sockets)
        self._turn = 0
        self._next_check = 0.0

    def wake(self) -> None:
        """End the wait for sockets; any thread and any signal handler may call this."""
        self._trigger.pull_trigger()

    def run(self) -> None:
        """Run turns until the service is to stop."""
        while not self.context.is_stopping:
            self.run_turn(CHECK_INTERVAL)

    def run_turn(self, timeout: float) -> None:
        """Send, read and accept what is possible now; wait for that up to the timeout."""
        context = self.context
        waiting: dict[Channel, int] = {}
        listeners = []
        for socket, flags in self._poll(timeout):
            if isinstance(socket, Channel):
                # What has arrived is read first, even if the client has closed the connection.
                waiting[socket] = flags & ~POLL_ENDED if flags & select.POLLIN else flags
            elif isinstance(socket, Listener):
                listeners.append(socket)
            else:
                wasyncore.readwrite(socket, flags)
        # After the trigger was read: a response that comes later wakes the next turn.
        context.dispatcher.deliver()
        self._serve(waiting)
        self._accept(self.listeners if context.is_stopping else listeners)
        now = time.monotonic()
        if context.has_new_bodies:
            context.has_new_bodies = False
            self.limits.bound_unsent(now)
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            for work in self.periodic:
                work()
        context.access_log.flush()

    def _poll(self, timeout: float) -> list[tuple[Any, int]]:
        """Return the sockets that are ready, with their events."""
        poll = select.poll()
        found = []
        for descriptor, socket in self.sockets.items():
            flags = select.POLLIN if socket.readable() else 0
            if socket.writable():
                flags |= select.POLLOUT
            if flags:
                poll.register(descriptor, flags)
            elif isinstance(socket, Channel) and socket.has_input:
                found.append((socket, select.POLLIN))
        for descriptor, flags in poll.poll(0 if found else timeout * 1000):
            found.append((self.sockets[descriptor], flags))
        return found

    def _serve(self, ready: dict[Channel, int]) -> None:
        """Read from the connections and send to them until the turn has spent its time."""
        self._turn += 1
        queue: FairQueue[Channel] = FairQueue()
        for channel in sorted(ready, key=lambda channel: channel.last_turn):
            queue.append(channel)
        spent: dict[str, float] = defaultdict(float)
        now = time.thread_time()
        end = now + TURN_TIME
        while queue and now < end:
            channel = queue.popleft()
            if channel.connected and spent[channel.client] < CLIENT_TIME:
                channel.last_turn = self._turn
                wasyncore.readwrite(channel, ready[channel])
                started, now = now, time.thread_time()
                spent[channel.client] += now - started

    def _accept(self, listeners: list[Listener]) -> None:
        """Accept connections after others were read, and close those beyond the limits.

        So no connection is closed whose request has arrived.
        """
        accepted: list[Channel] = []
        for listener in listeners:
            accepted += listener.accept_queued(self.limits.room())
        if accepted:
            self.limits.close_surplus(accepted, time.monotonic())

    def close_listeners(self, condition: Callable[[Listener], bool]) -> None:
        """Close the listening sockets that fulfil the condition."""
        for listener in filter(condition, self.listeners[:]):
            self.listeners.remove(listener)
            listener.close()

    def _close_overdue(self) -> None:
        """Close the connections whose deadlines have passed."""
        now = time.monotonic()
        for channel in self.limits.connections:
            try:
                if channel.deadline(now) <= now:
                    channel.time_out()
            except Exception:
                # It logs the error and closes the connection.
                channel.handle_error()

    def close(self) -> None:
        """Close all sockets."""
        wasyncore.close_all(self.sockets)
