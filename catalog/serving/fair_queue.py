"""A queue that is fair by client: one line for each of them, served in turn."""

from collections import OrderedDict
from typing import Any, Generic, TypeVar

# It has the attribute client: in whose line it waits.
Item = TypeVar("Item", bound=Any)


class FairQueue(Generic[Item]):
    """In the place of the deque of a pool, which holds a lock for each call.

    A client with many items waits for itself: every other one waits for one of them at most.
    """

    def __init__(self) -> None:
        # By client, in the order in which they are served. Each line is a dict for its order.
        self._lines: OrderedDict[str, dict[Item, None]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, item: Item) -> None:
        """Add the item at the end of the line of its client."""
        self._lines.setdefault(item.client, {})[item] = None
        self._length += 1

    def popleft(self) -> Item:
        """Take the first item of the client that waits longest for its turn."""
        client, line = self._lines.popitem(last=False)
        item = next(iter(line))
        del line[item]
        self._length -= 1
        if line:
            # Its next turn is after those of all others.
            self._lines[client] = line
        return item

    def discard(self, item: Item) -> bool:
        """Remove the item; return False if it was taken already."""
        line = self._lines.get(item.client, {})
        if item not in line:
            return False
        del line[item]
        self._length -= 1
        if not line:
            del self._lines[item.client]
        return True
