"""A queue that is fair by client: one line for each of them, served in turn."""

from collections import OrderedDict, deque
from typing import Any, Generic, TypeVar

# It has the attribute client: in whose line it waits.
Item = TypeVar("Item", bound=Any)


class FairQueue(Generic[Item]):
    """A client with many items waits for itself: every other one waits for one of them at most."""

    def __init__(self) -> None:
        # By client, in the order in which they are served.
        self._lines: OrderedDict[str, deque[Item]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, item: Item) -> None:
        """Add the item at the end of the line of its client."""
        self._lines.setdefault(item.client, deque()).append(item)
        self._length += 1

    def popleft(self) -> Item:
        """Take the first item of the client that waits longest for its turn."""
        client, line = self._lines.popitem(last=False)
        item = line.popleft()
        self._length -= 1
        if line:
            # Its next turn is after those of all others.
            self._lines[client] = line
        return item
