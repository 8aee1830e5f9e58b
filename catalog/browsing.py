"""What the browse page lists: the results of a search and, beside them, widgets by own name.

The API's q reads display names and descriptions only. A person also types focus-timer or
acme/weather, so the page adds the widgets whose scope/name contains what is typed and whose texts
do not. One that is named exactly so comes before the results, the others after them.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from flask import current_app

from catalog.parameters import Search, parse_search
from catalog.resources import LATEST_ENTRY, NEWEST_FIRST, WIDGET_FIELDS, Json
from catalog.search import find_widgets
from catalog.semver_ranges import satisfies
from catalog.sqlite_file import Connection


def search_page(connection: Connection, arguments: Mapping[str, str], public_url: str) -> Json:
    """The response of the API to these arguments; raises ParameterError."""
    search = parse_search(arguments, public_url)
    _, text = find_widgets(connection, search, current_app.extensions["shelf"])
    response: Json = json.loads(text)
    return response


def browse_page(connection: Connection, arguments: Mapping[str, str], public_url: str) -> Json:
    """The same with the widgets of that name among its results; raises ParameterError."""
    search = parse_search(arguments, public_url)
    own_names = _OwnNames(connection, search, arguments.get("q", ""))
    exact, named = own_names.count()
    if not named:
        return search_page(connection, arguments, public_url)
    start, end = search.offset, search.offset + search.limit
    first = max(start - exact, 0)
    results = _results(connection, arguments, public_url, first, search.limit)
    total = results["total"]
    # The exact ones are at 0 to exact, the results follow, and then the rest of the named.
    offset = start if start < exact else max(start - total, exact)
    before, after = own_names.cards(offset, max(end - total, min(end, exact)) - offset)
    widgets = [*before, *results["widgets"][: max(end - exact - first, 0)], *after]
    return {"widgets": widgets, "total": total + named, "page": search.page}


def _results(
    connection: Connection, arguments: Mapping[str, str], public_url: str, first: int, size: int
) -> Json:
    """As many results of the search as a page has, from the first on."""
    number, skipped = divmod(first, size)
    pages = [
        search_page(connection, {**arguments, "page": str(page)}, public_url)
        for page in range(number + 1, number + (3 if skipped else 2))
    ]
    widgets = [widget for page in pages for widget in page["widgets"]]
    return {"widgets": widgets[skipped : skipped + size], "total": pages[0]["total"]}


# Fewer characters are in most names; they must be all of one.
MIN_PART = 3

# Names are identifiers, not prose: they are compared as they are typed, but for ASCII case.
NAMED = """
WITH named AS (
    SELECT widget_id, downloads, scope, name,
           name = :typed COLLATE NOCASE OR scope || '/' || name = :typed COLLATE NOCASE AS is_exact
    FROM listing
    WHERE scope || '/' || name LIKE :pattern ESCAPE '!' AND NOT ({text_has_words})
        AND (:scope IS NULL OR scope = :scope)
        AND (:official IS NULL OR official = :official)
)
"""

COUNT = f"{NAMED} SELECT coalesce(sum(is_exact), 0), count(*) FROM named"

CARDS = f"""{NAMED}
SELECT is_exact, widget.id, json_object({WIDGET_FIELDS},
    'downloadCount', widget.download_count, 'latestVersion', json({LATEST_ENTRY}))
FROM (
    SELECT * FROM named
    ORDER BY is_exact DESC, downloads DESC, scope, name LIMIT :limit OFFSET :offset
) AS named CROSS JOIN widget ON widget.id = named.widget_id
ORDER BY is_exact DESC, downloads DESC, named.scope, named.name
"""

AVAILABLE_VERSIONS = f"""
SELECT version, sdk_version FROM version WHERE widget_id = :widget_id AND yanked = 0
ORDER BY {NEWEST_FIRST}
"""


class _OwnNames:
    """The widgets that are found by their own name alone."""

    def __init__(self, connection: Connection, search: Search, q: str) -> None:
        self._connection = connection
        self._sdk = search.compat_sdk
        typed = q.strip()
        # No name has a NUL in it, and LIKE would end the pattern there.
        self._is_name = bool(typed) and "\0" not in typed
        words = {f"word{n}": word for n, word in enumerate(search.words)}
        self._text_has_words = " AND ".join(f"instr(folded_text, :{key})" for key in words)
        self._values: dict[str, object] = {
            "typed": typed,
            "pattern": _pattern(typed),
            **words,
            "scope": search.scope,
            "official": search.official,
            "public_url": search.public_url,
        }

    def count(self) -> tuple[int, int]:
        """How many are named exactly so, and how many there are in all."""
        if not self._is_name:
            return 0, 0
        ((exact, named),) = self._rows(COUNT)
        return exact, named

    def cards(self, offset: int, limit: int) -> tuple[list[Json], list[Json]]:
        """Some of them, exact ones first, as summaries: those named exactly so, and the others."""
        if limit <= 0:
            return [], []
        exact: list[Json] = []
        others: list[Json] = []
        for is_exact, widget_id, text in self._rows(CARDS, offset=offset, limit=limit):
            summary = json.loads(text)
            if self._sdk is not None:
                summary["latestCompatibleVersion"] = self._newest_for(self._sdk, widget_id)
            (exact if is_exact else others).append(summary)
        return exact, others

    def _rows(self, template: str, **values: int) -> list[Any]:
        statement = template.format(text_has_words=self._text_has_words)
        return self._connection.execute(statement, {**self._values, **values}).fetchall()

    def _newest_for(self, sdk: str, widget_id: int) -> Json | None:
        """The newest available version for the SDK; a card shows no more than its number."""
        rows = self._connection.execute(AVAILABLE_VERSIONS, {"widget_id": widget_id})
        versions = (version for version, needed in rows if satisfies(sdk, needed))
        version = next(versions, None)
        return None if version is None else {"version": version}


def _pattern(typed: str) -> str:
    """What LIKE compares scope/name with: it contains the text, or the name is this short text."""
    escaped = re.sub("[!%_]", r"!\g<0>", typed)
    return f"%{escaped}%" if len(typed) >= MIN_PART else f"%/{escaped}"
