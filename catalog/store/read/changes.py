"""Public changes to the catalog since a position, for clients that keep a copy of the catalog.

A position names a history and the number of a change in it; see the revision and change tables.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from ...domain.documents import Json
from ...domain.messages import quoted
from ...domain.semver_ranges import MAX_SAFE_INTEGER
from ..connection.sqlite import Connection, fetch_one, snapshot
from .detail import DETAIL_JSON
from .parameters import ParameterError, parse_limit

POSITION = re.compile("([0-9a-f]{16})-(0|[1-9][0-9]{0,15})")


class FeedPosition(NamedTuple):
    """The position after a change; the API calls it a token."""

    history: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.history}-{self.sequence}"

    @classmethod
    def parse(cls, value: str) -> Self:
        """Parse and return a position; raise ParameterError if it is invalid."""
        match = POSITION.fullmatch(value)
        if not match or int(match[2]) > MAX_SAFE_INTEGER:
            raise ParameterError(
                f"since must be the value of next in an earlier response, not {quoted(value)}."
            )
        return cls(match[1], int(match[2]))


class ChangesQuery(NamedTuple):
    """A parsed request; if since is None, the changes are read from the beginning."""

    since: FeedPosition | None
    limit: int


def parse_changes(parameters: Mapping[str, str]) -> ChangesQuery:
    """Return the request that the query string describes; raise ParameterError if it is invalid."""
    since = parameters.get("since")
    return ChangesQuery(FeedPosition.parse(since) if since else None, parse_limit(parameters))


class ChangesRevision(NamedTuple):
    """The state of the catalog that a page of changes shows."""

    history: str
    last_sequence: int
    # None if no change on the page has an ETag: only ETags depend on download counts.
    downloads: int | None


CHANGES_REVISION = """
SELECT history, downloads, (SELECT coalesce(max(sequence), 0) FROM change) FROM revision
"""

# Nearly all of the time is spent rendering details, so a page contains few changes. A detail can be
# several megabytes long, so only one at a time is kept in memory.
NEXT_CHANGE = f"""
SELECT sequence, scope, name, iif(change.listed, {DETAIL_JSON}, NULL)
FROM change LEFT JOIN widget USING (scope, name)
WHERE sequence > :sequence ORDER BY sequence LIMIT 1
"""


def find_changes(
    connection: Connection, query: ChangesQuery, make_etag: Callable[[bytes], str]
) -> tuple[ChangesRevision, Json] | None:
    """Return the changes after the position; None if the position belongs to another history.

    make_etag() takes a detail's JSON and returns its ETag.
    """
    with snapshot(connection):
        history, downloads, last_sequence = fetch_one(connection, CHANGES_REVISION)
        since = query.since or FeedPosition(history, 0)
        # If the file was copied or replaced, its history may be the same but contain fewer changes.
        if since.history != history or since.sequence > last_sequence:
            return None
        changes: list[Json] = []
        end = since.sequence
        while len(changes) < query.limit and end < last_sequence:
            end, scope, name, detail = fetch_one(connection, NEXT_CHANGE, {"sequence": end})
            kind, etag = ("removed", None) if detail is None else ("changed", make_etag(detail))
            changes.append({"scope": scope, "name": name, "kind": kind, "etag": etag})
            connection.check_deadline()
    has_etags = any(change["etag"] for change in changes)
    revision = ChangesRevision(history, last_sequence, downloads if has_etags else None)
    following = str(FeedPosition(history, end))
    return revision, {"changes": changes, "next": following, "more": end < last_sequence}


def revalidate_changes(connection: Connection, revision: ChangesRevision) -> ChangesRevision | None:
    """Return the revision if the page is still the same, else None."""
    history, downloads, last_sequence = fetch_one(connection, CHANGES_REVISION)
    is_same = (history, last_sequence) == revision[:2] and revision.downloads in (None, downloads)
    return revision if is_same else None
