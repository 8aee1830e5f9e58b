"""Pictures of widgets: their type and size, read from the first bytes without an image library.

SVG is refused, since it can carry scripts.
"""

import json
import re
import struct
from collections.abc import Mapping
from hashlib import sha256

from .text import NotAllowedError
from .validators import check_sha256, check_whole_number

MAX_PICTURE_BYTES = 512 * 1024
MAX_SIDE = 4096  # pixels
ALLOWED = (
    f"a PNG, JPEG, WebP or AVIF file of at most {MAX_PICTURE_BYTES} bytes "
    f"and {MAX_SIDE} pixels a side"
)
# A property of an image in an AVIF file.
AVIF_SIZE = re.compile(rb"\0\0\0\x14ispe\0{4}(.{8})", re.DOTALL)
# Segments of a JPEG with its size: all kinds of frames, but not tables between them.
JPEG_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}

TYPES = ("image/png", "image/jpeg", "image/webp", "image/avif")
NUMBERS = ("size", "width", "height")


def describe_picture(content: bytes) -> dict[str, object]:
    """Return what the API says of a picture, without its URL; raise NotAllowedError(ALLOWED)."""
    try:
        type_, width, height = _read_header(content[:MAX_PICTURE_BYTES])
        picture = {"type": type_, "size": len(content), "width": width, "height": height}
        picture["sha256Hash"] = sha256(content).hexdigest()
        check_picture(picture)
        return picture
    except (struct.error, ValueError):
        raise NotAllowedError(ALLOWED) from None


def check_picture(value: object) -> str:
    """Return what a document says of a picture as JSON; raise ValueError."""
    try:
        if not isinstance(value, Mapping) or value.get("type") not in TYPES:
            raise ValueError
        numbers = {key: check_whole_number(value.get(key)) for key in NUMBERS}
        size, *sides = numbers.values()
        if not 0 < size <= MAX_PICTURE_BYTES or not 0 < min(sides) <= max(sides) <= MAX_SIDE:
            raise ValueError
        hash_ = check_sha256(value.get("sha256Hash"))
        return json.dumps({"type": value["type"], **numbers, "sha256Hash": hash_})
    except ValueError:
        fields = f"the type, {', '.join(NUMBERS)} and sha256Hash"
        raise NotAllowedError(f"{fields} of {ALLOWED}") from None


def _read_header(content: bytes) -> tuple[str, int, int]:
    """Return the media type, the width and the height."""
    if content.startswith(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        return "image/png", *struct.unpack_from(">II", content, 16)
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", *_jpeg_size(content)
    if content[:4] + content[8:12] == b"RIFFWEBP":
        return "image/webp", *_webp_size(content)
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        # The largest image: tiles and thumbnails are smaller.
        sizes = (struct.unpack(">II", match[1]) for match in AVIF_SIZE.finditer(content))
        return "image/avif", *max(sizes)
    raise ValueError


def _jpeg_size(content: bytes) -> tuple[int, int]:
    place = 2
    while True:
        start, kind, length = struct.unpack_from(">BBH", content, place)
        if start != 0xFF:
            raise ValueError
        if kind in JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        # A fill byte may stand before a segment.
        place += 1 if kind == 0xFF else 2 + max(length, 2)


def _webp_size(content: bytes) -> tuple[int, int]:
    kind, start, bits = struct.unpack_from("<4s4xBI", content, 12)
    if kind == b"VP8X":
        # Two numbers of 24 bits.
        sides = struct.unpack_from("<3s3s", content, 24)
        return 1 + int.from_bytes(sides[0], "little"), 1 + int.from_bytes(sides[1], "little")
    if kind == b"VP8L" and start == 0x2F:
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError
