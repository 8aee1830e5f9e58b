"""The summaries of search results, put together of parts that are kept from search to search.

Most searches show widgets that others have shown before. To find which ones is quick; to look up
and write out their latest versions anew would take as long again.
"""

import json
from collections.abc import Callable, Sequence
from sys import intern
from typing import Any, NamedTuple

from catalog.resources import LATEST_ENTRY, OFFERED_NEWEST_FIRST, VERSION_ENTRY, WIDGET_FIELDS
from catalog.semver_ranges import satisfies
from catalog.shelf import Shelf
from catalog.sqlite_file import Connection

OVERHEAD = 300  # bytes that Python takes for the id and the place of a part


class ChangedError(Exception):
    """The catalog was changed between two statements that have to see the same."""


class Part(NamedTuple):
    """What is kept of each widget."""

    sql: str  # reads it, for the ids
    keep: Callable[..., Any]  # makes of the columns what is kept
    weight: int  # bytes that it takes in memory, for each that is read


# All of a summary but the counter, which is put between the two.
SUMMARY = Part(
    f"""
SELECT content, widget.id,
       CAST(rtrim(json_object({WIDGET_FIELDS}), '}}') || ',"downloadCount":' AS BLOB),
       CAST({LATEST_ENTRY} AS BLOB)
FROM revision CROSS JOIN json_each(:ids) CROSS JOIN widget ON widget.id = json_each.value
""",
    keep=lambda fields, latest: (fields, latest),
    weight=1,
)

# The ids of the versions that are offered, newest first, and the SDKs that each was built for.
OFFERS = Part(
    f"""
SELECT content, widget.id, (
    SELECT json_array(json_group_array(id), json_group_array(sdk_version))
    FROM (SELECT id, sdk_version {OFFERED_NEWEST_FIRST}))
FROM revision CROSS JOIN json_each(:ids) CROSS JOIN widget ON widget.id = json_each.value
""",
    keep=lambda text: _offers(*json.loads(text)),
    weight=4,
)

# Of these there are too many to keep.
ENTRIES = f"""
SELECT content, version.id, CAST({VERSION_ENTRY} AS BLOB)
FROM revision CROSS JOIN json_each(:ids) CROSS JOIN version ON version.id = json_each.value
JOIN widget ON widget.id = version.widget_id
"""


def _offers(ids: list[int], ranges: list[str]) -> tuple[list[str], list[str]]:
    return [str(number) for number in ids], [intern(each) for each in ranges]  # which are few


class Summaries(NamedTuple):
    """The way to the summaries of one revision; raises ChangedError where it is no longer that."""

    connection: Connection
    shelf: Shelf
    content: int

    def texts(
        self, ids: Sequence[str], counts: Sequence[str], compat_sdk: str | None
    ) -> list[bytes]:
        """The JSON of the widgets with these ids, in pieces, with commas between."""
        parts = self._read(SUMMARY, ids)
        ends: Sequence[Sequence[bytes]] = [(b"}", b",")] * len(ids)
        if compat_sdk is not None:
            compatible = self._compatible(compat_sdk, ids, [latest for _, latest in parts])
            ends = [(b',"latestCompatibleVersion":', entry, b"}", b",") for entry in compatible]
        pieces: list[bytes] = []
        for (fields, latest), count, end in zip(parts, counts, ends, strict=True):
            installs = b"null" if count == "-1" else count.encode()
            pieces += (fields, installs, b',"latestVersion":', latest, *end)
        return pieces[:-1]

    def _compatible(self, sdk: str, ids: Sequence[str], latest: Sequence[bytes]) -> list[bytes]:
        """The newest version of each widget that runs with the SDK, or null."""
        entries: dict[str | None, bytes] = {None: b"null"}
        chosen = []
        for (numbers, ranges), newest in zip(self._read(OFFERS, ids), latest, strict=True):
            fitting = first_fitting(sdk, ranges)
            if fitting == 0:  # most often, and its text is at hand
                entries[numbers[0]] = newest
            chosen.append(None if fitting is None else numbers[fitting])
        others = [number for number in chosen if number and number not in entries]
        entries.update(self._rows(ENTRIES, others))
        return [entries[number] for number in chosen]

    def _read(self, part: Part, ids: Sequence[str]) -> list[Any]:
        """The part of each widget: as it is kept, else read now."""
        revision = self.connection.generation, self.content
        kept = self.shelf.things(revision, part.sql)
        found = {each: kept.get(each) for each in ids}
        missing = [each for each, value in found.items() if value is None]
        for number, *columns in self._rows(part.sql, missing):
            found[number] = kept[number] = part.keep(*columns)
            self.shelf.count(sum(map(len, columns)) * part.weight + OVERHEAD)
        return list(found.values())

    def _rows(self, sql: str, ids: Sequence[str]) -> list[Any]:
        """What the statement tells of the ids, after the id."""
        if not ids:
            return []
        rows = self.connection.execute(sql, {"ids": f"[{','.join(ids)}]"}).fetchall()
        if not rows or rows[0]["content"] != self.content:
            raise ChangedError
        return [(str(number), *columns) for _, number, *columns in rows]


def first_fitting(sdk: str, ranges: Sequence[str]) -> int | None:
    """The place of the first range that admits the SDK."""
    for place, needed in enumerate(ranges):
        if satisfies(sdk, needed):
            return place
    return None
