"""Limits that connections share, and which connection is closed when one is reached.

The connection that makes the least progress is closed: never the one that has just come, and never
one whose request is being worked on.
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
MAX_ACCEPTS = 64  # connections that a turn of the loop accepts
MAX_UNSENT = 64 * 1024 * 1024  # bytes of unsent bodies, besides the largest of them
UNSENT_STEP = 8 * 1024 * 1024  # bytes of further bodies after which the sum is checked again

# Whether it has something to do, its deadline for that, and the bytes that its client has taken.
# The least of all is closed first.
Rank = tuple[bool, float, int]


class Connection(Protocol):
    """What is asked of a connection here."""

    addr: tuple[str, int]

    def rank(self, now: float) -> Rank | None:
        """Its place among those that may be closed; None while it must not be."""

    def drop(self) -> None:
        """Close it."""

    def bodies(self) -> list[bytes]:
        """The bodies in memory of which it has something left to send."""


class ConnectionGroup:
    """Connections under one limit: those of one client, or all of them."""

    def __init__(self) -> None:
        self.members: set[Connection] = set()
        # True while no member may be closed.
        self.is_stuck = False
        # Members by rank, made once for many newcomers so that a flood of them costs little each.
        self._ranking: list[tuple[Rank, int, Connection]] = []
        self._ranked_at = -math.inf
        # Members that came or were answered since; other threads add to it.
        self._done: deque[Connection] = deque()

    def request_done(self, member: Connection) -> None:
        """The member may be closed again; any thread may say so."""
        if time.monotonic() < self._ranked_at + RANKING_LIFETIME:
            self._done.append(member)
        self.is_stuck = False

    def close_one(self, now: float) -> bool:
        """Close the member that makes the least progress; False if none may be closed."""
        if self.is_stuck:
            return False
        if now < self._ranked_at + RANKING_LIFETIME and self._close_next(now):
            return True
        # Before the ranking: a request that is done in the meantime must not go unnoticed.
        self.is_stuck = True
        self._done.clear()
        self._ranking.clear()
        self._ranked_at = now
        self._done.extend(self.members)
        if self._close_next(now):
            self.is_stuck = False
            return True
        return False

    def _close_next(self, now: float) -> bool:
        while self._done:
            self._rank(self._done.popleft(), now)
        while self._ranking:
            rank, _, member = heapq.heappop(self._ranking)
            now_ranked = self._rank(member, now)
            # One that has done something since gets the place that it has now.
            if now_ranked is not None and now_ranked <= rank:
                member.drop()
                return True
        return False

    def _rank(self, member: Connection, now: float) -> Rank | None:
        rank = member.rank(now) if member in self.members else None
        if rank is not None:
            heapq.heappush(self._ranking, (rank, id(member), member))
        return rank


class ConnectionLimits:
    """All connections, by client, and the limits to what they hold."""

    def __init__(self, per_client: int, exempt: Sequence[IPv4Network | IPv6Network]) -> None:
        self.everyone = ConnectionGroup()
        # Accepted in this turn of the loop: what they have sent has not been read yet.
        self.newcomers: set[Connection] = set()
        # Roughly how many bytes of bodies were added since the sum was checked.
        self.unsent_since_check = 0
        # No client may fill its limit with newcomers, which must not be closed.
        self.accepts_per_turn = min(MAX_ACCEPTS, per_client or MAX_ACCEPTS)
        self._per_client = per_client
        self._exempt = exempt
        self._clients: dict[str, ConnectionGroup] = {}
        self._client_of = lru_cache(1000)(self._find_client)

    def add(self, connection: Connection) -> None:
        client = self._client_of(connection.addr[0])
        if client is not None:
            self._clients.setdefault(client, ConnectionGroup())
        for group in self._groups(connection):
            group.members.add(connection)
        self.newcomers.add(connection)

    def remove(self, connection: Connection) -> None:
        for group in self._groups(connection):
            group.members.discard(connection)
        self.newcomers.discard(connection)
        client = self._client_of(connection.addr[0]) or ""
        own = self._clients.get(client)
        if own is not None and not own.members:
            self._clients.pop(client, None)

    def admits(self, address: str, now: float) -> bool:
        """Whether the client may have one more, if need be in place of another of its own."""
        group = self._clients.get(self._client_of(address) or "")
        return group is None or len(group.members) < self._per_client or group.close_one(now)

    def begin_turn(self) -> None:
        """What the newcomers of the last turn had sent has been read."""
        for connection in list(self.newcomers):
            self.request_done(connection)
        self.newcomers.clear()

    def request_done(self, connection: Connection) -> bool:
        """The connection may be closed again; whether a newcomer may wait for that."""
        was_stuck = self.everyone.is_stuck
        for group in self._groups(connection):
            group.request_done(connection)
        return was_stuck

    def bound_unsent(self, now: float) -> None:
        """Close connections until the bodies that wait to be sent fit into the memory for them.

        A response is freed with its last connection, so the one that goes first is the one whose
        fastest client makes the least progress, with all its connections. The largest does not
        count: otherwise a response above the limit could never be sent.
        """
        self.unsent_since_check = 0
        # By the last body of a response that is sent in several, which all its clients wait for.
        holders: dict[int, list[Connection]] = {}
        bodies: dict[int, dict[int, int]] = {}
        for connection in list(self.everyone.members):
            if own := connection.bodies():
                holders.setdefault(id(own[-1]), []).append(connection)
                bodies.setdefault(id(own[-1]), {}).update((id(each), len(each)) for each in own)
        sizes = {key: sum(response.values()) for key, response in bodies.items()}
        if not _is_over(sizes):
            return
        ranks = {
            key: max(each.rank(now) or (True, math.inf, 0) for each in connections)
            for key, connections in holders.items()
        }
        for key in sorted(ranks, key=ranks.__getitem__):
            if not _is_over(sizes):
                return
            if ranks[key][1] == math.inf:
                # The rest is being worked on: check again when that is done.
                self.unsent_since_check = UNSENT_STEP
                return
            for connection in self.everyone.members.intersection(holders[key]):
                connection.drop()
            del sizes[key]

    def _groups(self, connection: Connection) -> Iterator[ConnectionGroup]:
        yield self.everyone
        client = self._clients.get(self._client_of(connection.addr[0]) or "")
        if client is not None:
            yield client

    def _find_client(self, address: str) -> str | None:
        """The client that an address stands for; None where its connections have no limit."""
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            # A socket of the file system.
            return None
        if not self._per_client or any(ip in network for network in self._exempt):
            return None
        # A client of IPv6 usually has a whole /64 to choose its addresses from.
        return str(ip_network((ip, 64 if ip.version == 6 else 32), strict=False))


def _is_over(sizes: dict[int, int]) -> bool:
    return sum(sizes.values()) - max(sizes.values(), default=0) > MAX_UNSENT
