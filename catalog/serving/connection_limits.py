"""Limits that connections share, and which connection is closed when one is reached.

The connection that makes the least progress is closed. A connection whose request is being handled
is never closed, nor one that was accepted in the current turn of the event loop.
"""

import heapq
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Protocol

RANKING_LIFETIME = 1  # seconds
# How many connections are accepted in one turn of the event loop.
MAX_ACCEPTS = 64
# The limit of unsent bodies in memory, besides the largest of them.
MAX_UNSENT = 64 * 1024 * 1024  # bytes
# The sum of unsent bodies is computed each time that this much was added.
UNSENT_STEP = 8 * 1024 * 1024  # bytes

# Whether a request or a response is in transfer, the deadline of the current phase, and the bytes
# that the client acknowledged. The connection with the lowest rank is closed first.
Rank = tuple[bool, float, int]


class ClientConnection(Protocol):
    """What this module needs of a connection."""

    addr: tuple[str, int]

    def rank(self, now: float) -> Rank | None:
        """Return its place in the order of closing; None while it must not be closed."""

    def drop(self) -> None:
        """Close the connection."""

    def bodies(self) -> list[bytes]:
        """Return the bodies in memory that are not sent completely."""


class ConnectionGroup:
    """Connections under one limit: those of one client, or all of them."""

    def __init__(self) -> None:
        self.members: set[ClientConnection] = set()
        # True while no member may be closed.
        self.all_busy = False
        # A heap of members by rank. It is built once for many new connections, so that a flood of
        # them costs little each.
        self._ranking: list[tuple[Rank, int, ClientConnection]] = []
        self._ranked_at = -math.inf
        # Members to be added to the ranking. Other threads append to it.
        self._unranked: deque[ClientConnection] = deque()

    def request_done(self, member: ClientConnection) -> None:
        """Note that the member may be closed again. Any thread may call this."""
        if time.monotonic() < self._ranked_at + RANKING_LIFETIME:
            self._unranked.append(member)
        self.all_busy = False

    def close_one(self, now: float) -> bool:
        """Close the member that makes the least progress; return False if none may be closed."""
        if self.all_busy:
            return False
        if now < self._ranked_at + RANKING_LIFETIME and self._close_next(now):
            return True
        # Set it before the ranking: request_done() in another thread may reset it in between.
        self.all_busy = True
        self._unranked.clear()
        self._ranking.clear()
        self._ranked_at = now
        self._unranked.extend(self.members)
        if self._close_next(now):
            self.all_busy = False
            return True
        return False

    def _close_next(self, now: float) -> bool:
        while self._unranked:
            self._rank(self._unranked.popleft(), now)
        while self._ranking:
            rank, _, member = heapq.heappop(self._ranking)
            current_rank = self._rank(member, now)
            # A member that made progress since has been put back with its current rank.
            if current_rank is not None and current_rank <= rank:
                member.drop()
                return True
        return False

    def _rank(self, member: ClientConnection, now: float) -> Rank | None:
        rank = member.rank(now) if member in self.members else None
        if rank is not None:
            heapq.heappush(self._ranking, (rank, id(member), member))
        return rank


class ConnectionLimits:
    """All connections, in total and by client, and the limits of their number and memory."""

    def __init__(self, per_client: int, exempt: Sequence[IPv4Network | IPv6Network]) -> None:
        self.all_connections = ConnectionGroup()
        # Accepted in this turn of the event loop: what they have sent has not been read yet.
        self.new_connections: set[ClientConnection] = set()
        # Roughly how many bytes of bodies were added since the sum was computed.
        self.unsent_since_check = 0
        # Connections that were closed at once: all others of the client were being processed.
        self.refused = 0
        # A client must not reach its limit with new connections alone: these may not be closed.
        self.accepts_per_turn = min(MAX_ACCEPTS, per_client or MAX_ACCEPTS)
        self._per_client = per_client
        self._exempt = exempt
        self._clients: dict[str, ConnectionGroup] = {}
        self._client_of = lru_cache(1000)(self._find_client)

    def add(self, connection: ClientConnection) -> None:
        """Count the connection."""
        client = self._client_of(connection.addr[0])
        if client is not None:
            self._clients.setdefault(client, ConnectionGroup())
        for group in self._groups(connection):
            group.members.add(connection)
        self.new_connections.add(connection)

    def remove(self, connection: ClientConnection) -> None:
        """Stop counting the connection, which is closed."""
        for group in self._groups(connection):
            group.members.discard(connection)
        self.new_connections.discard(connection)
        client = self._client_of(connection.addr[0]) or ""
        client_group = self._clients.get(client)
        if client_group is not None and not client_group.members:
            self._clients.pop(client, None)

    def admits(self, address: str, now: float) -> bool:
        """Return whether the client may connect once more; may close another of its connections."""
        group = self._clients.get(self._client_of(address) or "")
        return group is None or len(group.members) < self._per_client or group.close_one(now)

    def begin_turn(self) -> None:
        """Let the connections of the last turn be closed: what they had sent has been read."""
        for connection in list(self.new_connections):
            self.request_done(connection)
        self.new_connections.clear()

    def request_done(self, connection: ClientConnection) -> bool:
        """Note that the connection may be closed again; return whether none could be before."""
        was_busy = self.all_connections.all_busy
        for group in self._groups(connection):
            group.request_done(connection)
        return was_busy

    def bound_unsent(self, now: float) -> None:
        """Close connections until the unsent bodies fit into MAX_UNSENT.

        A body is freed with the last connection that sends it. So the first to go is the response
        whose fastest client makes the least progress, with all its connections. The largest
        response does not count: otherwise one above the limit could never be sent.
        """
        self.unsent_since_check = 0
        # A response may consist of several bodies, and its clients have sent different numbers of
        # them. So the id of its last body identifies it.
        senders: dict[int, list[ClientConnection]] = {}
        body_sizes: dict[int, dict[int, int]] = {}
        for connection in list(self.all_connections.members):
            if unsent := connection.bodies():
                response = id(unsent[-1])
                senders.setdefault(response, []).append(connection)
                body_sizes.setdefault(response, {}).update((id(body), len(body)) for body in unsent)
        sizes = {response: sum(bodies.values()) for response, bodies in body_sizes.items()}
        if not _is_over(sizes):
            return
        ranks = {
            response: max(sender.rank(now) or (True, math.inf, 0) for sender in connections)
            for response, connections in senders.items()
        }
        for response in sorted(ranks, key=ranks.__getitem__):
            if not _is_over(sizes):
                return
            if ranks[response][1] == math.inf:
                # The other requests are being handled: check again in the next turn.
                self.unsent_since_check = UNSENT_STEP
                return
            for connection in self.all_connections.members.intersection(senders[response]):
                connection.drop()
            del sizes[response]

    def _groups(self, connection: ClientConnection) -> Iterator[ConnectionGroup]:
        yield self.all_connections
        client = self._clients.get(self._client_of(connection.addr[0]) or "")
        if client is not None:
            yield client

    def _find_client(self, address: str) -> str | None:
        """Return the client that an address belongs to; None if its connections have no limit."""
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            # A Unix domain socket.
            return None
        if not self._per_client or any(ip in network for network in self._exempt):
            return None
        # An IPv6 client usually has a whole /64 to choose its addresses from.
        return str(ip_network((ip, 64 if ip.version == 6 else 32), strict=False))


def _is_over(sizes: dict[int, int]) -> bool:
    """Return whether the sizes, without the largest, exceed MAX_UNSENT."""
    return sum(sizes.values()) - max(sizes.values(), default=0) > MAX_UNSENT
