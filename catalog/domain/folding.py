"""Folding: removes differences in case and diacritics for searches and comparisons."""

import unicodedata

_SEPARATORS = str.maketrans("", "", "-_. ")


def fold(text: str) -> str:
    """Return the text in lower case and without marks, so that "meteo" finds "Météo"."""
    if text.isascii():
        return text.lower()
    # Normalizing sorts each run of marks in quadratic time, so marks are removed before and after
    # it: the decomposition itself adds only a few marks to each character.
    decomposed = unicodedata.normalize("NFKD", _without_marks(text))
    return _without_marks(decomposed).casefold()


def folded_words(text: str) -> list[str]:
    """Return the folded words of a search.

    Folding removes marks. If the search consists only of marks, return its words unchanged: they
    find nothing, because folded text never contains a mark.
    """
    return fold(text).split() or text.split()


def _without_marks(text: str) -> str:
    # U+0300 is the first combining mark, so most characters need no lookup.
    return "".join([c for c in text if c < "\u0300" or not unicodedata.category(c).startswith("M")])


def without_hyphens(text: str) -> str:
    """Return the text folded and without hyphens, so that a search for "todo" finds "to-do"."""
    return fold(text).replace("-", "")


def without_separators(name: str) -> str:
    """Return the name folded and without separators, which people often forget or confuse."""
    return fold(name).translate(_SEPARATORS)


def is_mistakable(name: str, other: str) -> bool:
    """Return whether two names differ only by case, separators or one character."""
    short, long = without_separators(name), without_separators(other)
    if len(short) > len(long):
        short, long = long, short
    if name == other or len(long) - len(short) > 1:
        return False
    pairs = enumerate(zip(short, long, strict=False))
    same = next((place for place, (one, two) in pairs if one != two), len(short))
    rest = short[same + 1 :] if len(short) == len(long) else short[same:]
    # Names of up to three characters often differ by only one character.
    return short == long or (len(short) > 3 and rest == long[same + 1 :])
