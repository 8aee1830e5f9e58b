"""Free ports, for programs that cannot choose one themselves and for tests that need a closed one.

They are below the range from which the system chooses ports: otherwise a connection or another
server of the tests could get the port before the program listens on it.
"""

import socket

RANGE = range(10_000, 30_000)
# A socket with a name for each port that this process has: no other process of the tests gets it.
_reservations: list[socket.socket] = []


def free_port() -> int:
    """Return a port of loopback on which no process listens; each call returns another one."""
    for port in RANGE:
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0widget-catalog-tests-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            reservation.close()
        else:
            _reservations.append(reservation)
            return port
    raise OSError("All ports for the programs of the tests are in use.")
