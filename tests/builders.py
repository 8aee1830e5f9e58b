"""Widget documents for tests: valid and minimal, with the fields that a test sets."""

import hashlib
import struct
from typing import Any
from zlib import compress, crc32

from catalog.domain.documents import Json as Json


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


def png(width: int = 4, height: int = 3, comment: bytes = b"") -> bytes:
    """Return a black PNG file of this size, or without its pixels if it is large."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = bytes((1 + (width + 7) // 8) * height) if width * height < 1_000_000 else b""
    chunks = {b"IHDR": header, b"tEXt": b"Comment\0" + comment, b"IDAT": compress(rows)}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        png_chunk(kind, data) for kind, data in {**chunks, b"IEND": b""}.items()
    )


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))


def described(picture: bytes) -> Json:
    """Return what a document says of a PNG file."""
    width, height = struct.unpack_from(">II", picture, 16)
    size = {"size": len(picture), "width": width, "height": height}
    return {"type": "image/png", **size, "sha256Hash": hashlib.sha256(picture).hexdigest()}
