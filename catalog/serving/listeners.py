"""Listening sockets, and the connections that they accept."""

import errno
import socket
import time
from typing import Any

from waitress import wasyncore

from .connections import Channel
from .context import Context
from .tasks import listener_environ

# Connections that may wait to be accepted.
BACKLOG = 256
# Without a free file descriptor, accepting fails at once, again and again.
ACCEPT_PAUSE = 1  # seconds
# Unsent bytes of a response that the kernel buffers. A slow client takes no more of the kernel's
# memory. A fast one is not slowed down, since bytes in transit do not count.
KERNEL_BUFFER = 128 * 1024  # bytes

SocketMap = dict[int, Any]


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host; a name such as localhost can have several."""
    bound = []
    infos = socket.getaddrinfo(
        None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, address in dict.fromkeys(infos):
        listening = socket.socket(family, kind, protocol)
        bound.append(listening)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
    return bound


class Listener(wasyncore.dispatcher):
    """A listening socket. A socket passed by systemd listens already, with its own backlog."""

    # Whether connections wait in the queue, and whether the queue was found empty.
    has_queued = _is_empty = False
    _paused_until = 0.0

    def __init__(
        self, sockets: SocketMap, bound: socket.socket, *, name: str, is_passed: bool = False
    ) -> None:
        self.sockets, self._is_passed = sockets, is_passed
        self._is_unix = bound.family == socket.AF_UNIX
        if self._is_unix:
            self._host, self._port = "", str(bound.getsockname())
            name = "localhost"
        else:
            flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
            self._host, self._port = socket.getnameinfo(bound.getsockname(), flags)
            # Accepted connections inherit both.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BUFFER)
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.environ = listener_environ(name if not is_passed else self._host or name, self._port)
        super().__init__(bound, map=sockets)
        self.accepting = True

    @property
    def url(self) -> str:
        """Where the listener is reached."""
        if self._is_unix:
            return f"unix:{self._port}"
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"

    def listen_now(self) -> None:
        """Begin to listen."""
        if not self._is_passed:
            self.socket.listen(BACKLOG)

    def readable(self) -> bool:
        return self.accepting and not self.has_queued and time.monotonic() >= self._paused_until

    def writable(self) -> bool:
        return False

    def handle_accept(self) -> None:
        """Leave the queued connections to accept_queued(), after all sockets were read."""
        self.has_queued = True

    def accept_queued(self, context: Context, limit: int) -> list[Channel]:
        """Accept queued connections up to the limit, and return them."""
        accepted: list[Channel] = []
        # Without room they wait; the socket is polled again once there is some.
        self.has_queued = limit <= 0
        while len(accepted) < limit:
            try:
                connection, address = self.socket.accept()
                accepted.append(Channel(context, self, connection, self._client(address)))
            except BlockingIOError:
                self._is_empty = True
                break
            except OSError as error:
                # Otherwise the client has disconnected already.
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._paused_until = time.monotonic() + ACCEPT_PAUSE
                    break
        return accepted

    def begin_stop(self) -> None:
        """Have the next turns of the event loop accept all that waits in the queue."""
        self.has_queued, self._is_empty = True, False

    def close_if_empty(self) -> None:
        """Close the socket if no connection waits; leave that of systemd to the next process."""
        if self.accepting and (self._is_passed or self._is_empty):
            self.close()
        self.has_queued = self.accepting

    def _client(self, address: Any) -> tuple[str, int]:
        """Return the host and port of a client; a client of a Unix socket has neither."""
        if self._is_unix:
            return "", 0
        host, port = address[:2]
        # The form of an IPv4 client on a socket for both IPv4 and IPv6.
        mapped = host.removeprefix("::ffff:")
        return mapped if "." in mapped else host, port
