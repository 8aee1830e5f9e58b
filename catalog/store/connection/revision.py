"""The revision of the catalog: two counters that tell whether a response is still current."""

import sqlite3
from typing import NamedTuple

from .sqlite import fetch_one

SELECT_REVISION = "SELECT content, downloads FROM revision"


class Revision(NamedTuple):
    """The catalog's revision, as stored in the revision table; both counters only grow."""

    # Counts the transactions that changed the content of responses.
    content: int
    # Counts the installs.
    downloads: int

    def has_reached(self, other: "Revision") -> bool:
        """Return whether this revision is at least as new as the other one."""
        return self.content >= other.content and self.downloads >= other.downloads


def read_revision(connection: sqlite3.Connection) -> Revision:
    """Return the revision that the connection sees."""
    return Revision(*fetch_one(connection, SELECT_REVISION))
