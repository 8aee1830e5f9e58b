"""Suggestions for a mistyped name: the listed widgets with the most similar names."""

import json
import re
import sqlite3
from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

from ...domain.documents import Json
from ...domain.folding import fold
from ..connection.sqlite import Connection, fetch_all, fetch_one

MAX_SUGGESTIONS = 5
# If a text is longer than this, only its beginning is compared.
MAX_COMPARED_LENGTH = 40
# The number of widgets to compare, most installed first: in the same scope, and in all others.
MAX_COMPARED_IN_SCOPE = 200
MAX_COMPARED = 1_000
# Names with a SequenceMatcher ratio below this are not similar.
MIN_SIMILARITY = 0.65
SAME_SCOPE_BONUS = 0.1

SEPARATORS = re.compile(r"[-_.\s\0]+")


class Suggestion(NamedTuple):
    """A listed widget with a similar name."""

    scope: str
    name: str
    display_name: str


# The result is one JSON text: one row for each widget would take longer.
MOST_INSTALLED = """
SELECT json_group_array(json_array(widget_id, scope, name, folded_name)) FROM (
    SELECT * FROM (
        SELECT widget_id, scope, name, folded_name FROM listing WHERE scope = :scope
        ORDER BY downloads DESC, name LIMIT :max_compared_in_scope)
    UNION ALL
    SELECT * FROM (
        SELECT widget_id, scope, name, folded_name FROM listing WHERE +scope <> :scope
        ORDER BY downloads DESC, scope, name LIMIT :max_compared))
"""
NAMES = """
SELECT listing.scope, listing.name, display_name FROM json_each(:ids) AS found
JOIN listing ON widget_id = found.value JOIN widget ON widget.id = widget_id
ORDER BY found.key
"""


def suggest_widgets(
    connection: Connection, name: str, *, scope: str = "", limit: int = MAX_SUGGESTIONS
) -> list[Suggestion]:
    """Return the widgets with the most similar name or display name, the most similar first."""
    # SequenceMatcher caches its analysis of the second text, so the name is the second one.
    matcher = SequenceMatcher(None, "", _words(name), autojunk=False)
    bounds = {"max_compared_in_scope": MAX_COMPARED_IN_SCOPE, "max_compared": MAX_COMPARED}
    (text,) = fetch_one(connection, MOST_INSTALLED, {"scope": scope, **bounds})
    similar = []
    for widget_id, its_scope, its_name, folded_name in json.loads(text):
        connection.check_deadline()
        similarity = max(_similarity(matcher, each) for each in {_words(its_name), folded_name})
        if similarity >= MIN_SIMILARITY:
            bonus = SAME_SCOPE_BONUS if its_scope == scope else 0
            similar.append((-similarity - bonus, its_scope, its_name, widget_id))
    ids = json.dumps([widget_id for *_, widget_id in sorted(similar)[:limit]])
    return [Suggestion(*row) for row in fetch_all(connection, NAMES, {"ids": ids})]


def _words(name: str) -> str:
    return SEPARATORS.sub(" ", fold(name[:MAX_COMPARED_LENGTH])).strip()


def _similarity(matcher: SequenceMatcher[str], text: str) -> float:
    """Return how similar the texts are; 0 if a quick upper bound is already too low."""
    matcher.set_seq1(text[:MAX_COMPARED_LENGTH])
    if matcher.real_quick_ratio() < MIN_SIMILARITY or matcher.quick_ratio() < MIN_SIMILARITY:
        return 0
    return matcher.ratio()


def did_you_mean(connection: Connection, scope: str, name: str) -> str:
    """Return a "did you mean" question; empty if no name is similar."""
    near = suggest_widgets(connection, name, scope=scope, limit=1)
    return "".join(f" Did you mean {each.scope}/{each.name}?" for each in near)


INDEX = """
CREATE TABLE widget (id INTEGER PRIMARY KEY, display_name);
CREATE TABLE listing (widget_id INTEGER PRIMARY KEY, scope, name, folded_name, downloads);
"""


def index_names(widgets: Iterable[Json]) -> Connection:
    """Return an in-memory database of these search results, for suggest_widgets()."""
    connection = sqlite3.connect(":memory:", factory=Connection)
    connection.executescript(INDEX)
    for number, each in enumerate(widgets):
        name = each["displayName"]
        connection.execute("INSERT INTO widget VALUES (?, ?)", (number, name))
        values = (number, each["scope"], each["name"], fold(name), each["downloadCount"] or 0)
        connection.execute("INSERT INTO listing VALUES (?, ?, ?, ?, ?)", values)
    return connection
