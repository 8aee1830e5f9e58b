"""Validates a search's query string and parses it into a SearchQuery."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...domain.folding import folded_words, without_hyphens
from ...domain.messages import quoted
from .candidates import Candidates, parse_candidates
from .parameters import ParameterError, parse_boolean, parse_limit, parse_positive

MAX_Q_LENGTH = 1000  # characters
SORTS = ("installs", "updated", "created", "name")
# The only allowed value of the include parameter.
PICTURE = "picture"
# The filter value that selects widgets without a permission or a licence.
NONE = "(none)"
# If this prefix precedes a permission, the filter selects widgets that do not need the permission.
WITHOUT = "-"
# This prefix marks a value that would otherwise have a special meaning, such as a permission called
# "(none)".
LITERAL = "\\"
# The permissions that let a widget use the network. A widget with neither has no network access.
NETWORK = ("network", "local-network")


def filter_value(text: str) -> str:
    """Return the filter value that selects this permission or licence."""
    is_special = text == NONE or text.startswith((WITHOUT, LITERAL))
    return LITERAL + text if is_special else text


def filter_text(value: str) -> str:
    """Return the permission or licence that a filter value selects; inverts filter_value()."""
    return value.removeprefix(LITERAL)


@dataclass(frozen=True)
class SearchQuery:
    """A parsed search; None means that the parameter does not restrict the results."""

    # The folded q parameter, with single spaces between the words.
    q: str
    scope: str | None
    official: bool | None
    # The versions that the search may offer.
    candidates: Candidates
    page: int
    limit: int
    # If true, find only widgets that have a candidate.
    compatible: bool = False
    # One of SORTS; None for the default order.
    sort: str | None = None
    # Find only widgets whose newest candidate needs this permission. NONE selects widgets that need
    # no permission; WITHOUT before a permission selects widgets that do not need it.
    permission: str | None = None
    # Find only widgets whose latest version has this licence. NONE selects widgets without a
    # licence.
    license: str | None = None
    # True if each result includes its widget's picture.
    pictures: bool = False
    # True if a page runs the search. Pages also search scope/name and keywords, and treat
    # "-network" as no network access at all. Only pages set the fields below.
    for_pages: bool = False
    # Find only widgets with this folded keyword.
    keyword: str | None = None
    # Find widgets with at least this many of the words; None requires all of them.
    least_words: int | None = None

    @property
    def words(self) -> list[str]:
        """The distinct words in q."""
        return list(dict.fromkeys(self.q.split()))

    @property
    def excluded_permissions(self) -> tuple[str, ...]:
        """The permissions that the results must not need."""
        permission = self.permission or ""
        if not permission.startswith(WITHOUT):
            return ()
        name = permission.removeprefix(WITHOUT)
        return NETWORK if self.for_pages and name == NETWORK[0] else (name,)

    @property
    def latest(self) -> Candidates:
        """The candidates for the latest version, regardless of the SDK."""
        return self.candidates._replace(sdk=None)

    @property
    def reads_versions(self) -> bool:
        """Whether the results depend on versions that the listing table does not describe."""
        return (
            self.compatible
            or (self.permission is not None and self.candidates.sdk is not None)
            or (
                self.candidates.before is not None and (self.permission or self.license) is not None
            )
        )

    @property
    def offset(self) -> int:
        """The number of results before the page; it always fits into an SQLite integer."""
        return (self.page - 1) * self.limit


def parse_search(parameters: Mapping[str, str]) -> SearchQuery:
    """Return the search that the query string describes; raise ParameterError if it is invalid."""
    query = SearchQuery(
        q=_parse_q(parameters.get("q", "")),
        scope=parameters.get("scope") or None,
        official=parse_boolean("official", parameters.get("official")),
        candidates=parse_candidates(parameters),
        page=parse_positive("page", parameters.get("page"), 1),
        limit=parse_limit(parameters),
        compatible=parse_boolean("compatible", parameters.get("compatible")) or False,
        sort=_parse_sort(parameters.get("sort")),
        permission=parameters.get("permission") or None,
        license=parameters.get("license") or None,
        pictures=_parse_include(parameters.get("include")),
    )
    if query.compatible and query.candidates.sdk is None:
        raise ParameterError("compatible requires compatSdk, such as compatSdk=1.4.0.")
    return query


# Words that are too general to restrict a search in a catalog of widgets.
IGNORED_WORDS = ("widget", "widgets")


def parse_page_search(parameters: Mapping[str, str]) -> SearchQuery:
    """Return the search for a page, which interprets words as people type them.

    Hyphens, an @ before a scope, and IGNORED_WORDS make no difference.
    """
    query = parse_search(parameters)
    words = [word.removeprefix("@") for word in without_hyphens(query.q).split()]
    q = " ".join(word for word in words if word and word not in IGNORED_WORDS)
    keyword = " ".join(without_hyphens(parameters.get("keyword", "")).split())
    return replace(query, q=q, pictures=True, for_pages=True, keyword=keyword or None)


def _parse_q(value: str) -> str:
    # Check the length before folding, which can turn one character into 18.
    if len(value) > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {len(value)}.")
    return " ".join(folded_words(value))


def _parse_include(value: str | None) -> bool:
    if value and value != PICTURE:
        raise ParameterError(f"include must be {PICTURE}, not {quoted(value)}.")
    return value == PICTURE


def _parse_sort(value: str | None) -> str | None:
    if value and value not in SORTS:
        *others, last = SORTS
        allowed = f"{', '.join(others)} or {last}"
        raise ParameterError(f"sort must be {allowed}, not {quoted(value)}.")
    return value or None
