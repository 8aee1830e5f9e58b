"""The shapes that the commands expect a service's responses to have.

A service, or a proxy in front of it, may send anything. Each response is checked when it arrives,
so that a bug in the commands is never mistaken for an error in the service.
"""

from collections.abc import Mapping
from types import NoneType
from typing import Any

# A type, a tuple of types, a mapping from keys to shapes, or a list with the shape of its items.
Shape = Any

OPTIONAL_TEXT = (str, NoneType)
OPTIONAL_NUMBER = (int, NoneType)
OPTIONAL_OBJECT = (dict, NoneType)


class ShapeError(Exception):
    """A response has an unexpected shape; the message completes a sentence about the response."""


class Optional:
    """The shape of a value that may be null."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


class Omissible(Optional):
    """The shape of a value that may be null or missing."""


def check_shape(value: object, shape: Shape) -> None:
    """Raise ShapeError unless the value has the shape; an object may have additional keys."""
    if isinstance(shape, Optional):
        if value is not None:
            check_shape(value, shape.shape)
    elif isinstance(shape, Mapping):
        _check_type(value, dict)
        for key, inner in shape.items():
            if key in value:  # type: ignore[operator]
                check_shape(value[key], inner)  # type: ignore[index]
            elif not isinstance(inner, Omissible):
                raise ShapeError(f"has no {key}")
    elif isinstance(shape, list):
        _check_type(value, list)
        for item in value:  # type: ignore[attr-defined]
            check_shape(item, shape[0])
    else:
        _check_type(value, shape)


def _check_type(value: object, types: type | tuple[type, ...]) -> None:
    if not isinstance(value, types):
        raise ShapeError("is not from a widget catalog")


# The response to an id token exchange.
EXCHANGED = {"token": str, "expiresAt": str}
SESSION = {
    "token": str,
    "scopes": [str],
    "permissions": [str],
    "expiresAt": OPTIONAL_TEXT,
    # Services before release 1.1 have neither tokens for single widgets nor trusts.
    "widgets": Omissible([str]),
    "claims": Omissible(dict),
}
PUBLISHED = {
    "version": str,
    "published": bool,
    "stored": bool,
    "warnings": [str],
    "isUnlisted": bool,
    "isOfficialIgnored": bool,
    "previousLatestVersion": OPTIONAL_TEXT,
    "latestVersion": OPTIONAL_TEXT,
    "document": OPTIONAL_OBJECT,
}
MODERATED = {
    "versions": [{"version": str, "changed": bool, "already": bool}],
    "previousLatestVersion": OPTIONAL_TEXT,
    "latestVersion": OPTIONAL_TEXT,
}
EDITED = {"changed": bool}
AUDIT_PAGE = {
    "entries": [
        {
            "id": int,
            "at": str,
            "kind": str,
            "actor": str,
            "action": str,
            "scope": OPTIONAL_TEXT,
            "name": OPTIONAL_TEXT,
            "version": OPTIONAL_TEXT,
            "before": OPTIONAL_OBJECT,
            "after": OPTIONAL_OBJECT,
        }
    ]
}
SEARCH_PAGE = {
    "widgets": [
        {
            "scope": str,
            "name": str,
            "displayName": str,
            "description": OPTIONAL_TEXT,
            "isOfficial": (bool, NoneType),
            "downloadCount": OPTIONAL_NUMBER,
            "latestVersion": Optional(
                {"version": str, "publishedAt": str, "deprecationMessage": OPTIONAL_TEXT}
            ),
        }
    ],
    "total": int,
}
SIZE = {"w": int, "h": int}
DETAIL = {
    "widget": {
        "displayName": str,
        "description": OPTIONAL_TEXT,
        "icon": OPTIONAL_TEXT,
        "isOfficial": (bool, NoneType),
        "downloadCount": OPTIONAL_NUMBER,
        "createdAt": str,
    },
    "versions": [
        {
            "version": str,
            "bundleUrl": str,
            "bundleSize": int,
            "sha256Hash": str,
            "publishedAt": str,
            "yanked": bool,
            "yankedReason": OPTIONAL_TEXT,
            "deprecationMessage": OPTIONAL_TEXT,
            "releaseNotes": OPTIONAL_TEXT,
            "displayName": OPTIONAL_TEXT,
            "description": OPTIONAL_TEXT,
            "icon": OPTIONAL_TEXT,
            "minSize": SIZE,
            "maxSize": SIZE,
            "sdkVersion": str,
            "configVersion": object,
            "permissions": [str],
            "license": OPTIONAL_TEXT,
        }
    ],
}
INSTALLS = {
    "days": [{"installs": int}],
    "versions": [{"version": str, "installs": int}],
}
UPDATES = {
    "updates": [
        {
            "scope": str,
            "name": str,
            "installed": str,
            "status": str,
            "reason": str,
            "yanked": (bool, NoneType),
            "yankedReason": OPTIONAL_TEXT,
            "deprecationMessage": OPTIONAL_TEXT,
            "update": Optional({"version": str}),
        }
    ]
}
