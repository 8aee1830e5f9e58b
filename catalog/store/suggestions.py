"""Suggestions for a search that found nothing: the listed widgets with the most similar names.

The similarity of two texts is the share of trigrams (three characters in a row) that they have in
common: twice the common ones, divided by those of both. A space before and after the text makes
its first and last letters count too.
"""

from functools import lru_cache
from typing import NamedTuple

from catalog.store.sqlite import Connection
from catalog.text import fold

MAX_SUGGESTIONS = 5
# Less is not similar.
MIN_SIMILARITY = 0.3
# A statement compares at most so many trigrams, about those of three words.
MAX_TRIGRAMS = 16


class Suggestion(NamedTuple):
    """A listed widget with a similar name."""

    scope: str
    name: str
    display_name: str


# The index listing_name contains all that is compared. The best of the two names counts.
SIMILAR_WIDGETS = """
WITH texts AS MATERIALIZED (
    SELECT widget_id, scope, name, ' ' || folded_name || ' ' AS title,
           ' ' || replace(lower(name), '-', ' ') || ' ' AS slug
    FROM listing INDEXED BY listing_name
),
similar AS (
    SELECT widget_id, scope, name, max(
        2.0 * ({common_in_title}) / (:trigrams + length(title) - 2),
        2.0 * ({common_in_slug}) / (:trigrams + length(slug) - 2)) AS similarity
    FROM texts
)
SELECT similar.scope, similar.name, display_name
FROM similar CROSS JOIN widget ON widget.id = widget_id
WHERE similarity >= :min_similarity
ORDER BY similarity DESC, similar.scope, similar.name LIMIT :limit
"""


def suggest_widgets(connection: Connection, q: str) -> list[Suggestion]:
    """Return the listed widgets whose names are most similar to the text."""
    # Of scope/name, the name.
    text = fold(q).replace("\0", "").rpartition("/")[2].replace("-", " ")
    padded = f" {' '.join(text.split())} "
    trigrams = list(dict.fromkeys(padded[at : at + 3] for at in range(len(padded) - 2)))
    trigrams = trigrams[:MAX_TRIGRAMS]
    if not text.strip():
        return []
    values: dict[str, object] = {f"trigram{n}": each for n, each in enumerate(trigrams)}
    values |= {
        "trigrams": len(trigrams),
        "min_similarity": MIN_SIMILARITY,
        "limit": MAX_SUGGESTIONS,
    }
    rows = connection.execute(_build_statement(len(trigrams)), values)
    return [Suggestion(*row) for row in rows]


@lru_cache(maxsize=MAX_TRIGRAMS)
def _build_statement(trigrams: int) -> str:
    """Return the statement that compares this number of trigrams."""
    in_title, in_slug = (
        " + ".join(f"(instr({text}, :trigram{number}) > 0)" for number in range(trigrams))
        for text in ("title", "slug")
    )
    return SIMILAR_WIDGETS.format(common_in_title=in_title, common_in_slug=in_slug)
