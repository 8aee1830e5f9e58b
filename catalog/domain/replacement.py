"""The last sentence of a deprecation message, which names the widget to use instead."""

import re

_PHRASE = "Replaced by "
_WIDGET = re.compile(r"([^/]+)/([^/]+)\.", re.DOTALL)


def add_replacement(message: str, widget: object) -> str:
    """Return the message with a last sentence that names the widget to use instead."""
    return f"{message} {_PHRASE}{widget}.".lstrip()


def find_replacement(message: str) -> tuple[str, str, str] | None:
    """Return the text before the replacement, and the replacement's scope and name, or None."""
    before, phrase, name = message.rpartition(_PHRASE)
    match = _WIDGET.fullmatch(name)
    if not phrase or not match or not (before == "" or before.endswith(" ")):
        return None
    return before + phrase, match[1], match[2]
