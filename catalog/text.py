"""Text as search compares it: without case, accents or compatibility forms."""

import unicodedata


def fold(text: str) -> str:
    """The text in lower case and without marks, so that "meteo" finds "Météo"."""
    if text.isascii():
        return text.lower()
    # Marks go before as well: normalizing sorts each run of them, in time by the square of its
    # length. What is decomposed afterwards has runs of a few marks only.
    decomposed = unicodedata.normalize("NFKD", _unmarked(text))
    return _unmarked(decomposed).casefold()


def _unmarked(text: str) -> str:
    return "".join(c for c in text if not unicodedata.category(c).startswith("M"))
