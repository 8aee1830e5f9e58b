"""Versions and npm ranges: what is valid, which is newer, what a range admits.

The answers are those of node-semver 7 with default options, because the dashboards that ask are
JavaScript. Its README gives the grammar of ranges; where node takes more than that grammar, a
comment here says what.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

from semver import Version

MAX_LENGTH = 256
MAX_NUMBER = 2**53 - 1

# Major, minor and patch; then the identifiers of the prerelease, none for a release.
Parts = tuple[tuple[int, ...], tuple[str, ...]]
# The signs that comparing a version with these parts may give.
Comparator = tuple[tuple[int, ...], Parts]

_SIGNS = {"": (0,), "=": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}

# JavaScript's white space: Python's \s has U+001C to U+001F and U+0085 too, and lacks U+FEFF.
_SPACES = re.compile("[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")
_BUILD = re.compile(r"\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_XR = r"([xX*]|0|[1-9][0-9]*)"
_PARTIAL = rf"{_XR}(?:\.{_XR}(?:\.{_XR}(-[0-9A-Za-z.-]+)?)?)?"
_HYPHEN = re.compile(rf" ?([v= ]*){_PARTIAL} - ([v= ]*){_PARTIAL} ?")
_SIMPLE = re.compile(rf"(~>?|\^|[<>]?=?)([v=]*){_PARTIAL}")
_PRIMITIVE = re.compile(r"([<>]?=?)v?([0-9].*)")
# An operator, a space to take out, and a version. The last alternative passes over what can
# begin no version, so that it is not tried again from each of its characters.
_SPACED = re.compile(r"( ?[<>]?=?) ?([v= ]*[0-9xX*][0-9A-Za-z.-]*)|([v= ]+)")
_SPACED_TILDE = re.compile(r"~>? ")
_STAR = re.compile(r"[<>]?=?\*")


def is_version(text: str) -> bool:
    """Whether the text is a strict SemVer 2.0.0 version that node can hold."""
    return _parse_version(text) is not None


def precedence(version: str) -> str:
    """A key whose text order is the precedence of versions; ValueError if it is no version.

    "1.2.3-rc.10" gives "0011.0012.0013-:rc,00210". "-" is below "~", so a prerelease is below
    its release. A number begins with its length, and digits are below ":", so a number is below
    a word. "," is below whatever continues a word, so fewer identifiers are below more.
    """
    parts = _parse_version(version)
    if parts is None:
        raise ValueError(f"{version!r} is not a semantic version")
    return precedence_key(*parts)


def precedence_key(core: Iterable[int], identifiers: Iterable[str]) -> str:
    """The key of a version with these numbers and identifiers."""
    numbers = ".".join(_length_first(str(number)) for number in core)
    ordered = [_length_first(text) if text.isdigit() else f":{text}" for text in identifiers]
    return f"{numbers}-{','.join(ordered)}" if ordered else f"{numbers}~"


def is_range(text: str) -> bool:
    """Whether npm takes the text for a range; "" is one and admits every release."""
    return len(text) <= MAX_LENGTH and _parse_range(text) is not None


def satisfies(version: str, range_: str) -> bool:
    """Whether the range admits the version; an invalid range admits nothing."""
    # The lengths come first, so that no cache holds a long text.
    return len(version) <= MAX_LENGTH and len(range_) <= MAX_LENGTH and _admits(range_, version)


def alternatives(range_: str) -> Iterable[tuple[Comparator, ...]]:
    """The alternatives of a range, none if it is invalid: comparators that must all hold."""
    return (len(range_) <= MAX_LENGTH and _parse_range(range_)) or ()


def _length_first(digits: str) -> str:
    return f"{len(digits):03}{digits}"


def _parse_version(text: str) -> Parts | None:
    return _parse_short_version(text) if len(text) <= MAX_LENGTH else None


@lru_cache(maxsize=4096)  # most widgets have versions of the same few numbers
def _parse_short_version(text: str) -> Parts | None:
    try:
        version = Version.parse(text)
    except ValueError:
        return None
    core = (version.major, version.minor, version.patch)
    # Only these three have a limit: a number in a prerelease may be of any size.
    if max(core) > MAX_NUMBER:
        return None
    return core, tuple(version.prerelease.split(".")) if version.prerelease else ()


@lru_cache(maxsize=16384)
def _admits(range_: str, version: str) -> bool:
    parts = _parse_version(version)
    return parts is not None and any(
        all(_compare(parts, bound) in signs for signs, bound in comparators)
        # A prerelease must be asked for: by a prerelease of the same three numbers.
        and (not parts[1] or any(core == parts[0] and pre for _, (core, pre) in comparators))
        for comparators in _parse_range(range_) or ()
    )


def _compare(a: Parts, b: Parts) -> int:
    """The sign of a against b. Unlike precedence(), it takes numbers for doubles, as node does."""
    if a[0] != b[0]:
        return 1 if a[0] > b[0] else -1
    for left, right in zip(a[1], b[1], strict=False):
        if left != right:
            # Different digits may be one double: node finds them equal and looks no further.
            x, y = _rank(left), _rank(right)
            break
    else:
        x, y = (len(a[1]) or MAX_LENGTH, ""), (len(b[1]) or MAX_LENGTH, "")
    return (x > y) - (x < y)


def _rank(identifier: str) -> tuple[float, str]:
    return (float(identifier), "") if identifier.isdigit() else (float("inf"), identifier)


@lru_cache(maxsize=4096)
def _parse_range(text: str) -> tuple[tuple[Comparator, ...], ...] | None:
    """The alternatives, each the comparators that must all hold, or None if invalid."""
    alternatives = _SPACES.sub(" ", text).split("||")
    try:
        sets = tuple(tuple(_comparators(alternative.strip(" "))) for alternative in alternatives)
    except ValueError:
        return None
    # To node "*" makes the other alternatives moot, even one that names a prerelease.
    return ((),) if () in sets else sets


def _comparators(alternative: str) -> list[Comparator]:
    text = _BUILD.sub("", alternative)
    hyphen = _HYPHEN.fullmatch(text)
    if hyphen:
        low, *from_, high, major, minor, patch, pre = hyphen.groups("")
        # node minds the prefix of a whole version, except of a prerelease at the upper end.
        high = "" if pre else high.removeprefix(" ")
        lower = _desugar(">=", low.removeprefix(" "), *from_)
        return lower + _desugar("<=", high, major, minor, patch, pre)
    text = _SPACED_TILDE.sub("~", _SPACED.sub(r"\1\2\3", text)).replace("^ ", "^")
    return [comparator for word in text.split(" ") for comparator in _simple(word)]


def _simple(word: str) -> list[Comparator]:
    simple = _SIMPLE.fullmatch(word)
    if simple is None:
        # node drops one stray star, and then takes nothing at all or a whole version.
        rest = _STAR.sub("", word, count=1)
        return _primitive(rest) if rest else []
    op, prefix, *partial = simple.groups("")
    known = [text.isdigit() for text in partial[:3]]
    # A number after an x: node minds only without a tilde, a caret or a hyphen.
    if op in _SIGNS and known != sorted(known, reverse=True):
        raise ValueError(word)
    return _desugar(op, prefix, *partial)


def _desugar(op: str, prefix: str, *partial: str) -> list[Comparator]:
    """The comparators that the README of node-semver gives for an operator on a partial version."""
    *texts, pre = partial
    core = [int(text) for text in takewhile(str.isdigit, texts)]
    whole = len(core) == 3
    if whole and op in _SIGNS:
        return _primitive(f"{op}{prefix}{'.'.join(texts)}{pre}")
    if not Version.is_valid(f"0.0.0{pre}"):
        raise ValueError(pre)
    if not core:
        return _primitive("<0.0.0-0") if op in ("<", ">") else []
    last = len(core) - 1
    if op == "^":
        last = next((index for index, number in enumerate(core) if number), last)
    elif op not in _SIGNS:
        last = min(last, 1)
    low = ".".join(map(str, [*core, 0, 0][:3]))
    high = ".".join(map(str, [*core[:last], core[last] + 1, 0, 0][:3]))
    between = [f">={low}{pre if whole else ''}", f"<{high}-0"]
    beyond = {"<": [f"<{low}-0"], "<=": [f"<{high}-0"], ">": [f">={high}"], ">=": [f">={low}"]}
    return [bound for text in beyond.get(op, between) for bound in _primitive(text)]


def _primitive(text: str) -> list[Comparator]:
    primitive = _PRIMITIVE.fullmatch(text)
    bound = primitive and _parse_version(primitive[2])
    if not primitive or not bound:
        raise ValueError(text)
    # node takes this, so written, for "*".
    return [] if text == ">=0.0.0" else [(_SIGNS[primitive[1]], bound)]
