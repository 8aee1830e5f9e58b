"""Type and size of a picture, from its first bytes."""

import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from builders import png

from catalog.pictures import check_picture, describe_picture

FRAME = b"\xff\xc2\0\x11\x08" + struct.pack(">HH", 30, 40)
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0" + b"\0" * 9
# A thumbnail, whose frame is in a segment before the one of the picture.
THUMBNAIL = b"\xff\xe1\0\x0b" + b"\xff\xc0\0\x11\x08\0\x01\0\x02"
ISPE = b"\0\0\0\x14ispe\0\0\0\0"
AVIF = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1" + b"\0\0\0\x80meta\0\0\0\0"
FILES = {
    "PNG": (png(40, 30), "image/png"),
    "JPEG": (JPEG + FRAME, "image/jpeg"),
    "JPEG with a thumbnail, tables and fill bytes": (
        JPEG + THUMBNAIL + b"\xff\xc4\0\x04ab" + b"\xff\xff" + FRAME,
        "image/jpeg",
    ),
    "lossy WebP": (
        b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\x30\x01\x00\x9d\x01\x2a"
        + struct.pack("<HH", 40 | 0x4000, 30),
        "image/webp",
    ),
    "lossless WebP": (
        b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 39 | 29 << 14 | 1 << 28),
        "image/webp",
    ),
    "extended WebP": (b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0\x27\0\0\x1d\0\0", "image/webp"),
    "AVIF": (AVIF + ISPE + struct.pack(">II", 40, 30), "image/avif"),
    "AVIF of tiles": (
        AVIF + ISPE + struct.pack(">II", 20, 30) + ISPE + struct.pack(">II", 40, 30),
        "image/avif",
    ),
}
REFUSED = {
    "nothing": b"",
    "text": b"A picture of a clock",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="3"/>',
    "SVG with a declaration": b'<?xml version="1.0"?><svg width="4" height="3"/>',
    "GIF": b"GIF89a\x04\0\x03\0",
    "HTML after the signature of a PNG": b"\x89PNG\r\n\x1a\n<script>alert(1)</script>",
    "no width": png(0, 3),
    "no height": png(4, 0),
    "too wide": png(4097, 3),
    "too high": png(4, 4097),
    "too large": png(4, 3, bytes(512 * 1024)),
    "a JPEG without a frame": JPEG + b"\xff\xd9",
    "a JPEG of fill bytes": b"\xff\xd8" + b"\xff" * 1000,
    "a JPEG with data between segments": JPEG + b"\0" + FRAME,
    "a WebP of an unknown kind": b"RIFF\0\0\0\0WEBPVP9 " + bytes(40),
    "a HEIC": AVIF.replace(b"ftypavif", b"ftypheic") + ISPE + struct.pack(">II", 40, 30),
    "an AVIF without a size": AVIF,
    "the beginning of a WebP": b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0\x27\0",
}


@pytest.mark.parametrize(("content", "type_"), FILES.values(), ids=FILES)
def test_type_and_size_come_from_the_first_bytes(content: bytes, type_: str) -> None:
    picture = describe_picture(content + b"pixels")
    assert (picture["type"], picture["width"], picture["height"]) == (type_, 40, 30)
    assert picture["size"] == len(content) + 6


DESCRIBED = describe_picture(png())
INVALID: dict[str, object] = {
    "no object": "clock.png",
    "no type": {**DESCRIBED, "type": None},
    "a type that is a list": {**DESCRIBED, "type": ["image/png"]},
    "SVG": {**DESCRIBED, "type": "image/svg+xml"},
    "no size": {**DESCRIBED, "size": 0},
    "a large file": {**DESCRIBED, "size": 512 * 1024 + 1},
    "no width": {**DESCRIBED, "width": 0},
    "a text as height": {**DESCRIBED, "height": "3"},
    "too high": {**DESCRIBED, "height": 4097},
    "no hash": {**DESCRIBED, "sha256Hash": "../../etc/passwd"},
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_a_document_must_describe_an_allowed_picture(value: object) -> None:
    with pytest.raises(ValueError, match=r"^the type, size, width, height and sha256Hash of a PNG"):
        check_picture(value)


def test_the_largest_allowed_picture() -> None:
    content = png(4096, 4096)
    assert describe_picture(content + bytes(512 * 1024 - len(content)))["size"] == 524288


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_other_files_are_refused_with_what_is_allowed(content: bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^a PNG, JPEG, WebP or AVIF file of at most 524288 bytes"
    ):
        describe_picture(content)


@pytest.mark.parametrize(("content", "type_"), FILES.values(), ids=FILES)
def test_a_damaged_file_is_described_or_refused(content: bytes, type_: str) -> None:
    generator = random.Random(content)  # noqa: S311
    damaged = [content[:length] for length in range(len(content))]
    for _ in range(300):
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] = generator.randrange(256)
        damaged.append(bytes(flipped))
    for each in damaged:
        with suppress(ValueError):
            picture: Any = describe_picture(each)
            assert min(picture["width"], picture["height"]) > 0
            assert max(picture["width"], picture["height"]) <= 4096
            assert check_picture(picture)
