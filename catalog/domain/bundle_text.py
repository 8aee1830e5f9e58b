"""Recognises files that cannot be a JavaScript bundle."""

import codecs

# The first bytes of some formats, and the name of each format in messages.
SIGNATURES = {
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "an empty zip archive",
}
# The beginning of an HTML page, in lower case. JavaScript cannot begin with such a tag.
HTML_BEGINNINGS = (b"<!doctype html", b"<html")
BYTE_ORDER_MARK = codecs.BOM_UTF8
# How many bytes after leading white space are examined to recognise a format.
MAX_BEGINNING = 64  # bytes


class BundleText:
    """Examines a bundle that arrives in pieces."""

    def __init__(self) -> None:
        self._beginning = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_text = True

    def add(self, piece: bytes) -> None:
        """Examine the next piece."""
        if len(self._beginning) < MAX_BEGINNING:
            added = (self._beginning + piece).removeprefix(BYTE_ORDER_MARK)
            self._beginning = added.lstrip()[:MAX_BEGINNING]
        self._decode(piece)

    def _decode(self, piece: bytes, *, is_last: bool = False) -> None:
        if not self._is_text:
            return
        try:
            self._decoder.decode(piece, final=is_last)
        except UnicodeDecodeError:
            self._is_text = False

    def problem(self) -> str | None:
        """Return why the bundle cannot be JavaScript, as the end of a sentence, or None."""
        self._decode(b"", is_last=True)
        for signature, kind in SIGNATURES.items():
            if self._beginning.startswith(signature):
                return f"is {kind}, not JavaScript; publish the JavaScript file itself"
        if self._beginning.lower().startswith(HTML_BEGINNINGS):
            return "is an HTML page, not JavaScript; the download of the file may have failed"
        return None if self._is_text else "is not UTF-8 text, so it is not JavaScript"


def find_bundle_problem(content: bytes) -> str | None:
    """Return why the content cannot be JavaScript, as the end of a sentence, or None."""
    text = BundleText()
    text.add(content)
    return text.problem()
