"""Derived rows for search and the change feed, which are written at the end of a transaction.

Triggers in schema.sql note the widgets that a transaction touches. REFRESH replaces these widgets'
rows in listing, listing_keyword, listing_text, summary and change, and increments the revision.
"""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ...domain.changes import TooLargeError
from ...domain.folding import fold, without_hyphens
from ...domain.sdk_intervals import sdk_intervals
from .schema import Statement

_TOUCHED = "widget_id IN (SELECT widget_id FROM touched)"
_NEXT_SEQUENCE = """
(SELECT coalesce(max(sequence), 0) FROM change) + row_number() OVER (ORDER BY widget_id)
"""
_PUT_CHANGE = """
ON CONFLICT (scope, name) DO UPDATE SET sequence = excluded.sequence, listed = excluded.listed
"""

# Records widgets that are no longer listed. Their names are still in the listing table, even if the
# widgets were deleted.
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

# A refresh spends most of its time on the full-text index, so it indexes only text that has
# changed. To remove an entry from the index, FTS5 needs the old text.
_IS_INDEXED = """
listed_text.folded_text = listing.folded_text AND listed_text.page_text = listing.page_text
"""
UNINDEX_TEXT = f"""
INSERT INTO listing_text (listing_text, rowid, folded_text, page_text)
SELECT 'delete', widget_id, folded_text, page_text FROM touched CROSS JOIN listing USING (widget_id)
WHERE NOT EXISTS (SELECT 1 FROM listed_text WHERE id = widget_id AND {_IS_INDEXED})
"""
INDEX_TEXT = f"""
INSERT INTO listing_text (rowid, folded_text, page_text)
SELECT id, folded_text, page_text FROM touched CROSS JOIN listed_text ON id = widget_id
WHERE NOT EXISTS (SELECT 1 FROM listing WHERE widget_id = id AND {_IS_INDEXED})
"""

# The order matters: the first three statements compare the listing table with the widget table
# before the listing table is written.
REFRESH = (
    CHANGE_REMOVED,
    UNINDEX_TEXT,
    INDEX_TEXT,
    f"DELETE FROM listing WHERE {_TOUCHED}",
    f"DELETE FROM listing_keyword WHERE {_TOUCHED}",
    f"DELETE FROM summary WHERE {_TOUCHED}",
    f"INSERT INTO listing SELECT * FROM rendered_listing WHERE {_TOUCHED}",
    f"INSERT INTO listing_keyword SELECT * FROM rendered_keyword WHERE {_TOUCHED}",
    f"INSERT INTO summary SELECT * FROM rendered_summary WHERE {_TOUCHED}",
    CHANGE_LISTED,
    "UPDATE revision SET content = content + 1",
    "DELETE FROM touched",
)
# Earlier releases allowed larger widgets, which must not make a migration or a repair fail. For a
# negative id, the trigger that limits the size finds no widget and does nothing.
REFRESH_ANY_SIZE = (*REFRESH[:-1], "UPDATE touched SET widget_id = -widget_id", REFRESH[-1])

# Matches the error from the widget_too_large trigger, which REFRESH fires with its last statement.
TOO_LARGE = re.compile("'too large: ([0-9]+) ([0-9]+) (.+)'")


def raise_if_too_large(message: str) -> None:
    """Raise TooLargeError if this is SQLite's error message for a widget that is too large."""
    if match := TOO_LARGE.search(message):
        # SQLite doubles the quotes in the message.
        path = match[3].replace("''", "'")
        raise TooLargeError(path, versions=int(match[1]), size=int(match[2]))


# Makes the next refresh write the derived rows of every widget.
TOUCH_ALL = "INSERT INTO touched SELECT id FROM widget WHERE true ON CONFLICT DO NOTHING"

# An upstream can replace a copy's bundle, so the stored bundle's URL contains its hash. URLs from
# an earlier release, or from its packs, lack this hash.
ADD_BUNDLE_HASHES = """
UPDATE version SET bundle_path = bundle_path || '?sha256=' || sha256_hash
WHERE instr(bundle_path, '?') = 0 AND widget_id IN (SELECT widget_id FROM mirrored)
"""

ADD_RANGES = """
INSERT INTO sdk_range (range) SELECT key FROM json_each(:ranges) WHERE true
ON CONFLICT DO NOTHING
"""
# A range's intervals never change, so existing rows stay as they are.
ADD_INTERVALS = """
INSERT INTO sdk_interval
SELECT sdk_range.id, interval.value ->> 0, interval.value ->> 1
FROM json_each(:ranges) AS given CROSS JOIN sdk_range ON range = given.key
CROSS JOIN json_each(given.value) AS interval
WHERE true ON CONFLICT DO NOTHING
"""
# Run this statement after deleting or replacing versions.
REMOVE_UNUSED_RANGES = """
DELETE FROM sdk_range WHERE NOT EXISTS (SELECT 1 FROM version WHERE sdk_version = range)
"""


def add_ranges(ranges: Iterable[str]) -> list[Statement]:
    """Return the statements that add SDK ranges; run them before adding the versions."""
    members = ",".join(map(_range_member, dict.fromkeys(ranges)))
    values = {"ranges": f"{{{members}}}"}
    return [(ADD_RANGES, values), (ADD_INTERVALS, values)]


# Most versions use one of a few ranges, so the results are cached.
@lru_cache(maxsize=256)
def _range_member(range_: str) -> str:
    return f"{json.dumps(range_)}:{json.dumps(sdk_intervals(range_))}"


def folded_columns(widget: Any) -> dict[str, str]:
    """Return the widget table's columns that contain folded text for searches."""
    name = " ".join(fold(widget["display_name"]).split())
    return {
        "folded_name": name,
        "folded_text": f"{name}\n{fold(widget['description'] or '')}",
        # Searches on pages use this form.
        "folded_path": without_hyphens(f"{widget['scope']}/{widget['name']}"),
    }


WIDGET_TEXTS = """
SELECT id, scope, name, display_name, description, folded_name, folded_text, folded_path
FROM widget
"""
SET_FOLDED = """
UPDATE widget
SET folded_name = :folded_name, folded_text = :folded_text, folded_path = :folded_path
WHERE id = :id
"""


def fold_again(widgets: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the values for SET_FOLDED for each row from WIDGET_TEXTS that would change."""
    folded = [(row, {"id": row["id"], **folded_columns(row)}) for row in widgets]
    return [new for row, new in folded if any(row[column] != new[column] for column in new)]


def folded_keywords(keywords: str | None) -> str:
    """Return a JSON list of distinct keywords in the folded form that searches on pages use."""
    folded = map(without_hyphens, json.loads(keywords or "[]"))
    return json.dumps(list(dict.fromkeys(folded)), ensure_ascii=False)
