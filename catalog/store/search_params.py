"""What a search can be asked for, read from a query string and checked."""

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.semver_ranges import MAX_SAFE_INTEGER, is_version
from catalog.text import fold, quoted

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_Q_LENGTH = 1000  # characters


class ParameterError(ValueError):
    """A parameter that cannot be used; the message names it and what is allowed."""


@dataclass(frozen=True)
class SearchQuery:
    """What a caller asked for; None where nothing was asked."""

    q: str
    scope: str | None
    official: bool | None
    compat_sdk: str | None
    page: int
    limit: int
    # Widgets with this name, or scope/name, whose text does not contain the words of q; this is
    # for the browse page, no request of the API can ask for it.
    name: str | None = None

    @property
    def words(self) -> list[str]:
        """The words of q, each once."""
        return list(dict.fromkeys(self.q.split()))

    @property
    def offset(self) -> int:
        """How many hits come before the page; SQLite can hold the greatest of them."""
        return (self.page - 1) * self.limit


def parse_search(arguments: Mapping[str, str]) -> SearchQuery:
    """The search that a query string asks for; raises ParameterError."""
    return SearchQuery(
        q=_words(arguments.get("q", "")),
        scope=arguments.get("scope") or None,
        official=_official(arguments.get("official")),
        compat_sdk=_compat_sdk(arguments.get("compatSdk")),
        page=_positive("page", arguments.get("page"), 1),
        limit=min(_positive("limit", arguments.get("limit"), DEFAULT_LIMIT), MAX_LIMIT),
    )


def _words(value: str) -> str:
    # Before folding, which takes time quadratic in a run of combining marks. At this length it
    # takes milliseconds, and gives 18 characters at most for each that was sent.
    if len(value) > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {len(value)}.")
    return " ".join(fold(value).split())


def _official(value: str | None) -> bool | None:
    if not value:
        return None
    if value.lower() not in ("true", "false"):
        raise ParameterError(f"official must be true or false, not {quoted(value)}.")
    return value.lower() == "true"


def _compat_sdk(value: str | None) -> str | None:
    if value is not None and not is_version(value):
        raise ParameterError(
            f"compatSdk must be a valid semver string such as 1.4.0, not {quoted(value)}; "
            "a + in it must be sent as %2B."
        )
    return value


def _positive(name: str, value: str | None, default: int) -> int:
    if not value:
        return default
    is_number = value.isascii() and value.isdigit()
    digits = value.lstrip("0")
    # The length comes before int(), which refuses more than 4,300 digits.
    if not (is_number and 0 < len(digits) <= 16 and int(digits) <= MAX_SAFE_INTEGER):
        allowed = f"a whole number from 1 to {MAX_SAFE_INTEGER}"
        raise ParameterError(f"{name} must be {allowed}, not {quoted(value)}.")
    return int(digits)
