"""Limits that connections share, and which connection is closed when one is reached.

Connections are accepted first; then those that make the least progress are closed until the limits
hold. A connection whose request is being handled is never closed, nor one of this turn of the event
loop: what it has sent has not been read yet.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from catalog.serving.proxies import Proxies, client_network

# How many connections are accepted in one turn of the event loop.
MAX_ACCEPTS = 64
# The limit of unsent bodies in memory, besides the largest of them.
MAX_UNSENT = 64 * 1024 * 1024  # bytes

# Whether a request or a response is in transfer, the deadline of the current phase, and the bytes
# that the client acknowledged. The connection with the lowest rank is closed first.
Rank = tuple[bool, float, int]


class ClientConnection(Protocol):
    """What this module needs of a connection."""

    addr: tuple[str, int]

    @property
    def is_busy(self) -> bool:
        """Whether its request is being handled."""

    def rank(self, now: float) -> Rank:
        """Return its place in the order of closing."""

    def drop(self) -> None:
        """Close the connection."""

    def bodies(self) -> list[bytes]:
        """Return the bodies in memory that are not sent completely."""


class ConnectionLimits:
    """The limits of the number of connections, in total and by client, and of their memory."""

    def __init__(self, maximum: int, per_client: int, proxies: Proxies) -> None:
        self.maximum = maximum
        self.connections: set[ClientConnection] = set()
        # Connections that were closed at once: all others of the client were being handled.
        self.refused = 0
        self._per_client = per_client or math.inf
        self._proxies = proxies

    def room(self) -> int:
        """Return how many connections may be accepted in this turn of the event loop."""
        free = self.maximum - len(self.connections)
        if free < MAX_ACCEPTS:
            # Those that are not busy can be closed.
            free = self.maximum - sum(each.is_busy for each in self.connections)
        return max(min(free, MAX_ACCEPTS), 0)

    def close_surplus(self, accepted: Sequence[ClientConnection], now: float) -> None:
        """Close connections until the limits hold; accepted are those of this turn."""
        for client, count in Counter(map(self._client, accepted)).items():
            if client is None:
                continue
            own = [each for each in self.connections if self._client(each) == client]
            surplus = len(own) - self._per_client
            if surplus > 0:
                closed = self._close(set(own).difference(accepted), surplus, now)
                newest = [each for each in accepted if self._client(each) == client][::-1]
                for each in newest[: max(int(surplus) - closed, 0)]:
                    self.refused += 1
                    each.drop()
            del count
        surplus = len(self.connections) - self.maximum
        if surplus > 0:
            self._close(self.connections.difference(accepted), surplus, now)

    def _close(self, candidates: Iterable[ClientConnection], count: float, now: float) -> int:
        """Close this many of the connections; return how many could be closed."""
        ranks = [(each.rank(now), id(each), each) for each in candidates if not each.is_busy]
        closed = sorted(ranks)[: int(count)]
        for _, _, each in closed:
            each.drop()
        return len(closed)

    def _client(self, connection: ClientConnection) -> str | None:
        """Return the client of a connection; None if its connections have no limit."""
        address = connection.addr[0]
        # The clients of a Unix socket cannot be told apart.
        if not address or self._proxies.is_trusted(address):
            return None
        return client_network(address)

    def bound_unsent(self, now: float) -> None:
        """Close connections until the unsent bodies fit into MAX_UNSENT.

        A body is freed with the last connection that sends it. So the first to go is the response
        whose fastest client makes the least progress, with all its connections. The largest
        response does not count: otherwise one above the limit could never be sent.
        """
        # A response may consist of several bodies, and its clients have sent different numbers of
        # them. So the id of its last body identifies it.
        senders: dict[int, list[ClientConnection]] = {}
        bodies: dict[int, dict[int, int]] = {}
        for connection in self.connections:
            if unsent := connection.bodies():
                response = id(unsent[-1])
                senders.setdefault(response, []).append(connection)
                bodies.setdefault(response, {}).update((id(body), len(body)) for body in unsent)
        sizes = {response: sum(each.values()) for response, each in bodies.items()}
        ranks = {
            response: max(sender.rank(now) for sender in connections)
            for response, connections in senders.items()
        }
        for response in sorted(ranks, key=ranks.__getitem__):
            if sum(sizes.values()) - max(sizes.values()) <= MAX_UNSENT:
                return
            for connection in senders[response]:
                connection.drop()
            del sizes[response]
