"""Versions and npm ranges: what is valid, which is newer, what a range admits.

The results are those of node-semver 7 with default options, because the dashboards that use the
API are JavaScript. Its README gives the grammar of ranges; where node takes more than that
grammar, a comment here says what.

Every pattern is linear in its input and a word stands for two comparators at most, so the length
of a range bounds the time and the memory that it takes.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

from semver import Version

MAX_VERSION_LENGTH = 256  # characters
MAX_RANGE_LENGTH = 4096  # characters
MAX_CACHED_LENGTH = 64  # characters
# The greatest whole number that JavaScript holds exactly.
MAX_SAFE_INTEGER = 2**53 - 1

# Major, minor and patch; then the identifiers of the prerelease, none for a release.
Parts = tuple[tuple[int, ...], tuple[str, ...]]
# The signs that comparing a version with these parts may give.
Comparator = tuple[tuple[int, ...], Parts]
# Comparators that must all hold.
Comparators = tuple[Comparator, ...]

_SIGNS = {"": (0,), "=": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}

# JavaScript's white space: Python's \s has U+001C to U+001F and U+0085 too, and lacks U+FEFF.
_SPACES = re.compile("[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")
_BUILD = re.compile(r"\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
# node limits the digits of a number and the characters of an identifier, even where it goes on to
# ignore them: a number after an x, and the prerelease of a version with an x in it.
_NUMBER = "0|[1-9][0-9]{0,256}"
_IDENTIFIER = rf"(?:[0-9]{{0,256}}[A-Za-z-][0-9A-Za-z-]{{0,250}}|{_NUMBER})"
_PRERELEASE = re.compile(rf"-{_IDENTIFIER}(?:\.{_IDENTIFIER})*")
_XR = rf"([xX*]|{_NUMBER})"
_PARTIAL = rf"{_XR}(?:\.{_XR}(?:\.{_XR}(-[0-9A-Za-z.-]+)?)?)?"
_HYPHEN = re.compile(rf" ?([v= ]*){_PARTIAL} - ([v= ]*){_PARTIAL} ?")
_SIMPLE = re.compile(rf"(~>?|\^|[<>]?=?)([v=]*){_PARTIAL}")
_PRIMITIVE = re.compile(r"([<>]?=?)(v?)([0-9].*)")
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
    return alternatives(text) is not None


def satisfies(version: str, range_: str) -> bool:
    """Whether the range admits the version; an invalid range admits nothing."""
    parts = _parse_version(version)
    return parts is not None and any(
        all(_compare(parts, bound) in signs for signs, bound in comparators)
        # A prerelease must be asked for: by a prerelease of the same three numbers.
        and (not parts[1] or any(core == parts[0] and pre for _, (core, pre) in comparators))
        for comparators in alternatives(range_) or ()
    )


def _length_first(digits: str) -> str:
    return f"{len(digits):03}{digits}"


def _parse_version(text: str) -> Parts | None:
    # The length comes first, so that neither the pattern nor the cache meets a long text.
    return _parse_short_version(text) if len(text) <= MAX_VERSION_LENGTH else None


@lru_cache(maxsize=2048)
def _parse_short_version(text: str) -> Parts | None:
    try:
        version = Version.parse(text)
    except ValueError:
        return None
    core = (version.major, version.minor, version.patch)
    # Only these three have a limit: a number in a prerelease may be of any size.
    if max(core) > MAX_SAFE_INTEGER:
        return None
    return core, tuple(version.prerelease.split(".")) if version.prerelease else ()


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
        x, y = (len(a[1]) or MAX_VERSION_LENGTH, ""), (len(b[1]) or MAX_VERSION_LENGTH, "")
    return (x > y) - (x < y)


def _rank(identifier: str) -> tuple[float, str]:
    return (float(identifier), "") if identifier.isdigit() else (float("inf"), identifier)


def alternatives(text: str) -> set[Comparators] | None:
    """The alternatives of a range, or None if it is invalid or too long."""
    # A parsed range of 4,096 characters may take hundreds of kilobytes: only short ones are cached.
    if len(text) <= MAX_CACHED_LENGTH:
        return _parse_short_range(text)
    return _parse_range(text) if len(text) <= MAX_RANGE_LENGTH else None


@lru_cache(maxsize=1024)
def _parse_short_range(text: str) -> set[Comparators] | None:
    return _parse_range(text)


def _parse_range(text: str) -> set[Comparators] | None:
    # One line for each alternative, so that every pattern runs once over all of them.
    parts = (part.strip(" ") for part in _SPACES.sub(" ", text).split("||"))
    lines = _BUILD.sub("", "\n".join(parts))
    trimmed = _SPACED_TILDE.sub("~", _SPACED.sub(r"\1\2\3", lines)).replace("^ ", "^")
    alternatives = dict.fromkeys(zip(lines.split("\n"), trimmed.split("\n"), strict=True))
    try:
        sets = {_comparators(*alternative) for alternative in alternatives}
    except ValueError:
        return None
    # To node "*" makes the other alternatives moot, even one that names a prerelease.
    return {()} if () in sets else sets


def _comparators(text: str, trimmed: str) -> Comparators:
    """The comparators of one alternative, given with and without the spaces after operators."""
    if " " not in trimmed:
        return _simple(trimmed)
    if hyphen := _HYPHEN.fullmatch(text):
        low, *from_, high, major, minor, patch, pre = hyphen.groups("")
        # node minds the prefix of a whole version, except of a prerelease at the upper end.
        high = "" if pre else high.removeprefix(" ")
        lower = _desugar(">=", low.removeprefix(" "), *from_)
        return lower + _desugar("<=", high, major, minor, patch, pre)
    words = dict.fromkeys(trimmed.split(" "))
    return tuple(comparator for word in words for comparator in _simple(word))


# The alternatives of a long range tend to have the same words.
@lru_cache(maxsize=1024)
def _simple(word: str) -> Comparators:
    simple = _SIMPLE.fullmatch(word)
    if simple is None:
        # node drops one stray star, and then takes nothing at all or a whole version.
        rest = _STAR.sub("", word, count=1)
        return _primitive(rest) if rest else ()
    op, prefix, *partial = simple.groups("")
    known = [text.isdigit() for text in partial[:3]]
    # A number after an x: node minds only without a tilde, a caret or a hyphen.
    if op in _SIGNS and known != sorted(known, reverse=True):
        raise ValueError(word)
    return _desugar(op, prefix, *partial)


def _primitive(text: str) -> Comparators:
    primitive = _PRIMITIVE.fullmatch(text)
    bound = primitive and _parse_version(primitive[3])
    if not primitive or not bound or len(primitive[2] + primitive[3]) > MAX_VERSION_LENGTH:
        raise ValueError(text)
    # node takes this, so written, for "*".
    return () if text == ">=0.0.0" else ((_SIGNS[primitive[1]], bound),)


def _desugar(op: str, prefix: str, *partial: str) -> Comparators:
    """The comparators that the README of node-semver gives for an operator on a partial version."""
    *texts, pre = partial
    if pre and not _PRERELEASE.fullmatch(pre):
        raise ValueError(pre)
    core = tuple(int(text) for text in takewhile(str.isdigit, texts))
    if len(core) == 3:
        identifiers = tuple(pre[1:].split(".")) if pre else ()
        return _whole(op, prefix, ".".join(texts) + pre, core, identifiers)
    if not core:
        return _bound("<", (0, 0, 0), ("0",)) if op in ("<", ">") else ()
    low = (*core, 0, 0)[:3]
    high = _after(op, core)
    if op == "<":
        return _bound("<", low, ("0",))
    if op == "<=":
        return _bound("<", high, ("0",))
    if op == ">":
        return _bound(">=", high, ())
    return _lower(">=", low, ()) + (() if op == ">=" else _bound("<", high, ("0",)))


def _whole(
    op: str, prefix: str, text: str, core: tuple[int, ...], pre: tuple[str, ...]
) -> Comparators:
    if op not in _SIGNS:
        if len(text) > MAX_VERSION_LENGTH:
            raise ValueError(text)
        return _lower(">=", core, pre) + _bound("<", _after(op, core), ("0",))
    # node counts the v that it goes on to drop.
    if prefix not in ("", "v") or len(prefix + text) > MAX_VERSION_LENGTH:
        raise ValueError(text)
    # With the v, node does not take >=0.0.0 for "*".
    return _bound(op, core, pre) if prefix else _lower(op, core, pre)


def _after(op: str, core: tuple[int, ...]) -> tuple[int, ...]:
    """The first version after those that the operator admits for these numbers."""
    last = len(core) - 1
    if op == "^":
        last = next((index for index, number in enumerate(core) if number), last)
    elif op not in _SIGNS:
        last = min(last, 1)
    return (*core[:last], core[last] + 1, 0, 0)[:3]


def _lower(op: str, core: tuple[int, ...], identifiers: tuple[str, ...]) -> Comparators:
    # node takes >=0.0.0 for "*".
    is_any = (op, core, identifiers) == (">=", (0, 0, 0), ())
    return () if is_any else _bound(op, core, identifiers)


def _bound(op: str, core: tuple[int, ...], identifiers: tuple[str, ...]) -> Comparators:
    if max(core) > MAX_SAFE_INTEGER:
        raise ValueError(core)
    return ((_SIGNS[op], (core, identifiers)),)
