"""Listening sockets, and the connections that they accept."""

import errno
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

from click import ClickException
from waitress import wasyncore

from .connection_limits import ConnectionLimits
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

# The owner and the group may connect.
UNIX_MODE = 0o660


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


def bind_path(path: Path) -> socket.socket:
    """Return a Unix socket at the path; raise ClickException if none can be there."""
    bound = socket.socket(socket.AF_UNIX)
    # With chmod instead, others could connect in between.
    umask = os.umask(0o777 & ~UNIX_MODE)
    try:
        if os.path.lexists(path):
            _remove_stale(path)
        bound.bind(str(path))
    except OSError as error:
        # Python itself refuses a path that is too long, without an error number.
        reason = error.strerror or error
        raise ClickException(f"{path} cannot be served on: {reason}.") from error
    finally:
        os.umask(umask)
    return bound


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed; raise ClickException for other files."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise ClickException(f"{path} exists and is not a socket; choose another path.")
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        if client.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise ClickException(f"{path} is in use by another process; choose another path.")
    path.unlink()


class Listener(wasyncore.dispatcher):
    """A listening socket. A socket passed by systemd listens already, with its own backlog."""

    # Whether no connection was left in the queue after the last accept.
    is_empty = False
    _paused_until = 0.0

    def __init__(
        self,
        context: Context,
        limits: ConnectionLimits,
        sockets: dict[int, Any],
        bound: socket.socket,
        *,
        name: str,
        is_passed: bool = False,
    ) -> None:
        self.sockets, self.is_passed, self._context = sockets, is_passed, context
        self._limits = limits
        self._is_unix = bound.family == socket.AF_UNIX
        if self._is_unix:
            name, port = "localhost", str(bound.getsockname())
            self.url = f"unix:{port}"
        else:
            flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
            host, port = socket.getnameinfo(bound.getsockname(), flags)
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            name = host if is_passed else name
            # Accepted connections inherit both.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_BUFFER)
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not is_passed:
            bound.listen(BACKLOG)
        self.environ = listener_environ(name, port)
        super().__init__(bound, map=sockets)

    def readable(self) -> bool:
        return time.monotonic() >= self._paused_until and self._limits.room() > 0

    def writable(self) -> bool:
        return False

    def accept_queued(self, limit: int) -> list[Channel]:
        """Accept queued connections up to the limit, and return them; the others wait."""
        accepted: list[Channel] = []
        self.is_empty = False
        while len(accepted) < limit:
            try:
                connection, address = self.socket.accept()
                client = self._client(address)
                channel = Channel(self._context, self.sockets, self.environ, connection, client)
                accepted.append(channel)
            except BlockingIOError:
                self.is_empty = True
                break
            except OSError as error:
                # Otherwise the client has disconnected already.
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._paused_until = time.monotonic() + ACCEPT_PAUSE
                    break
        return accepted

    def _client(self, address: Any) -> tuple[str, int]:
        """Return the host and port of a client; a client of a Unix socket has neither."""
        if self._is_unix:
            return "", 0
        host, port = address[:2]
        # The form of an IPv4 client on a socket for both IPv4 and IPv6.
        mapped = host.removeprefix("::ffff:")
        return mapped if "." in mapped else host, port
