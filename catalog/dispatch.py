"""Which thread answers a request.

The threads of a Python process take turns, and each look at the disc or the network gives a turn
away: among several threads a quick answer spends most of its time waiting to go on. So what is
quick is answered where it was read, in the server's loop. Installs, which wait for the disc, have
one thread to themselves, since only one can write at a time; the others have what is slow.
"""

import threading
from typing import TYPE_CHECKING

from waitress.task import ThreadedTaskDispatcher

from catalog.db import Database
from catalog.sqlite_file import DeadlineExceeded

if TYPE_CHECKING:
    from catalog.connections import Channel

PATIENCE = 0.025  # seconds that one answer may keep all others waiting; what it did is then lost


def is_quick(path: str) -> bool:
    """Whether the answer is JSON that SQLite writes: no page to be filled, no file to be read."""
    return path.startswith("/api/") and not path.endswith("/bundle.js")


class Dispatcher:
    """Takes the place of waitress's own: knows the loop, a thread that writes, and others."""

    def __init__(self, database: Database, threads: int) -> None:
        self._database = database
        self._loop = threading.get_ident()
        self._writer, self._others = ThreadedTaskDispatcher(), ThreadedTaskDispatcher()
        self._writer.set_thread_count(1)
        self._others.set_thread_count(threads)

    def in_loop(self) -> bool:
        """Whether this thread is the one that all connections depend on."""
        return threading.get_ident() == self._loop

    def add_task(self, channel: "Channel") -> None:
        """Have the channel's first request answered."""
        first = channel.requests[0]
        if not first.error and first.command == "POST":
            self._writer.add_task(channel)
        # Of several that a client sends at once, the first is answered in the loop.
        elif self.in_loop() and not channel.in_turn and (first.error or is_quick(first.path)):
            channel.is_next = True
        else:
            self._others.add_task(channel)

    def answer(self, channel: "Channel") -> None:
        """Answer the channel's first request here, or elsewhere if it turns out to be slow."""
        channel.is_next, channel.in_turn = False, True
        self._database.set_deadline(PATIENCE)
        try:
            channel.service()
        except DeadlineExceeded:
            self._others.add_task(channel)
        finally:
            channel.in_turn = False

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        """Stop all threads; whether none was left with something to do."""
        stopped = [each.shutdown(cancel_pending, timeout) for each in (self._writer, self._others)]
        return all(stopped)
