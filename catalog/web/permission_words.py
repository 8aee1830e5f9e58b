"""Permissions in plain words, for people deciding whether to trust a widget."""

from collections.abc import Iterable

from ..store.read.search_params import NETWORK

# A dashboard may define other permissions, which are shown only by their names.
WORDS = {
    "network": "talks to the internet",
    "local-network": "talks to devices",
    "geolocation": "knows where you are",
    "storage": "saves data locally",
    "notifications": "shows alerts",
    "clipboard": "uses the clipboard",
    "camera": "uses the camera",
    "microphone": "records sound",
    "audio": "plays sound",
    "fullscreen": "fills the screen",
}


def permission_words(name: str) -> str:
    """Return what a widget with this permission does, or "" if the permission is unknown."""
    return WORDS.get(name, "")


def has_network_access(permissions: Iterable[str]) -> bool:
    """Return whether these permissions let a widget use the internet or the local network."""
    return not {*NETWORK}.isdisjoint(permissions)
