"""Support for systemd: the listening sockets that it passes, and readiness notification.

systemd keeps its sockets open while the service restarts. Connections that arrive in the meantime
wait in the listen queue for the next process, so a restart does not lose any. See sd_listen_fds(3)
and sd_notify(3).
"""

import logging
import os
import re
import socket
from contextlib import suppress

FIRST_DESCRIPTOR = 3
FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

logger = logging.getLogger(__name__)


def take_passed_sockets() -> list[socket.socket]:
    """Return the sockets that were passed to this process, and remove systemd's variables.

    Raise ValueError if one of the descriptors is not a listening socket.
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    # If LISTEN_PID names another process, the variables are meant for a parent of this process.
    if pid != str(os.getpid()):
        return []
    return [
        _listening_socket(descriptor)
        for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    ]


def _listening_socket(descriptor: int) -> socket.socket:
    with suppress(OSError):
        os.set_inheritable(descriptor, False)
        passed = socket.socket(fileno=descriptor)
        is_listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if is_listening and passed.type == socket.SOCK_STREAM and passed.family in FAMILIES:
            return passed
    raise ValueError(
        f"Descriptor {descriptor}, passed by LISTEN_FDS, is not a listening TCP or Unix socket."
    )


def notify_ready() -> None:
    """Tell systemd that the service has started (Type=notify); without systemd, do nothing."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            # An abstract address begins with a null byte, written as @.
            notified.connect(re.sub("^@", "\0", address))
            notified.send(b"READY=1")
    except OSError as error:
        logger.warning("Cannot tell systemd that the service is ready: %s.", error.strerror)
