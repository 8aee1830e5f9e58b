"""Sockets that are bound to an address or a path but are not listening yet."""

import errno
import os
import socket
import stat
from pathlib import Path

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
    """Return a Unix socket bound to the path; raise OSError if that is not possible."""
    bound = socket.socket(socket.AF_UNIX)
    # Set the umask before the socket exists: with chmod, other users could connect in between.
    umask = os.umask(0o777 & ~UNIX_MODE)
    try:
        if os.path.lexists(path):
            _remove_stale(path)
        bound.bind(str(path))
    finally:
        os.umask(umask)
    return bound


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed; raise OSError if the path is in use."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise OSError(errno.EEXIST, "the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        if client.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, "another process listens on it")
    path.unlink()
