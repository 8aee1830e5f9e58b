"""Free ports, for programs that cannot choose one themselves and for tests that need a closed one.

They are below the range from which the system chooses ports: otherwise a connection or another
server of the tests could get the port before the program listens on it.
"""

import itertools
import os
import socket
from contextlib import suppress

RANGE = range(10_000, 30_000)
# Processes of tests that run at the same time begin at different ports.
_first = os.getpid() * 100 % len(RANGE)
_candidates = itertools.cycle([*RANGE[_first:], *RANGE[:_first]])


def free_port() -> int:
    """Return a port of loopback on which no process listens; each call returns another one."""
    while True:
        port = next(_candidates)
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            return port
