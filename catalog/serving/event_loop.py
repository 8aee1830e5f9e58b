"""The event loop of the I/O thread: one turn after another reads, writes and accepts.

A turn reads the connections in an order that is fair by client, and stops once it has spent
READ_TURN: the rest is read in the next turns, those that waited longest first. So a flood of one
client delays itself.
"""

import select
import time
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.trigger import trigger

from .connections import Channel
from .context import Context
from .fair_queue import FairQueue
from .listeners import Listener, SocketMap

# How long a turn reads connections.
READ_TURN = 0.03  # seconds of CPU time
# Between two checks of the deadlines, and two calls of other periodic work.
CHECK_INTERVAL = 1  # seconds
POLL_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL


class EventLoop:
    """The sockets of the service and what happens in each turn."""

    context: Context

    def __init__(self) -> None:
        # Waitress's map of all sockets, by file descriptor.
        self.sockets: SocketMap = {}
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

    def channels(self) -> list[Channel]:
        """Return the open connections."""
        return [each for each in self.sockets.values() if isinstance(each, Channel)]

    def run(self) -> None:
        """Run turns until the service is to stop."""
        while not self.context.is_stopping:
            self.run_turn(CHECK_INTERVAL)

    def run_turn(self, timeout: float) -> None:
        """Send, read and accept what is possible now; wait for that up to the timeout."""
        context = self.context
        context.dispatcher.begin_turn()
        waiting = [each for each in self.channels() if each.has_input]
        ready = self._poll(0 if waiting else timeout)
        for socket, flags in ready:
            is_channel = isinstance(socket, Channel)
            if is_channel and flags & select.POLLIN:
                # What has arrived is read first, even if the client has closed the connection.
                waiting.append(socket)
                flags &= ~(select.POLLIN | POLL_ENDED)
            if flags:
                wasyncore.readwrite(socket, flags)
        # After the trigger was read: a response that comes later wakes the next turn.
        context.dispatcher.deliver()
        self._read(waiting)
        self._accept()
        now = time.monotonic()
        if context.has_more_unsent:
            context.has_more_unsent = False
            context.limits.bound_unsent(now)
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            for work in self.periodic:
                work()

    def _poll(self, timeout: float) -> list[tuple[Any, int]]:
        poll = select.poll()
        for descriptor, socket in self.sockets.items():
            flags = select.POLLIN if socket.readable() else 0
            if socket.writable():
                flags |= select.POLLOUT
            if flags:
                poll.register(descriptor, flags)
        found = poll.poll(timeout * 1000)
        return [(self.sockets[descriptor], flags) for descriptor, flags in found]

    def _read(self, channels: list[Channel]) -> None:
        """Read the connections until the turn has spent its time."""
        self._turn += 1
        queue: FairQueue[Channel] = FairQueue()
        for channel in sorted(channels, key=lambda channel: channel.last_turn):
            queue.append(channel)
        end = time.thread_time() + READ_TURN
        while queue:
            channel = queue.popleft()
            if channel.connected:
                channel.last_turn = self._turn
                wasyncore.readwrite(channel, select.POLLIN)
                if time.thread_time() > end:
                    break

    def _accept(self) -> None:
        """Accept connections after all sockets were read, and close others beyond the limits.

        So no connection is closed whose request has arrived.
        """
        limits = self.context.limits
        accepted: list[Channel] = []
        for listener in self.listeners:
            if listener.has_queued:
                accepted += listener.accept_queued(self.context, limits.room())
        if accepted:
            limits.close_surplus(accepted, time.monotonic())

    def _close_overdue(self) -> None:
        """Close the connections whose deadlines have passed."""
        now = time.monotonic()
        for channel in self.channels():
            try:
                if channel.deadline(now) <= now:
                    channel.time_out()
            except Exception:
                # It logs the error and closes the connection.
                channel.handle_error()

    def close(self) -> None:
        """Close all sockets."""
        wasyncore.close_all(self.sockets)
