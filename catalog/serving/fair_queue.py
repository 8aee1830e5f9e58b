"""A fair queue: each client has its own line of items, and the lines take turns."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

# The client attribute of an item determines which line the item waits in.
Item = TypeVar("Item", bound=Any)


class FairQueue(Generic[Item]):
    """A queue in which a client with many items delays other clients by only one item per turn."""

    def __init__(self) -> None:
        # The lines by client, in the order of their turns.
        self._lines: OrderedDict[str, deque[Item]] = OrderedDict()
        # The number of items. It is an attribute because every request reads it several times.
        self.length = 0

    def line(self, client: str) -> Iterable[Item]:
        """Return one client's items."""
        return self._lines.get(client, ())

    def append(self, item: Item) -> None:
        """Add the item to the end of its client's line."""
        self._lines.setdefault(item.client, deque()).append(item)
        self.length += 1

    def popleft(self) -> Item:
        """Remove and return the first item in the line whose turn it is."""
        client, line = self._lines.popitem(last=False)
        item = line.popleft()
        self.length -= 1
        if line:
            # The next turn of this client comes after the turns of all other clients.
            self._lines[client] = line
        return item
