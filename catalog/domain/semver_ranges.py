"""Versions and npm ranges: validation, precedence, and which versions satisfy a range.

The results are the same as with node-semver 7 and its default options, because the dashboards that
use the API are written in JavaScript. node-semver's README defines the grammar of ranges;
comments here say where node accepts more than that grammar.

Every pattern takes linear time and a word becomes at most two comparators, so the length of a range
bounds the time and memory to parse it.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile

from semver import Version

from .messages import NotAllowedError

MAX_VERSION_LENGTH = 256  # characters
MAX_RANGE_LENGTH = 4096  # characters
MAX_CACHED_LENGTH = 64  # characters
# The greatest whole number that JavaScript represents exactly.
MAX_SAFE_INTEGER = 2**53 - 1

# Major, minor and patch, and the identifiers of the prerelease (none for a release).
Parts = tuple[tuple[int, ...], tuple[str, ...]]
# The allowed results of comparing a version with these parts: (-1, 0) stands for "<=".
Comparator = tuple[tuple[int, ...], Parts]
# A version must satisfy all of these comparators.
Comparators = tuple[Comparator, ...]

_SIGNS = {"": (0,), "=": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}

# White space in JavaScript. Python's \s also matches U+001C to U+001F and U+0085, but not U+FEFF.
_SPACES = re.compile("[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")
_BUILD = re.compile(r"\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
# node limits the length of numbers and identifiers, even in parts that it then ignores: a number
# after an x, or the prerelease of a version with an x.
_NUMBER = "0|[1-9][0-9]{0,256}"
_IDENTIFIER = rf"(?:[0-9]{{0,256}}[A-Za-z-][0-9A-Za-z-]{{0,250}}|{_NUMBER})"
_PRERELEASE = re.compile(rf"-{_IDENTIFIER}(?:\.{_IDENTIFIER})*")
_XR = rf"([xX*]|{_NUMBER})"
_PARTIAL = rf"{_XR}(?:\.{_XR}(?:\.{_XR}(-[0-9A-Za-z.-]+)?)?)?"
_HYPHEN = re.compile(rf" ?([v= ]*){_PARTIAL} - ([v= ]*){_PARTIAL} ?")
_SIMPLE = re.compile(rf"(~>?|\^|[<>]?=?)([v=]*){_PARTIAL}")
_PRIMITIVE = re.compile(r"([<>]?=?)(v?)([0-9].*)")
# An operator, an optional space, and a version. The last alternative skips characters that cannot
# begin a version, so that the pattern is not tried again from each of them.
_SPACED = re.compile(r"( ?[<>]?=?) ?([v= ]*[0-9xX*][0-9A-Za-z.-]*)|([v= ]+)")
_SPACED_TILDE = re.compile(r"~>? ")
_STAR = re.compile(r"[<>]?=?\*")


def is_version(text: str) -> bool:
    """Return whether the string is a strict SemVer 2.0.0 version that node accepts."""
    return _parse_version(text) is not None


def is_prerelease(version: str) -> bool:
    """Return whether a valid version is a prerelease."""
    return "-" in version.partition("+")[0]


# One or two numbers, optionally after a v: people often leave out zeros.
SHORT_VERSION = re.compile(r"v?(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?", re.ASCII)


def parse_sdk(text: str) -> str:
    """Return the SDK version that a person typed: 1.4, v1.4.0 and 1.4.0 are the same.

    Raise NotAllowedError if the string is not an SDK version.
    """
    text = text.strip()
    short = SHORT_VERSION.fullmatch(text)
    version = f"{short[1]}.{short[2] or 0}.0" if short else text.removeprefix("v")
    if not is_version(version):
        raise NotAllowedError("an SDK version such as 1.4.0")
    return version


@lru_cache(maxsize=2048)
def precedence(version: str) -> str:
    """Return a key that sorts versions by precedence; raise ValueError if the version is invalid.

    "1.2.3-rc.10" becomes "0011.0012.0013-:rc,00210". "-" sorts before "~", so a prerelease comes
    before its release. A number begins with its length, and digits sort before ":", so a number
    comes before a word. "," sorts before every character of a word, so fewer identifiers come
    before more.
    """
    parts = _parse_version(version)
    if parts is None:
        raise ValueError(f"{version!r} is not a semantic version")
    return precedence_key(*parts)


def precedence_key(core: Iterable[int], identifiers: Iterable[str]) -> str:
    """Return the key of a version with these numbers and prerelease identifiers."""
    numbers = ".".join(_length_first(str(number)) for number in core)
    ordered = [_length_first(text) if text.isdigit() else f":{text}" for text in identifiers]
    return f"{numbers}-{','.join(ordered)}" if ordered else f"{numbers}~"


def is_range(text: str) -> bool:
    """Return whether the string is a valid npm range; "" is valid and matches every release."""
    return parse_alternatives(text) is not None


def satisfies(version: str, range_: str) -> bool:
    """Return whether the version satisfies the range; an invalid range matches nothing."""
    parts = _parse_version(version)
    return parts is not None and any(
        all(_compare(parts, bound) in signs for signs, bound in comparators)
        # A prerelease matches only if a comparator has a prerelease with the same three numbers.
        and (not parts[1] or any(core == parts[0] and pre for _, (core, pre) in comparators))
        for comparators in parse_alternatives(range_) or ()
    )


def _length_first(digits: str) -> str:
    return f"{len(digits):03}{digits}"


def _parse_version(text: str) -> Parts | None:
    # Check the length first, so that long strings reach neither the pattern nor the cache.
    return _parse_short_version(text) if len(text) <= MAX_VERSION_LENGTH else None


@lru_cache(maxsize=2048)
def _parse_short_version(text: str) -> Parts | None:
    try:
        version = Version.parse(text)
    except ValueError:
        return None
    core = (version.major, version.minor, version.patch)
    # node limits only major, minor and patch. A number in a prerelease may have any size.
    if max(core) > MAX_SAFE_INTEGER:
        return None
    return core, tuple(version.prerelease.split(".")) if version.prerelease else ()


def _compare(a: Parts, b: Parts) -> int:
    """Return the sign of a minus b. Like node, but unlike precedence(), compare doubles."""
    if a[0] != b[0]:
        return 1 if a[0] > b[0] else -1
    for left, right in zip(a[1], b[1], strict=False):
        if left != right:
            # Different digits may form the same double; node then ignores the other identifiers.
            x, y = _rank(left), _rank(right)
            break
    else:
        x, y = (len(a[1]) or MAX_VERSION_LENGTH, ""), (len(b[1]) or MAX_VERSION_LENGTH, "")
    return (x > y) - (x < y)


def _rank(identifier: str) -> tuple[float, str]:
    return (float(identifier), "") if identifier.isdigit() else (float("inf"), identifier)


def parse_alternatives(text: str) -> set[Comparators] | None:
    """Return the alternatives of a range, or None if it is invalid or too long."""
    # A parsed range of 4,096 characters may take hundreds of kilobytes, so only short ranges are
    # cached.
    if len(text) <= MAX_CACHED_LENGTH:
        return _parse_short_range(text)
    return _parse_range(text) if len(text) <= MAX_RANGE_LENGTH else None


@lru_cache(maxsize=1024)
def _parse_short_range(text: str) -> set[Comparators] | None:
    return _parse_range(text)


def _parse_range(text: str) -> set[Comparators] | None:
    # Put each alternative on its own line, so that every pattern runs once over all of them.
    parts = (part.strip(" ") for part in _SPACES.sub(" ", text).split("||"))
    lines = _BUILD.sub("", "\n".join(parts))
    trimmed = _SPACED_TILDE.sub("~", _SPACED.sub(r"\1\2\3", lines)).replace("^ ", "^")
    alternatives = dict.fromkeys(zip(lines.split("\n"), trimmed.split("\n"), strict=True))
    try:
        sets = {_parse_alternative(*alternative) for alternative in alternatives}
    except ValueError:
        return None
    # If one alternative is "*", node ignores the others, even if one has a prerelease.
    return {()} if () in sets else sets


def _parse_alternative(text: str, trimmed: str) -> Comparators:
    """Return the comparators of one alternative; trimmed has no spaces after operators."""
    if " " not in trimmed:
        return _parse_word(trimmed)
    if hyphen := _HYPHEN.fullmatch(text):
        low, *from_, high, major, minor, patch, pre = hyphen.groups("")
        # node checks the prefix of a full version, but drops it from a prerelease at the upper end.
        high = "" if pre else high.removeprefix(" ")
        lower = _desugar(">=", low.removeprefix(" "), *from_)
        return lower + _desugar("<=", high, major, minor, patch, pre)
    words = dict.fromkeys(trimmed.split(" "))
    return tuple(comparator for word in words for comparator in _parse_word(word))


# The alternatives of a long range often repeat the same words, so the results are cached.
@lru_cache(maxsize=1024)
def _parse_word(word: str) -> Comparators:
    simple = _SIMPLE.fullmatch(word)
    if simple is None:
        # node removes one stray star, and then accepts the empty string or a full version.
        rest = _STAR.sub("", word, count=1)
        return _parse_primitive(rest) if rest else ()
    op, prefix, *partial = simple.groups("")
    known = [text.isdigit() for text in partial[:3]]
    # node rejects a number after an x, except with a tilde, a caret or a hyphen.
    if op in _SIGNS and known != sorted(known, reverse=True):
        raise ValueError(word)
    return _desugar(op, prefix, *partial)


def _parse_primitive(text: str) -> Comparators:
    primitive = _PRIMITIVE.fullmatch(text)
    bound = primitive and _parse_version(primitive[3])
    if not primitive or not bound or len(primitive[2] + primitive[3]) > MAX_VERSION_LENGTH:
        raise ValueError(text)
    # node treats exactly the string ">=0.0.0" as "*".
    return () if text == ">=0.0.0" else ((_SIGNS[primitive[1]], bound),)


def _desugar(op: str, prefix: str, *partial: str) -> Comparators:
    """Return the comparators for an operator on a partial version, as node-semver defines them."""
    *texts, pre = partial
    if pre and not _PRERELEASE.fullmatch(pre):
        raise ValueError(pre)
    core = tuple(int(text) for text in takewhile(str.isdigit, texts))
    if len(core) == 3:
        identifiers = tuple(pre[1:].split(".")) if pre else ()
        return _full_version(op, prefix, ".".join(texts) + pre, core, identifiers)
    if not core:
        return _comparator("<", (0, 0, 0), ("0",)) if op in ("<", ">") else ()
    low = (*core, 0, 0)[:3]
    high = _upper_bound(op, core)
    if op == "<":
        return _comparator("<", low, ("0",))
    if op == "<=":
        return _comparator("<", high, ("0",))
    if op == ">":
        return _comparator(">=", high, ())
    return _lower_bound(">=", low, ()) + (() if op == ">=" else _comparator("<", high, ("0",)))


def _full_version(
    op: str, prefix: str, text: str, core: tuple[int, ...], pre: tuple[str, ...]
) -> Comparators:
    if op not in _SIGNS:
        if len(text) > MAX_VERSION_LENGTH:
            raise ValueError(text)
        return _lower_bound(">=", core, pre) + _comparator("<", _upper_bound(op, core), ("0",))
    # The maximum length includes the v, even though node then removes it.
    if prefix not in ("", "v") or len(prefix + text) > MAX_VERSION_LENGTH:
        raise ValueError(text)
    # node treats >=0.0.0 as "*", but not >=v0.0.0.
    return _comparator(op, core, pre) if prefix else _lower_bound(op, core, pre)


def _upper_bound(op: str, core: tuple[int, ...]) -> tuple[int, ...]:
    """Return the exclusive upper bound of the range that the operator and the numbers describe."""
    last = len(core) - 1
    if op == "^":
        last = next((index for index, number in enumerate(core) if number), last)
    elif op not in _SIGNS:
        last = min(last, 1)
    return (*core[:last], core[last] + 1, 0, 0)[:3]


def _lower_bound(op: str, core: tuple[int, ...], identifiers: tuple[str, ...]) -> Comparators:
    # node treats >=0.0.0 as "*".
    is_any = (op, core, identifiers) == (">=", (0, 0, 0), ())
    return () if is_any else _comparator(op, core, identifiers)


def _comparator(op: str, core: tuple[int, ...], identifiers: tuple[str, ...]) -> Comparators:
    if max(core) > MAX_SAFE_INTEGER:
        raise ValueError(core)
    return ((_SIGNS[op], (core, identifiers)),)
