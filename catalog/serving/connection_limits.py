"""Limits that connections share, and which connection is closed when a limit is exceeded.

A new connection is accepted first; then others are closed until the limits hold. The connection
that has been idle longest is closed first, then the one whose request or response has made no
progress for the longest time. A connection whose request is being handled is never closed in favour
of another one. All tables are kept up to date as connections change, so no operation gets slower
when there are more connections.
"""

from collections import Counter, OrderedDict, defaultdict

from ..domain.client_addresses import TrustedProxies
from .connections import Connection, Phase

# The maximum number of connections that are accepted in one turn of the event loop.
MAX_ACCEPTS = 64
# The limit on unsent bodies in memory, not counting the largest response.
MAX_UNSENT = 64 * 1024 * 1024  # bytes

IDLE_PHASES = (Phase.IDLE, Phase.DISCARDING)
ACTIVE_PHASES = (Phase.RECEIVING, Phase.SENDING)


class Group:
    """All connections or one client's connections, and the limit on how many there may be."""

    def __init__(self, maximum: int) -> None:
        self.maximum, self.size = maximum, 0
        # The connections that may be closed; the first one has made no progress for the longest
        # time.
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        self.active: OrderedDict[Connection, None] = OrderedDict()

    @property
    def handled(self) -> int:
        """The number of connections whose requests are being handled."""
        return self.size - len(self.idle) - len(self.active)

    def place(self, connection: Connection) -> None:
        """Move a connection to the end of its phase's table."""
        self.idle.pop(connection, None)
        self.active.pop(connection, None)
        if connection.phase in IDLE_PHASES:
            self.idle[connection] = None
        elif connection.phase in ACTIVE_PHASES:
            self.active[connection] = None

    def find_surplus(self) -> Connection | None:
        """Return the connection to close if the group has too many connections."""
        if self.size <= self.maximum:
            return None
        return next(iter(self.idle or self.active), None)


class ConnectionLimits:
    """The limits on the number of connections, in total and per client, and on their memory."""

    def __init__(self, maximum: int, per_client: int, proxies: TrustedProxies) -> None:
        self.all = Group(maximum)
        # The number of connections that were closed at once because all the client's other
        # connections had requests in progress.
        self.refused = 0
        self._proxies = proxies
        per_client = per_client or maximum + MAX_ACCEPTS
        self._clients: defaultdict[str, Group] = defaultdict(lambda: Group(per_client))
        self._groups: dict[Connection, list[Group]] = {}
        self._unsent = UnsentBodies()

    def connections(self) -> list[Connection]:
        """Return the open connections."""
        return list(self._groups)

    def room(self, *, has_unread: bool = False) -> int:
        """Return how many connections may be accepted if others are closed to make room.

        If some requests have arrived but are still unread, only idle connections may be closed.
        """
        busy = self.all.size - len(self.all.idle) if has_unread else self.all.handled
        return min(self.all.maximum - busy, MAX_ACCEPTS)

    def add(self, connection: Connection) -> None:
        """Count a new connection, and close connections that exceed the limits."""
        self._groups[connection] = groups = [self.all]
        address = connection.address[0]
        # Proxies are exempt from the limit per client. So are Unix sockets, because their clients
        # cannot be told apart.
        if address and not self._proxies.include(address):
            groups.append(self._clients[connection.client])
        for group in groups[::-1]:
            group.size += 1
            group.place(connection)
            while (surplus := group.find_surplus()) is not None:
                self.refused += surplus is connection
                self._close(surplus)

    def _close(self, connection: Connection) -> None:
        connection.drop()
        self.update(connection)

    def update(self, connection: Connection) -> None:
        """Update the tables after a connection has entered another phase."""
        phase = connection.phase
        # A connection that was closed in favour of another one is no longer in the table.
        groups = self._groups.get(connection, ())
        for group in groups:
            group.place(connection)
        if phase == Phase.SENDING:
            self._unsent.add(connection)
            while (largest := self._unsent.find_surplus()) is not None:
                self._close(largest)
        else:
            self._unsent.remove(connection)
        if phase == Phase.CLOSED and groups:
            del self._groups[connection]
            for group in groups:
                group.size -= 1
            if not groups[-1].size:
                self._clients.pop(connection.client, None)


class UnsentBodies:
    """The bodies in memory that connections are sending; a shared body counts once."""

    def __init__(self) -> None:
        self._bodies: dict[Connection, list[bytes]] = {}
        # How many connections are sending each body, by the body's id.
        self._senders: Counter[int] = Counter()
        self._size = 0

    def add(self, connection: Connection) -> None:
        """Count the bodies of a connection that has begun to send a response."""
        if connection not in self._bodies:
            self._bodies[connection] = bodies = connection.sender.bodies()
            for body in bodies:
                self._size += 0 if self._senders[id(body)] else len(body)
                self._senders[id(body)] += 1

    def remove(self, connection: Connection) -> None:
        """Stop counting the bodies of a connection that has finished sending them."""
        for body in self._bodies.pop(connection, ()):
            self._senders[id(body)] -= 1
            if not self._senders[id(body)]:
                del self._senders[id(body)]
                self._size -= len(body)

    def find_surplus(self) -> Connection | None:
        """Return the connection with the largest response if the bodies take too much memory.

        The largest response does not count towards the limit, so that even a response above the
        limit can be sent.
        """
        if self._size <= MAX_UNSENT:
            return None
        sizes = {each: sum(map(len, bodies)) for each, bodies in self._bodies.items()}
        largest = max(sizes, key=sizes.__getitem__)
        return largest if self._size - sizes[largest] > MAX_UNSENT else None
