"""Listening sockets that systemd passes to the process (socket activation).

systemd keeps such a socket open across a restart. Connections that arrive in between wait in its
listen queue for the next process, so a restart loses none. See sd_listen_fds(3) for the protocol.
"""

import os
import re
import socket

from click import ClickException

from catalog.text import quoted

FIRST_DESCRIPTOR = 3
FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)


def take_passed_sockets() -> list[socket.socket]:
    """Return the sockets that were passed to this process, and remove systemd's variables.

    Raise ClickException if one of them cannot be served on.
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    # Otherwise they are those of a parent process.
    if pid != str(os.getpid()):
        return []
    if not re.fullmatch("[0-9]{1,4}", count):
        raise ClickException(f"LISTEN_FDS must be a whole number, not {quoted(count)}.")
    return [
        _listening_socket(descriptor)
        for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    ]


def _listening_socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        passed = socket.socket(fileno=descriptor)
        is_listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        is_listening = 0
    if not is_listening or passed.type != socket.SOCK_STREAM or passed.family not in FAMILIES:
        raise ClickException(
            f"Descriptor {descriptor}, passed by LISTEN_FDS, is not a listening TCP or Unix socket."
        )
    return passed
