"""Limits that connections share, and which connection is closed when one is reached.

Connections are accepted first; then those that make the least progress are closed until the limits
hold. A connection whose request is being handled is never closed, nor one of this turn of the event
loop: what it has sent has not been read yet.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .connections import Channel
from .proxies import Proxies, client_network

# How many connections are accepted in one turn of the event loop.
MAX_ACCEPTS = 64
# The limit of unsent bodies in memory, besides the largest of them.
MAX_UNSENT = 64 * 1024 * 1024  # bytes


class ConnectionLimits:
    """The limits of the number of connections, in total and by client, and of their memory."""

    def __init__(
        self, sockets: dict[int, Any], maximum: int, per_client: int, proxies: Proxies
    ) -> None:
        self._sockets, self.maximum = sockets, maximum
        # Connections that were closed at once: all others of the client were being handled.
        self.refused = 0
        self._per_client = per_client or maximum + MAX_ACCEPTS
        self._proxies = proxies

    @property
    def connections(self) -> set[Channel]:
        """The open connections."""
        return {each for each in list(self._sockets.values()) if isinstance(each, Channel)}

    def room(self) -> int:
        """Return how many connections may be accepted in this turn of the event loop."""
        free = self.maximum - len(self._sockets)
        if free < MAX_ACCEPTS:
            # Those that are not busy can be closed.
            free = self.maximum - sum(each.task is not None for each in self.connections)
        return max(min(free, MAX_ACCEPTS), 0)

    def close_surplus(self, accepted: Sequence[Channel], now: float) -> None:
        """Close connections until the limits hold; accepted are those of this turn."""
        by_client: dict[str | None, list[Channel]] = defaultdict(list)
        for each in self.connections:
            by_client[self._client(each)].append(each)
        for client in {self._client(each) for each in accepted} - {None}:
            own = by_client[client]
            surplus = len(own) - self._per_client
            if surplus > 0:
                surplus -= self._close(set(own).difference(accepted), surplus, now)
                newest = [each for each in accepted[::-1] if self._client(each) == client]
                for each in newest[:surplus]:
                    self.refused += 1
                    each.drop()
        surplus = len(self.connections) - self.maximum
        if surplus > 0:
            self._close(self.connections.difference(accepted), surplus, now)

    def _close(self, candidates: Iterable[Channel], count: int, now: float) -> int:
        """Close this many of the connections; return how many could be closed."""
        ranks = [(each.rank(now), id(each), each) for each in candidates if not each.task]
        closed = sorted(ranks)[:count]
        for _, _, each in closed:
            each.drop()
        return len(closed)

    def _client(self, connection: Channel) -> str | None:
        """Return the client of a connection; None if its connections have no limit."""
        address = connection.addr[0]
        # The clients of a Unix socket cannot be told apart.
        if not address or self._proxies.is_trusted(address):
            return None
        return client_network(address)

    def bound_unsent(self, now: float) -> None:
        """Close connections until the unsent bodies fit into MAX_UNSENT, the slowest first.

        A body that several connections send counts once. The largest response does not count:
        otherwise one above the limit could never be sent.
        """
        unsent = {each: bodies for each in self.connections if (bodies := each.sender.bodies())}
        senders = Counter(id(body) for bodies in unsent.values() for body in bodies)
        sizes = {id(body): len(body) for bodies in unsent.values() for body in bodies}
        largest = max((sum(map(len, bodies)) for bodies in unsent.values()), default=0)
        excess = sum(sizes.values()) - largest - MAX_UNSENT
        for connection in sorted(unsent, key=lambda each: each.rank(now)) if excess > 0 else ():
            if excess <= 0:
                return
            for body in unsent[connection]:
                senders[id(body)] -= 1
                # A body is freed with the last connection that sends it.
                excess -= 0 if senders[id(body)] else len(body)
            connection.drop()
