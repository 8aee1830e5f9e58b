"""The listed widgets whose names are nearest to one that a person mistyped.

The similarity of two texts is the share of trigrams (three characters in a row) that they have in
common: twice the common ones, divided by those of both. A space before and after the text makes its
first and last letters count too. Of a widget, its name and its display name are compared together,
and the shorter one counts as its length.
"""

import re
import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ...documents import Json
from ...text import fold
from ..connection.sqlite import Connection

MAX_SUGGESTIONS = 5
# Longer texts are compared by their beginning.
MAX_COMPARED_TRIGRAMS = 16
# The most installed widgets are compared, of the scope and of all others: about 20 ms.
MAX_COMPARED_IN_SCOPE = 1_000
MAX_COMPARED = 5_000
# Less is not similar.
MIN_SIMILARITY = 0.3
SAME_SCOPE_BONUS = 0.1

SEPARATORS = re.compile(r"[-_.\s\0]+")


class Suggestion(NamedTuple):
    """A listed widget."""

    scope: str
    name: str
    display_name: str


# MATERIALIZED, so that the text is concatenated once and not for each trigram.
SIMILAR_WIDGETS = """
WITH names AS MATERIALIZED (
    SELECT widget_id, scope, name, min(length(folded_name), length(name)) AS length,
        ' ' || folded_name || ' '
            || replace(replace(lower(name), '-', ' '), '_', ' ') || ' ' AS text
    FROM (
        SELECT * FROM (
            SELECT widget_id, scope, name, folded_name FROM listing WHERE scope = :scope
            ORDER BY downloads DESC, name LIMIT :max_compared_in_scope)
        UNION ALL
        SELECT * FROM (
            SELECT widget_id, scope, name, folded_name FROM listing WHERE +scope <> :scope
            ORDER BY downloads DESC, scope, name LIMIT :max_compared)
    )
),
similar AS (
    SELECT widget_id, scope, name, 2.0 * ({common}) / (:trigrams + length) AS similarity FROM names
)
SELECT similar.scope, similar.name, display_name
FROM similar CROSS JOIN widget ON widget.id = widget_id
WHERE similarity >= :min_similarity
ORDER BY similarity + :bonus * (similar.scope = :scope) DESC, similar.scope, similar.name
LIMIT :limit
"""


def suggest_widgets(
    connection: Connection, name: str, *, scope: str = "", limit: int = MAX_SUGGESTIONS
) -> list[Suggestion]:
    """Return the widgets with the most similar name or display name, the most similar first."""
    text = SEPARATORS.sub(" ", f" {fold(name)} ")
    starts = range(min(len(text) - 2, MAX_COMPARED_TRIGRAMS))
    trigrams = list(dict.fromkeys(text[start : start + 3] for start in starts))
    if not trigrams:
        return []
    values: dict[str, object] = {f"trigram{n}": each for n, each in enumerate(trigrams)}
    values |= {
        "trigrams": len(trigrams),
        "scope": scope,
        "bonus": SAME_SCOPE_BONUS,
        "min_similarity": MIN_SIMILARITY,
        "max_compared_in_scope": MAX_COMPARED_IN_SCOPE,
        "max_compared": MAX_COMPARED,
        "limit": limit,
    }
    rows = connection.execute(_build_statement(len(trigrams)), values)
    return [Suggestion(*row) for row in rows]


@lru_cache(maxsize=MAX_COMPARED_TRIGRAMS)
def _build_statement(trigrams: int) -> str:
    """Return the statement that compares this number of trigrams."""
    common = " + ".join(f"(instr(text, :trigram{number}) > 0)" for number in range(trigrams))
    return SIMILAR_WIDGETS.format(common=common)


def did_you_mean(connection: Connection, scope: str, name: str) -> str:
    """Return a question with the widget that may be meant, empty if no name is similar."""
    near = suggest_widgets(connection, name, scope=scope, limit=1)
    return "".join(f" Did you mean {each.scope}/{each.name}?" for each in near)


INDEX = """
CREATE TABLE widget (id INTEGER PRIMARY KEY, display_name);
CREATE TABLE listing (widget_id INTEGER PRIMARY KEY, scope, name, folded_name, downloads);
"""


def index_names(widgets: Iterable[Json]) -> Connection:
    """Return a database in memory with what suggest_widgets() reads of these search results."""
    connection = sqlite3.connect(":memory:", factory=Connection)
    connection.executescript(INDEX)
    for number, each in enumerate(widgets):
        name = each["displayName"]
        connection.execute("INSERT INTO widget VALUES (?, ?)", (number, name))
        values = (number, each["scope"], each["name"], fold(name), each["downloadCount"] or 0)
        connection.execute("INSERT INTO listing VALUES (?, ?, ?, ?, ?)", values)
    return connection
