"""The listed widgets whose names are nearest to one that a person mistyped.

A statement ranks the names by the trigrams that they share with the text, with a space before and
after it, so that its beginning and end count. Of the best ones, difflib decides.
"""

from difflib import SequenceMatcher
from typing import NamedTuple

from catalog.store.sqlite import Connection

# Longer names are compared by their beginning.
MAX_LENGTH = 60  # characters
MAX_TRIGRAMS = 16
# The most installed widgets are compared, of the scope and of the whole catalog: up to 30 ms.
MAX_SCANNED_IN_SCOPE = 1_000
MAX_SCANNED = 4_000
MAX_COMPARED = 50
# From 0 to 1, as SequenceMatcher.ratio() returns it.
MIN_SIMILARITY = 0.6
SAME_SCOPE_BONUS = 0.1


class Suggestion(NamedTuple):
    """A listed widget."""

    scope: str
    name: str
    display_name: str


_SHARED = " + ".join(f"(instr(padded, :trigram{number}) > 0)" for number in range(MAX_TRIGRAMS))
# The indexes have all that is compared. MATERIALIZED, so that nothing is computed twice.
NEAREST_NAMES = f"""
WITH candidate AS MATERIALIZED (
    SELECT scope, name, ' ' || lower(name) || ' ' AS padded FROM (
        SELECT * FROM (
            SELECT scope, name FROM listing INDEXED BY listing_order_in_scope
            WHERE scope = :scope ORDER BY downloads DESC, name LIMIT :max_scanned_in_scope)
        UNION
        SELECT * FROM (
            SELECT scope, name FROM listing INDEXED BY listing_order
            ORDER BY downloads DESC, scope, name LIMIT :max_scanned))
),
ranked AS MATERIALIZED (SELECT scope, name, {_SHARED} AS shared FROM candidate),
nearest AS MATERIALIZED (
    SELECT scope, name FROM ranked WHERE shared >= :min_shared
    ORDER BY shared DESC, length(name), scope, name LIMIT :max_compared
)
SELECT nearest.scope, nearest.name, display_name
FROM nearest CROSS JOIN widget ON widget.scope = nearest.scope AND widget.name = nearest.name
"""


def suggest_widgets(
    connection: Connection, name: str, *, scope: str = "", limit: int = 5
) -> list[Suggestion]:
    """Return the widgets whose names are similar to this one, the most similar first."""
    target = name.strip().lower()[:MAX_LENGTH]
    text = f" {target} "
    trigrams = list(dict.fromkeys(text[start : start + 3] for start in range(len(text) - 2)))
    values: dict[str, object] = {
        "scope": scope,
        "max_scanned_in_scope": MAX_SCANNED_IN_SCOPE,
        "max_scanned": MAX_SCANNED,
        "max_compared": MAX_COMPARED,
        # Less than a quarter is no similar name.
        "min_shared": max(len(trigrams) // 4, 1),
    }
    for number in range(MAX_TRIGRAMS):
        # No name contains a NUL.
        values[f"trigram{number}"] = trigrams[number] if number < len(trigrams) else "\0"
    found = [Suggestion(*row) for row in connection.execute(NEAREST_NAMES, values)]
    similarities = {each: _similarity(each, target, scope) for each in found}
    near = [each for each in found if similarities[each] >= MIN_SIMILARITY]
    # Widgets that are equally similar stay in the order of the statement.
    return sorted(near, key=lambda each: -similarities[each])[:limit]


def _similarity(suggestion: Suggestion, target: str, scope: str) -> float:
    name = suggestion.name.lower()[:MAX_LENGTH]
    bonus = SAME_SCOPE_BONUS if suggestion.scope == scope else 0
    return SequenceMatcher(None, target, name).ratio() + bonus
