"""Listening sockets, and the connections that they accept."""

import errno
import socket
import time
from typing import Any

from .connections import Connection
from .context import Context
from .wsgi import listener_environ

# The maximum number of connections that wait to be accepted.
BACKLOG = 256
# If no file descriptor is free, accepting pauses for this long: every attempt would fail
# immediately.
ACCEPT_PAUSE = 1  # seconds
# The maximum number of unsent response bytes in the kernel's buffer, which limits the memory that a
# slow client can take. A fast client is not slowed down, because bytes in transit do not count.
KERNEL_BUFFER = 128 * 1024  # bytes


class Listener:
    """A listening socket. A socket from systemd is already listening, with its own backlog."""

    # The events that the event loop waits for; only the event loop uses them.
    registered_events = 0
    # True if the last accept emptied the queue of connections.
    is_empty = False
    _paused_until = 0.0

    def __init__(self, bound: socket.socket, *, name: str, is_passed: bool = False) -> None:
        """Listen on a bound socket; the name is the host that the service was started with."""
        self.socket, self.is_passed = bound, is_passed
        self._is_unix = bound.family == socket.AF_UNIX
        if self._is_unix:
            name, port = "localhost", str(bound.getsockname())
            self.url = f"unix:{port}"
        else:
            flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
            host, port = socket.getnameinfo(bound.getsockname(), flags)
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            name = host if is_passed else name
            # Accepted connections inherit these options.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BUFFER)
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_passed:
            bound.listen(BACKLOG)
        bound.setblocking(False)
        self._environ = listener_environ(name, port)

    def is_paused(self) -> bool:
        """Return whether accepting has to wait for a free file descriptor."""
        return time.monotonic() < self._paused_until

    def accept_queued(self, context: Context, limit: int) -> list[Connection]:
        """Accept queued connections up to the limit, and return them; the rest stay queued."""
        accepted: list[Connection] = []
        self.is_empty = False
        while len(accepted) < limit:
            try:
                connected, address = self.socket.accept()
                client = self._client(address)
                accepted.append(Connection(context, self._environ, connected, client))
            except BlockingIOError:
                self.is_empty = True
                break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._paused_until = time.monotonic() + ACCEPT_PAUSE
                    break
                # Any other error means that the client has already disconnected.
        return accepted

    def _client(self, address: Any) -> tuple[str, int]:
        """Return the host and port of a client; a client on a Unix socket has neither."""
        if self._is_unix:
            return "", 0
        host, port = address[:2]
        # On a dual-stack socket for IPv4 and IPv6, the address of an IPv4 client has this prefix.
        mapped = host.removeprefix("::ffff:")
        return mapped if "." in mapped else host, port
