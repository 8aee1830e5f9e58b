"""Type and size of a picture, from a complete and strict reading of its file.

The files in data/pictures show the same drawing, as common programs write it.
"""

import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builders import png, png_chunk

from catalog.domain.pictures import check_picture, describe_picture

PICTURES = Path(__file__).parent.parent / "data" / "pictures"
FILES = {path.name: path.read_bytes() for path in sorted(PICTURES.iterdir())} | {
    "made by hand.png": png(64, 48, b"pixels")
}
FILES["fill bytes.jpeg"] = FILES["baseline.jpeg"].replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1)
AVIF, WEBP, JPEG = FILES["libavif.avif"], FILES["metadata.webp"], FILES["baseline.jpeg"]
# A frame of a JPEG with 8 x 8 grey pixels
FRAME = b"\xff\xc0\0\x0b\x08\0\x08\0\x08\1\1\x11\0"


@pytest.mark.parametrize("name", FILES)
def test_files_of_common_programs_are_accepted(name: str) -> None:
    content = FILES[name]
    picture = describe_picture(content)
    assert picture["type"] == f"image/{name.rpartition('.')[2]}"
    assert (picture["width"], picture["height"], picture["size"]) == (64, 48, len(content))


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    assert content.count(old) >= 1
    return content.replace(old, new, 1)


def with_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a PNG file of 64 x 48 pixels with this chunk before the last one."""
    end = png_chunk(b"IEND", b"")
    return png(64, 48).removesuffix(end) + png_chunk(kind, data) + end


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a WebP file of these chunks."""
    body = b"WEBP"
    for kind, data in chunks:
        body += kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def sides(*numbers: int) -> bytes:
    """Return numbers of 24 bits."""
    return b"".join(number.to_bytes(3, "little") for number in numbers)


def canvas(width: int, height: int) -> tuple[bytes, bytes]:
    return b"VP8X", bytes(4) + sides(width - 1, height - 1)


def lossless(width: int, height: int) -> tuple[bytes, bytes]:
    return b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14)


