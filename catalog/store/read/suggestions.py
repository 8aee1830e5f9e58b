"""Suggestions for a mistyped name: the listed widgets with the most similar names."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from ...domain.folding import fold
from ..connection.sqlite import Connection, fetch_one

MAX_SUGGESTIONS = 5
# If a name is longer than this, only its beginning is compared.
MAX_COMPARED_LENGTH = 40
# The number of widgets to compare in the same scope, and in all others; most installed first.
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


# Returns a single JSON array, because one row per widget would take longer.
MOST_INSTALLED = """
SELECT json_group_array(json_array(widget.scope, widget.name, display_name, found.folded_name))
FROM (
    SELECT * FROM (
        SELECT widget_id, folded_name FROM listing WHERE scope = :scope
        ORDER BY downloads DESC, name LIMIT :max_compared_in_scope)
    UNION ALL
    SELECT * FROM (
        SELECT widget_id, folded_name FROM listing WHERE +scope <> :scope
        ORDER BY downloads DESC, scope, name LIMIT :max_compared)
) AS found CROSS JOIN widget ON widget.id = widget_id
"""


def suggest_widgets(connection: Connection, name: str, scope: str = "") -> list[Suggestion]:
    """Return the listed widgets with the most similar names, the most similar first."""
    bounds = {"max_compared_in_scope": MAX_COMPARED_IN_SCOPE, "max_compared": MAX_COMPARED}
    (text,) = fetch_one(connection, MOST_INSTALLED, {"scope": scope, **bounds})
    return rank_similar(json.loads(text), name, scope, connection.check_deadline)


def rank_similar(
    widgets: Iterable[tuple[str, str, str, str]],
    name: str,
    scope: str,
    check_deadline: Callable[[], None] = lambda: None,
) -> list[Suggestion]:
    """Return the widgets with the most similar name or display name, the most similar first.

    Each widget is given by its scope, name, display name and folded display name.
    """
    # SequenceMatcher caches its analysis of the second string, so the name is the second one.
    matcher = SequenceMatcher(None, "", _words(name), autojunk=False)
    similar = []
    for its_scope, its_name, display_name, folded_name in widgets:
        check_deadline()
        similarity = max(_similarity(matcher, each) for each in {_words(its_name), folded_name})
        if similarity >= MIN_SIMILARITY:
            bonus = SAME_SCOPE_BONUS if its_scope == scope else 0
            similar.append((-similarity - bonus, Suggestion(its_scope, its_name, display_name)))
    return [each for _, each in sorted(similar)[:MAX_SUGGESTIONS]]


def _words(name: str) -> str:
    return SEPARATORS.sub(" ", fold(name[:MAX_COMPARED_LENGTH])).strip()


def _similarity(matcher: SequenceMatcher[str], text: str) -> float:
    """Return how similar the strings are; 0 if a quick upper bound is already too low."""
    matcher.set_seq1(text[:MAX_COMPARED_LENGTH])
    if matcher.real_quick_ratio() < MIN_SIMILARITY or matcher.quick_ratio() < MIN_SIMILARITY:
        return 0
    return matcher.ratio()


def did_you_mean(near: Sequence[Suggestion]) -> str:
    """Return a "did you mean" question about the first suggestion; empty if there is none."""
    return "".join(f" Did you mean {each.scope}/{each.name}?" for each in near[:1])
