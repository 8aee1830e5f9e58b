"""Derived rows: what search and the feed of changes read, written at the end of a transaction.

Triggers of schema.sql note the widgets that a transaction touches. REFRESH deletes and inserts the
rows of these widgets in listing, listing_text, summary and change, and raises the revision.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache

from ...changes import TooLargeError
from ...text import fold
from .schema import Statement
from .sdk_intervals import sdk_intervals

_TOUCHED = "widget_id IN (SELECT widget_id FROM touched)"
_NEXT_SEQUENCE = """
(SELECT coalesce(max(sequence), 0) FROM change) + row_number() OVER (ORDER BY widget_id)
"""
_PUT_CHANGE = """
ON CONFLICT (scope, name) DO UPDATE SET sequence = excluded.sequence, listed = excluded.listed
"""

# Widgets that are no longer listed. Their names are in listing, even if they were deleted.
CHANGE_REMOVED = f"""
INSERT INTO change
SELECT scope, name, {_NEXT_SEQUENCE}, 0 FROM listing
WHERE {_TOUCHED} AND widget_id NOT IN (SELECT id FROM widget WHERE listed AND id = widget_id)
{_PUT_CHANGE}
"""
CHANGE_LISTED = f"""
INSERT INTO change
SELECT scope, name, {_NEXT_SEQUENCE}, 1 FROM listing WHERE {_TOUCHED} {_PUT_CHANGE}
"""

# The text index takes most of the time of a refresh, so only texts that differ are written. It must
# be told the old text to remove it.
UNINDEX_TEXT = """
INSERT INTO listing_text (listing_text, rowid, folded_text)
SELECT 'delete', widget_id, listing.folded_text
FROM touched CROSS JOIN listing USING (widget_id) LEFT JOIN widget ON id = widget_id AND listed
WHERE widget.folded_text IS NOT listing.folded_text
"""
INDEX_TEXT = """
INSERT INTO listing_text (rowid, folded_text)
SELECT id, widget.folded_text
FROM touched CROSS JOIN widget ON id = touched.widget_id LEFT JOIN listing USING (widget_id)
WHERE listed AND listing.folded_text IS NOT widget.folded_text
"""

# In this order: the first three compare listing with widget, before listing is written.
REFRESH = (
    CHANGE_REMOVED,
    UNINDEX_TEXT,
    INDEX_TEXT,
    f"DELETE FROM listing WHERE {_TOUCHED}",
    f"DELETE FROM summary WHERE {_TOUCHED}",
    f"INSERT INTO listing SELECT * FROM rendered_listing WHERE {_TOUCHED}",
    f"INSERT INTO summary SELECT * FROM rendered_summary WHERE {_TOUCHED}",
    CHANGE_LISTED,
    "UPDATE revision SET content = content + 1",
    "DELETE FROM touched",
)

# In the error of the trigger widget_too_large, which the last of these statements fires.
TOO_LARGE = re.compile("'too large: ([0-9]+) ([0-9]+) (.+)'")


def raise_if_too_large(message: str) -> None:
    """Raise TooLargeError if this is the message of SQLite's error for a widget that is."""
    if match := TOO_LARGE.search(message):
        # SQLite quotes the text.
        path = match[3].replace("''", "'")
        raise TooLargeError(path, versions=int(match[1]), size=int(match[2]))


# Makes the next refresh write the derived rows of every widget.
TOUCH_ALL = "INSERT INTO touched SELECT id FROM widget WHERE true ON CONFLICT DO NOTHING"
# After the rows of install_day were written by anything but an install.
COUNT_INSTALLS = """
UPDATE widget SET counted
    = coalesce((SELECT sum(installs) FROM install_day WHERE widget_id = widget.id), 0)
"""

ADD_RANGES = """
INSERT INTO sdk_range (range) SELECT key FROM json_each(:ranges) WHERE true
ON CONFLICT DO NOTHING
"""
# A range that exists already has the same intervals.
ADD_INTERVALS = """
INSERT INTO sdk_interval
SELECT sdk_range.id, interval.value ->> 0, interval.value ->> 1
FROM json_each(:ranges) AS given CROSS JOIN sdk_range ON range = given.key
CROSS JOIN json_each(given.value) AS interval
WHERE true ON CONFLICT DO NOTHING
"""
# After versions were deleted, or replaced.
REMOVE_UNUSED_RANGES = """
DELETE FROM sdk_range WHERE NOT EXISTS (SELECT 1 FROM version WHERE sdk_version = range)
"""


def add_ranges(ranges: Iterable[str]) -> list[Statement]:
    """Return what adds the SDK ranges of versions; they must be added before the versions."""
    members = ",".join(map(_range_member, dict.fromkeys(ranges)))
    values = {"ranges": f"{{{members}}}"}
    return [(ADD_RANGES, values), (ADD_INTERVALS, values)]


# Most versions use one of a few ranges.
@lru_cache(maxsize=256)
def _range_member(range_: str) -> str:
    return f"{json.dumps(range_)}:{json.dumps(sdk_intervals(range_))}"


def folded_columns(display_name: str, description: str | None) -> dict[str, str]:
    """Return the columns of a widget in which search finds words."""
    name = " ".join(fold(display_name).split())
    return {"folded_name": name, "folded_text": f"{name}\n{fold(description or '')}"}