def frame(x: int, y: int, *image: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return a frame of an animation, of 8 x 8 pixels."""
    return b"ANMF", sides(x // 2, y // 2, 7, 7, 0) + b"\0" + riff(*image)[12:]


def box(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data) + 8) + kind + data


def wide_frames(content: bytes) -> bytes:
    """Return the AVIF file of ffmpeg with 16 bits for the sides of each frame."""
    # The header of this file is not that of a still image: 6 bits for each side, then 63 and 47.
    start = content.index(b"\x0a\x0d") + 2
    bits = f"{int.from_bytes(content[start : start + 13], 'big'):0104b}"
    place = bits.index("01010101" + f"{63:06b}" + f"{47:06b}")
    new = bits[:place] + "11111111" + f"{63:016b}" + f"{47:016b}" + bits[place + 20 :]
    data = int(new[:104], 2).to_bytes(13, "big")
    return content[:start] + data + content[start + 13 :]


OTHER_FORMATS = {
    "nothing": b"",
    "text": b"A picture of a clock",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="3"/>',
    "SVG with a declaration": b'<?xml version="1.0"?><svg width="4" height="3"/>',
    "GIF": b"GIF89a\x04\0\x03\0",
    "HEIC": replaced(AVIF, b"ftypavif", b"ftypheic"),
    "AVIF sequence": replaced(AVIF, b"ftypavif", b"ftypavis"),
    "WebP in another container": replaced(WEBP, b"RIFF", b"RIFX"),
}
WRONG_SIZES = {
    "no width": png(0, 3),
    "no height": png(4, 0),
    "too wide": png(4097, 3),
    "too high": png(4, 4097),
    "a JPEG without a height": replaced(JPEG, b"\x08\0\x30\0\x40", b"\x08\0\0\0\x40"),
    "a wide WebP": riff(lossless(4097, 3)),
}
UNCLEAR = {
    "too large": (png(4, 3, bytes(512 * 1024)), "it is too large"),
    "PNG with HTML after its signature": (
        b"\x89PNG\r\n\x1a\n<script>alert(1)</script>",
        "it is incomplete or damaged",
    ),
    "PNG with bytes after its end": (png(64, 48) + b"<html>", "it has extra bytes after its end"),
    "PNG with two headers": (
        with_chunk(b"IHDR", struct.pack(">IIBBBBB", 9999, 9999, 8, 2, 0, 0, 0)),
        "it has an unknown chunk",
    ),
    "PNG with an unknown critical chunk": (with_chunk(b"CgBI", b""), "it has an unknown chunk"),
    "PNG with a wrong checksum": (replaced(png(), b"Comment", b"comment"), "a chunk is damaged"),
    "PNG with a large frame": (
        with_chunk(b"fcTL", struct.pack(">IIIII", 0, 64, 48, 1, 0) + bytes(6)),
        "a frame is larger than the picture",
    ),
    "PNG without pixels": (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, 2, 0, 0, 0))
        + png_chunk(b"IEND", b""),
        "it is incomplete",
    ),
    "PNG with an unknown colour type": (
        b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, 5, 0, 0, 0)),
        "its header is invalid",
    ),
    "PNG of many chunks": (
        png().removesuffix(png_chunk(b"IEND", b"")) + png_chunk(b"tEXt", b"") * 1000,
        "it has too many parts",
    ),
    # A decoder skips these two markers, which have no length.
    "JPEG with a restart marker": (
        replaced(JPEG, b"\xff\xd8", b"\xff\xd8\xff\xd0" + FRAME),
        "its marker D0 is not supported",
    ),
    "JPEG with a temporary marker": (
        replaced(JPEG, b"\xff\xd8", b"\xff\xd8\xff\x01" + FRAME),
        "its marker 01 is not supported",
    ),
    "JPEG with two frames": (
        replaced(JPEG, b"\xff\xd8", b"\xff\xd8" + FRAME),
        "it must have exactly one frame, and at least one scan",
    ),
    "JPEG with a lossless frame": (
        replaced(JPEG, b"\xff\xc0", b"\xff\xc3"),
        "its marker C3 is not supported",
    ),
    "JPEG that sets its height at the end": (
        JPEG.removesuffix(b"\xff\xd9") + b"\xff\xdc\0\4\x2e\xe0\xff\xd9",
        "its marker DC is not supported",
    ),
    "JPEG with bytes after its end": (JPEG + b"\0", "it has extra bytes after its end"),
    "JPEG with bytes between segments": (
        replaced(JPEG, b"\xff\xd8", b"\xff\xd8\0"),
        "it is incomplete, or has bytes between its segments",
    ),
    "JPEG without a frame": (
        b"\xff\xd8\xff\xda\0\2\xff\xd9",
        "it must have exactly one frame, and at least one scan",
    ),
    "JPEG without a scan": (
        b"\xff\xd8" + FRAME + b"\xff\xd9",
        "it must have exactly one frame, and at least one scan",
    ),
    "JPEG of fill bytes": (
        b"\xff\xd8" + b"\xff" * 1000,
        "it is incomplete, or has bytes between its segments",
    ),
    "WebP with another length": (
        WEBP + b"\0\0",
        "it is incomplete or has extra bytes after its end",
    ),
    "WebP of two images": (
        riff(lossless(64, 48), lossless(64, 48)),
        "it has more than one image",
    ),
    "WebP of an unknown kind": (riff((b"VP9 ", bytes(40))), "it has an unknown chunk"),
    "WebP that is not a key frame": (
        riff((b"VP8 ", b"\1\0\0\x9d\x01\x2a" + bytes(20))),
        "it has an unknown chunk",
    ),
    "WebP with an image that is larger than its canvas": (
        riff(canvas(64, 48), lossless(9999, 9999)),
        "its image and the picture differ in size",
    ),
    "WebP with two images on its canvas": (
        riff(canvas(64, 48), lossless(64, 48), lossless(64, 48)),
        "its image and the picture differ in size",
    ),
    "WebP with a canvas only": (
        riff(canvas(64, 48)),
        "its image and the picture differ in size",
    ),
    "WebP with a frame outside of its canvas": (
        riff(canvas(64, 48), (b"ANIM", bytes(6)), frame(58, 0, lossless(8, 8))),
        "a frame is larger than the picture",
    ),
    "WebP with a frame of another size": (
        riff(canvas(64, 48), (b"ANIM", bytes(6)), frame(0, 0, lossless(9999, 8))),
        "its image and the picture differ in size",
    ),
    "WebP with an image beside its frames": (
        riff(canvas(64, 48), frame(0, 0, lossless(8, 8)), lossless(9999, 8)),
        "it has an unknown chunk",
    ),
    "WebP with a byte that is not part of a chunk": (
        riff((b"VP8L", lossless(64, 48)[1]))[:-1] + b"<",
        "a chunk is damaged",
    ),
    # libavif ignores the flags, and scales an image to the size that it finds beside it.
    "AVIF with flags in its size": (
        replaced(AVIF, b"ispe\0\0\0\0", b"ispe\0\0\0\1"),
        "an image has more than one size",
    ),
    "AVIF with a box before its description": (
        replaced(AVIF, b"avif", b"avif")[:32]
        + box(b"uuid", box(b"ispe", struct.pack(">III", 0, 100, 100)))
        + AVIF[32:],
        "it has an unknown box",
    ),
    "AVIF with an unknown box in its description": (
        replaced(AVIF, b"hdlr", b"uuid"),
        "it has an unknown box",
    ),
    "AVIF whose data has another width": (
        replaced(AVIF, b"\x18\x15\x7f", b"\x18\x15\x5f"),
        "its image and the picture differ in size",
    ),
    "AVIF whose frames can have any size": (
        wide_frames(FILES["ffmpeg.avif"]),
        "its frames can be larger than the picture",
    ),
    "AVIF whose thumbnail is shown": (
        replaced(FILES["libheif-thumbnail.avif"], b"pitm\0\0\0\0\0\1", b"pitm\0\0\0\0\0\2"),
        "it has an image that is larger than the picture",
    ),
    "AVIF with an image of two sizes": (
        replaced(AVIF, b"\1\4\1\2\x83\4", b"\1\4\1\1\x83\4"),
        "an image has more than one size",
    ),
    "AVIF of tiles": (
        replaced(AVIF, b"av01Color", b"gridColor"),
        "it has an image that is derived from others",
    ),
    "AVIF with the data of another file": (
        replaced(AVIF, b"\x44\0\0\1\0\1\0\0", b"\x44\0\0\1\0\1\0\1"),
        "an item is not supported",
    ),
    "AVIF with bytes after its end": (AVIF + b"<html>", "it is incomplete or damaged"),
    "AVIF without a description": (
        AVIF[:32],
        "it must have exactly one meta box",
    ),
    "AVIF with two descriptions": (
        AVIF + box(b"meta", bytes(4)),
        "it must have exactly one meta box",
    ),
    "AVIF with a box that has no end": (
        AVIF + b"\0\0\0\0free",
        "a box is damaged",
    ),
}
ALLOWED = "a PNG, JPEG, WebP or AVIF file of at most 524288 bytes and 4096 pixels per side"


@pytest.mark.parametrize("content", OTHER_FORMATS.values(), ids=OTHER_FORMATS)
def test_other_formats_are_refused_with_what_is_allowed(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^a PNG, JPEG, WebP or AVIF file") as refused:
        describe_picture(content)
    assert str(refused.value) == f"{ALLOWED} (its format is not supported)"


@pytest.mark.parametrize("content", WRONG_SIZES.values(), ids=WRONG_SIZES)
def test_pictures_that_are_too_large_or_have_no_size_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\(it is [0-9]+ x [0-9]+ pixels\)$"):
        describe_picture(content)


@pytest.mark.parametrize(("content", "reason"), UNCLEAR.values(), ids=UNCLEAR)
def test_a_file_that_a_decoder_could_read_otherwise_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^a PNG, JPEG, WebP or AVIF file") as refused:
        describe_picture(content)
    assert str(refused.value) == f"{ALLOWED} ({reason})"


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
    comment = bytes(512 * 1024 - len(png(4096, 4096)))
    picture = describe_picture(png(4096, 4096, comment))
    assert (picture["size"], picture["width"], picture["height"]) == (524288, 4096, 4096)


@pytest.mark.parametrize("name", FILES)
def test_no_file_that_was_cut_is_accepted(name: str) -> None:
    content = FILES[name]
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"^a PNG, JPEG, WebP or AVIF file"):
            describe_picture(content[:length])


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_described_or_refused(name: str) -> None:
    content = FILES[name]
    generator = random.Random(content)  # noqa: S311
    for _ in range(300):
        damaged = bytearray(content)
        damaged[generator.randrange(len(content))] = generator.randrange(256)
        with suppress(ValueError):
            picture: Any = describe_picture(bytes(damaged))
            assert min(picture["width"], picture["height"]) > 0
            assert max(picture["width"], picture["height"]) <= 4096
            assert check_picture(picture)
