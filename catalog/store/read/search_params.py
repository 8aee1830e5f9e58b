"""The parameters of a search: a query string, validated and parsed into a SearchQuery."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...semver_ranges import MAX_SAFE_INTEGER, is_version
from ...text import fold, quoted

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_Q_LENGTH = 1000  # characters
SORTS = ("installs", "updated", "created", "name")
# The value of a filter for widgets that have no value.
NONE = "(none)"
# Before a permission, for widgets that do not need it.
WITHOUT = "-"


class ParameterError(ValueError):
    """An invalid parameter; the message names it and what is allowed."""


@dataclass(frozen=True)
class SearchQuery:
    """A parsed search; None means that the results are not restricted by this parameter."""

    # Folded as fold() does it, with single spaces between the words.
    q: str
    scope: str | None
    official: bool | None
    compat_sdk: str | None
    page: int
    limit: int
    # Only widgets with a version that runs on compat_sdk.
    compatible: bool = False
    # One of SORTS; None for the default order.
    sort: str | None = None
    # Only widgets whose latest version, the latest for compat_sdk if there is one, needs this
    # permission; NONE for those that need no one, and WITHOUT before one that they do not need.
    permission: str | None = None
    # Only widgets whose latest version has this licence; NONE for those that state none.
    license: str | None = None
    # Find the widgets too whose name, scope or beginning of scope/name is this one. Only for the
    # browse page, and no parameter of the API.
    typed: str | None = None

    @property
    def words(self) -> list[str]:
        """The words of q, each once."""
        return list(dict.fromkeys(self.q.split()))

    @property
    def reads_versions(self) -> bool:
        """Whether it depends on all versions of a widget and not only on the latest one."""
        return self.compatible or (self.permission is not None and self.compat_sdk is not None)

    @property
    def offset(self) -> int:
        """The number of results before the page; the greatest one fits an integer of SQLite."""
        return (self.page - 1) * self.limit


def parse_search(parameters: Mapping[str, str]) -> SearchQuery:
    """Return the search that the query string describes; raise ParameterError."""
    query = SearchQuery(
        q=_parse_q(parameters.get("q", "")),
        scope=parameters.get("scope") or None,
        official=_parse_boolean("official", parameters.get("official")),
        compat_sdk=parse_compat_sdk(parameters.get("compatSdk")),
        page=parse_positive("page", parameters.get("page"), 1),
        limit=parse_limit(parameters),
        compatible=_parse_boolean("compatible", parameters.get("compatible")) or False,
        sort=_parse_sort(parameters.get("sort")),
        permission=parameters.get("permission") or None,
        license=parameters.get("license") or None,
    )
    if query.compatible and query.compat_sdk is None:
        raise ParameterError("compatible must be used with compatSdk, such as compatSdk=1.4.0.")
    return query


def parse_limit(parameters: Mapping[str, str]) -> int:
    """Return the size of a page; raise ParameterError."""
    return min(parse_positive("limit", parameters.get("limit"), DEFAULT_LIMIT), MAX_LIMIT)


def _parse_q(value: str) -> str:
    # Check the length before folding, which gives up to 18 characters for each that was sent.
    if len(value) > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {len(value)}.")
    return " ".join(fold(value).split())


def _parse_boolean(name: str, value: str | None) -> bool | None:
    if not value:
        return None
    if value.lower() not in ("true", "false"):
        raise ParameterError(f"{name} must be true or false, not {quoted(value)}.")
    return value.lower() == "true"


def _parse_sort(value: str | None) -> str | None:
    if value and value not in SORTS:
        *others, last = SORTS
        allowed = f"{', '.join(others)} or {last}"
        raise ParameterError(f"sort must be {allowed}, not {quoted(value)}.")
    return value or None


def parse_compat_sdk(value: str | None) -> str | None:
    """Return compatSdk if it is absent or a valid version; raise ParameterError."""
    if value is not None and not is_version(value):
        raise ParameterError(
            f"compatSdk must be a valid semver string such as 1.4.0, not {quoted(value)}; "
            "a + in it must be sent as %2B."
        )
    return value


def parse_positive(name: str, value: str | None, default: int) -> int:
    """Return a positive number, the default if it is absent or empty; raise ParameterError."""
    if not value:
        return default
    is_number = value.isascii() and value.isdigit()
    digits = value.lstrip("0")
    # Check the length before int(), which fails on more than 4,300 digits.
    if not (is_number and 0 < len(digits) <= 16 and int(digits) <= MAX_SAFE_INTEGER):
        allowed = f"a whole number from 1 to {MAX_SAFE_INTEGER}"
        raise ParameterError(f"{name} must be {allowed}, not {quoted(value)}.")
    return int(digits)
