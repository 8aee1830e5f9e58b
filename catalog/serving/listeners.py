"""Listening sockets: which connections are accepted, and when."""

import socket
import time
from typing import Any

from waitress import wasyncore
from waitress.server import TcpWSGIServer

from catalog.serving.access_log import AccessLog
from catalog.serving.connection_limits import ConnectionLimits
from catalog.serving.connections import Channel
from catalog.serving.request_counts import RequestCounts
from catalog.serving.uploads import Uploads

# A connection that was accepted, with the address of its client.
NewConnection = tuple[socket.socket, tuple[str, int]]


class Listener(TcpWSGIServer):
    """A listening socket, and what all of its connections share."""

    channel_class = Channel
    access_log: AccessLog
    # Only with CATALOG_METRICS.
    request_counts: RequestCounts | None = None
    request_timeout: int
    idle_timeout: int
    limits: ConnectionLimits
    uploads: Uploads
    # Whether the service is stopping, so that each response is the last of its connection.
    stopping = False
    _has_queued = False
    # Accepted while no connection could be closed to make room for it.
    _waiting: NewConnection | None = None

    def __init__(
        self,
        *args: Any,
        bound: socket.socket | None = None,
        is_passed: bool = False,
        **kwargs: Any,
    ) -> None:
        """Listen on an address, given as sockinfo, or on a socket that is bound already.

        A socket passed by systemd listens already, too.
        """
        self._is_passed = is_passed
        if bound is None:
            super().__init__(*args, **kwargs)
            return
        info = (bound.family, bound.type, bound.proto, None)
        super().__init__(*args, _sock=bound, sockinfo=info, bind_socket=False, **kwargs)
        self.server_name = "localhost" if self._is_unix else self.effective_host

    @property
    def _is_unix(self) -> bool:
        return bool(self.family == socket.AF_UNIX)

    @property
    def url(self) -> str:
        """Where the listener is reached."""
        host, port = self.effective_host, self.effective_port
        if self._is_unix:
            return f"unix:{port}"
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def getsockname(self) -> tuple[str, str]:
        return ("unix", self.socket.getsockname()) if self._is_unix else super().getsockname()

    def set_socket_options(self, connection: socket.socket) -> None:
        # Those of waitress are for TCP.
        if not self._is_unix:
            super().set_socket_options(connection)

    def fix_addr(self, address: Any) -> tuple[str, int]:
        """Return the host and port of a client; a client of a Unix socket has neither."""
        if self._is_unix:
            return "", 0
        host, port = address[:2]
        # The form of an IPv4 client on a socket for both IPv4 and IPv6.
        mapped = host.removeprefix("::ffff:")
        return mapped if "." in mapped else host, port

    def accept_connections(self) -> None:
        """Begin to listen; a passed socket does already, with the backlog that systemd set."""
        if self._is_passed:
            self.accepting = True
        else:
            super().accept_connections()

    def pull_trigger(self) -> None:
        """Wake the I/O thread, unless this is the I/O thread."""
        if not self.task_dispatcher.on_io_thread():
            super().pull_trigger()

    def readable(self) -> bool:
        return self.accepting and self._waiting is None

    def handle_accept(self) -> None:
        """Leave the queued connections to accept_queued()."""
        self._has_queued = True

    def accept_queued(self) -> None:
        """Accept queued connections, and close others where a limit is reached.

        Call it after all sockets were read, so that no connection is closed whose request has
        arrived. It accepts a few at a time, so that a flood does not delay the other connections.
        """
        if self._has_queued:
            self._accept_up_to(self.limits.accepts_per_turn)

    def stop_accepting(self) -> None:
        """Accept all queued connections, then close the listening socket.

        Call it again in the next turn of the event loop: where a connection has to wait for room,
        the socket stays open until then. The queue of a passed socket is left to the next process.
        """
        if not self.accepting:
            return
        # The queue holds one more than the backlog.
        if self._is_passed or self._accept_up_to(self.adj.backlog + 1):
            # Not self.close(), which would also close the trigger that worker threads use.
            wasyncore.dispatcher.close(self)

    def _accept_up_to(self, limit: int) -> bool:
        """Accept connections up to the limit; return False if one has to wait for room."""
        now = time.monotonic()
        for _ in range(limit):
            try:
                accepted = self._waiting or self._accept()
            except OSError:
                # The client has disconnected already.
                continue
            self._waiting = None
            if accepted is None:
                break
            connection, address = accepted
            if not self.limits.admits(address[0], now):
                self.limits.refused += 1
                connection.close()
            elif self._has_room(now):
                self.channel_class(self, connection, address, self.adj, map=self._map)
            else:
                self._waiting = accepted
                return False
        self._has_queued = False
        return True

    def _accept(self) -> NewConnection | None:
        accepted = self.accept() if self.accepting else None
        if accepted is None:
            return None
        connection, address = accepted
        self.set_socket_options(connection)
        return connection, self.fix_addr(address)

    def _has_room(self, now: float) -> bool:
        """Return whether one more connection fits; may close another one."""
        group = self.limits.all_connections
        return len(group.members) < self.adj.connection_limit or group.close_one(now)
