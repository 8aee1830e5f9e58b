"""Listening sockets, and the connections that they accept."""

import errno
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

from click import ClickException

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

# The mode of a Unix socket: only the owner and the group may connect.
UNIX_MODE = 0o660


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of the host; a name such as localhost can have several.

    Skip addresses that this machine lacks, such as ::1 without IPv6. Raise OSError if no address is
    left.
    """
    bound = []
    unavailable: OSError | None = None
    infos = socket.getaddrinfo(
        None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, address in dict.fromkeys(infos):
        try:
            listening = socket.socket(family, kind, protocol)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            unavailable = error
        else:
            bound.append(listening)
    if unavailable and not bound:
        raise unavailable
    return bound


def bind_path(path: Path) -> socket.socket:
    """Return a Unix socket bound to the path; raise ClickException if that is not possible."""
    bound = socket.socket(socket.AF_UNIX)
    # Set the umask before the socket exists: with chmod, other users could connect in between.
    umask = os.umask(0o777 & ~UNIX_MODE)
    try:
        if os.path.lexists(path):
            _remove_stale(path)
        bound.bind(str(path))
    except OSError as error:
        # If the path is too long, Python raises an error without strerror.
        reason = error.strerror or error
        raise ClickException(f"Cannot listen on {path}: {reason}.") from error
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
        """Return the host and port of a client; a client of a Unix socket has neither."""
        if self._is_unix:
            return "", 0
        host, port = address[:2]
        # On a dual-stack socket for IPv4 and IPv6, the address of an IPv4 client has this prefix.
        mapped = host.removeprefix("::ffff:")
        return mapped if "." in mapped else host, port
