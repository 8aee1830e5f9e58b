"""One address that is served: whom it accepts, and when."""

import select
import time

from waitress.server import TcpWSGIServer

from catalog.connections import Channel
from catalog.displacement import ConnectionLimits
from catalog.logs import AccessLog


class Listener(TcpWSGIServer):
    """One address that is served."""

    channel_class = Channel
    access_log: AccessLog
    request_timeout: int
    idle_timeout: int
    limits: ConnectionLimits
    stopping = False
    has_newcomers = False

    def pull_trigger(self) -> None:
        """Wake the loop, unless this is the loop itself."""
        if not self.task_dispatcher.in_loop():
            super().pull_trigger()

    @property
    def is_full(self) -> bool:
        return len(self.limits.everyone.members) >= self.adj.connection_limit

    def readable(self) -> bool:
        return self.accepting and not (self.is_full and self.limits.everyone.is_stuck)

    def handle_accept(self) -> None:
        """Leave the newcomers to accept_newcomers()."""
        self.has_newcomers = True

    def accept_newcomers(self) -> None:
        """Accept those who wait, if need be in place of others.

        After all that has come was read: no connection is closed whose request is there. A few at
        a time, so that those who are connected have their turns however many come.
        """
        has_newcomers, self.has_newcomers = self.has_newcomers, False
        if not has_newcomers:
            return
        now = time.monotonic()
        for _ in range(self.limits.accepts_per_turn):
            if self.is_full and not (self._is_awaited() and self.limits.everyone.close_one(now)):
                return
            if not self._accept_one(now):
                return

    def _is_awaited(self) -> bool:
        """Whether a newcomer waits: for none, nobody makes room."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def _accept_one(self, now: float) -> bool:
        """Accept one connection; False if there is none."""
        try:
            accepted = self.accept()
            if accepted is None:
                return False
            connection, address = accepted
            self.set_socket_options(connection)
        except OSError:
            # The client has gone already.
            return False
        if self.limits.admits(address[0], now):
            self.channel_class(self, connection, address, self.adj, map=self._map)
        else:
            connection.close()
        return True
