"""What a search can be asked for, read from a query string and checked."""

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.documents import shown
from catalog.folding import fold
from catalog.semver_ranges import is_version

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_Q_LENGTH = 1000  # what a person types; the work grows with each word
MAX_OFFSET = 2**63 - 1  # SQLite's greatest integer


class ParameterError(ValueError):
    """A parameter that cannot be used; the message names it and what is allowed."""


@dataclass(frozen=True)
class Search:
    """What a caller asked for; None where nothing was asked."""

    q: str
    scope: str | None
    official: bool | None
    compat_sdk: str | None
    page: int
    limit: int

    @property
    def words(self) -> list[str]:
        """The words of q, each once."""
        return list(dict.fromkeys(self.q.split()))

    @property
    def offset(self) -> int:
        """How many hits come before the page, as far as SQLite can count."""
        return min((self.page - 1) * self.limit, MAX_OFFSET)


def parse_search(arguments: Mapping[str, str]) -> Search:
    """The search that a query string asks for; raises ParameterError."""
    return Search(
        q=_words(arguments.get("q", "")),
        scope=arguments.get("scope") or None,
        official=_official(arguments.get("official")),
        compat_sdk=_compat_sdk(arguments.get("compatSdk")),
        page=_positive("page", arguments.get("page", "1")),
        limit=min(_positive("limit", arguments.get("limit", str(DEFAULT_LIMIT))), MAX_LIMIT),
    )


def _words(value: str) -> str:
    words = " ".join(fold(value).split())
    length = max(len(value), len(words))  # one character can stand for many, as a ligature does
    if length > MAX_Q_LENGTH:
        raise ParameterError(f"q must be at most {MAX_Q_LENGTH} characters, not {length}.")
    return words


def _official(value: str | None) -> bool | None:
    if value not in (None, "true", "false"):
        raise ParameterError(f"official must be true or false, not {shown(value)}.")
    return None if value is None else value == "true"


def _compat_sdk(value: str | None) -> str | None:
    if value is not None and not is_version(value):
        raise ParameterError(
            f"compatSdk must be a valid semver string such as 1.4.0, not {shown(value)}; "
            "a + in it must be sent as %2B."
        )
    return value


def _positive(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and value.strip("0")):
        raise ParameterError(f"{name} must be a whole number from 1, not {shown(value)}.")
    # int() refuses more than 4,300 digits; a number cut before that is as far past the end.
    return int(value.lstrip("0")[:4000])
