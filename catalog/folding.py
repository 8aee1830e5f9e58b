"""Text as search compares it: without case, accents or compatibility forms."""

import unicodedata


def fold(text: str) -> str:
    """The text in lower case and without marks, so that "meteo" finds "Météo"."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    unmarked = "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))
    return unmarked.casefold()
