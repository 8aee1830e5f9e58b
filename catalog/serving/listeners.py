"""One address that is served: whom it accepts, and when."""

import socket
import time

from waitress.server import TcpWSGIServer

from catalog.serving.access_log import AccessLog
from catalog.serving.connection_limits import ConnectionLimits
from catalog.serving.connections import Channel

Newcomer = tuple[socket.socket, tuple[str, int]]


class Listener(TcpWSGIServer):
    """One address that is served."""

    channel_class = Channel
    access_log: AccessLog
    request_timeout: int
    idle_timeout: int
    limits: ConnectionLimits
    stopping = False
    _has_newcomers = False
    # Accepted while all connections were being worked on.
    _waiting: Newcomer | None = None

    def pull_trigger(self) -> None:
        """Wake the loop, unless this is the loop itself."""
        if not self.task_dispatcher.on_io_thread():
            super().pull_trigger()

    def readable(self) -> bool:
        return self.accepting and self._waiting is None

    def handle_accept(self) -> None:
        """Leave the newcomers to accept_newcomers()."""
        self._has_newcomers = True

    def accept_newcomers(self) -> None:
        """Accept those who have come, if need be in place of others.

        After all that was sent has been read: no connection is closed whose request is there. A
        few at a time, so that those who are connected have their turns however many come.
        """
        if not self._has_newcomers:
            return
        now = time.monotonic()
        for _ in range(self.limits.accepts_per_turn):
            newcomer = self._waiting or self._accept()
            self._waiting = None
            if newcomer is None:
                break
            connection, address = newcomer
            if not self.limits.admits(address[0], now):
                connection.close()
            elif self._has_room(now):
                self.channel_class(self, connection, address, self.adj, map=self._map)
            else:
                self._waiting = newcomer
                return
        self._has_newcomers = False

    def _accept(self) -> Newcomer | None:
        try:
            newcomer: Newcomer | None = self.accept()
            if newcomer is not None:
                self.set_socket_options(newcomer[0])
        except OSError:
            # The client has gone already.
            return None
        return newcomer

    def _has_room(self, now: float) -> bool:
        everyone = self.limits.all_connections
        return len(everyone.members) < self.adj.connection_limit or everyone.close_one(now)
