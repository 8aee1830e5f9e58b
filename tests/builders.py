"""Widget documents for tests: valid and minimal, with the fields that a test sets."""

import hashlib
import struct
from typing import Any

from catalog.documents import Json as Json


def document(path: str = "acme/clock", /, *versions: Json, **fields: Any) -> Json:
    """Return the widget document of scope/name; keyword arguments are fields of the widget."""
    scope, name = path.split("/")
    widget = {"scope": scope, "name": name, "displayName": name.title(), **fields}
    return {"widget": widget, "versions": list(versions)}


def version(number: str = "1.0.0", /, **fields: Any) -> Json:
    """Return a version of a widget document; keyword arguments are its fields."""
    return {
        "version": number,
        "bundleUrl": f"https://cdn.example.com/bundles/{number.replace('+', '%2B')}.js",
        "bundleSize": 1234,
        "sha256Hash": "0123456789abcdef" * 4,
        "publishedAt": "2025-01-02T03:04:05.000Z",
        "sdkVersion": "^1.0.0",
        **fields,
    }


def bundled(number: str, content: bytes, **fields: Any) -> Json:
    """Return a version whose bundle has this content."""
    sha256 = hashlib.sha256(content).hexdigest()
    return version(number, bundleSize=len(content), sha256Hash=sha256, **fields)


def png(width: int = 4, height: int = 3, more: bytes = b"") -> bytes:
    """Return the beginning of a PNG file of this size, and other bytes."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + more


def described(picture: bytes) -> Json:
    """Return what a document says of a PNG file."""
    width, height = struct.unpack_from(">II", picture, 16)
    size = {"size": len(picture), "width": width, "height": height}
    return {"type": "image/png", **size, "sha256Hash": hashlib.sha256(picture).hexdigest()}
