"""Pictures of widgets: their type and size, read from the first bytes without an image library.

SVG is refused, since it can carry scripts.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from hashlib import sha256

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

NUMBERS = ("size", "width", "height")
# Width and height.
Size = tuple[int, int]


def describe_picture(content: bytes) -> dict[str, object]:
    """Return what the API says of a picture, without its URL; raise ValueError(ALLOWED)."""
    types = [type_ for type_, (is_type, _) in FORMATS.items() if is_type(content)]
    try:
        if len(content) > MAX_PICTURE_BYTES or not types:
            raise ValueError
        width, height = FORMATS[types[0]][1](content)
        picture = {"type": types[0], "size": len(content), "width": width, "height": height}
        picture["sha256Hash"] = sha256(content).hexdigest()
        check_picture(picture)
        return picture
    except (struct.error, IndexError, ValueError):
        raise ValueError(ALLOWED) from None


def check_picture(value: object) -> str:
    """Return what a document says of a picture as JSON; raise ValueError."""
    try:
        if not isinstance(value, Mapping) or value.get("type") not in FORMATS:
            raise ValueError
        size, width, height = (check_whole_number(value.get(key)) for key in NUMBERS)
        is_small = size <= MAX_PICTURE_BYTES and max(width, height) <= MAX_SIDE
        if not is_small or min(size, width, height) == 0:
            raise ValueError
        numbers = dict(zip(NUMBERS, (size, width, height), strict=True))
        hash_ = check_sha256(value.get("sha256Hash"))
        return json.dumps({"type": value["type"], **numbers, "sha256Hash": hash_})
    except ValueError:
        raise ValueError(f"the type, {', '.join(NUMBERS)} and sha256Hash of {ALLOWED}") from None


def _png_size(content: bytes) -> Size:
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _jpeg_size(content: bytes) -> Size:
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


def _webp_size(content: bytes) -> Size:
    kind = content[12:16]
    if kind == b"VP8X":
        return 1 + _little(content[24:27]), 1 + _little(content[27:30])
    if kind == b"VP8L" and content[20] == 0x2F:
        bits = _little(content[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _avif_size(content: bytes) -> Size:
    """Return the size of the largest image: tiles and thumbnails are smaller."""
    width, height = max(struct.unpack(">II", match[1]) for match in AVIF_SIZE.finditer(content))
    return width, height


# By the media type: whether the first bytes are of this format, and what reads the size.
FORMATS: dict[object, tuple[Callable[[bytes], bool], Callable[[bytes], Size]]] = {
    "image/png": (lambda data: data[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", _png_size),
    "image/jpeg": (lambda data: data[:3] == b"\xff\xd8\xff", _jpeg_size),
    "image/webp": (lambda data: data[:4] + data[8:12] == b"RIFFWEBP", _webp_size),
    "image/avif": (lambda data: data[4:12] in (b"ftypavif", b"ftypavis"), _avif_size),
}
