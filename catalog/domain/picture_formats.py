"""Reads the size of a picture from a PNG, JPEG or WebP file.

A decoder follows the structure of a file, so a reader that only looks for a size at the usual place
can be misled. Each reader here walks through the whole file and raises ValueError at the first byte
that it cannot account for. No reader decodes pixels. avif.py reads AVIF files.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import TypeVar
from zlib import crc32

# Width and height in pixels.
Size = tuple[int, int]
Part = TypeVar("Part")
# The maximum number of parts: a small file with more parts is meant to keep a reader busy.
MAX_PARTS = 1000


def limited(parts: Iterable[Part], most: int = MAX_PARTS) -> Iterator[Part]:
    """Yield the parts of a file; raise ValueError if there are too many."""
    for number, part in enumerate(parts):
        if number == most:
            raise ValueError("it has too many parts")
        yield part


PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Decoders must understand chunks with an upper-case first letter, and may skip all others.
PNG_CRITICAL = {b"PLTE", b"IDAT", b"IEND"}
PNG_CHUNK_TYPE = re.compile(b"[A-Za-z]{4}")
# The bit depths that each colour type allows.
PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def read_png(content: bytes) -> Size:
    """Return the size of a PNG file."""
    (kind, data), *chunks = limited(_png_chunks(content))
    width, height = _read_png_header(kind, data)
    for kind, data in chunks:
        if kind[:1].isupper() and kind not in PNG_CRITICAL:
            raise ValueError("it has an unknown chunk")
        if kind == b"fcTL":
            # An animation frame must fit into the picture.
            frame_width, frame_height, x, y = struct.unpack_from(">4I", data, 4)
            if x + frame_width > width or y + frame_height > height:
                raise ValueError("a frame is larger than the picture")
    if kind != b"IEND" or all(kind != b"IDAT" for kind, _ in chunks):
        raise ValueError("it is incomplete")
    return width, height


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and data of each chunk; the last chunk must be IEND."""
    place = len(PNG_SIGNATURE)
    kind = b""
    while place < len(content):
        if kind == b"IEND":
            raise ValueError("it has extra bytes after its end")
        length, kind = struct.unpack_from(">I4s", content, place)
        data = content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, place + 8 + length)
        if not PNG_CHUNK_TYPE.fullmatch(kind) or checksum != crc32(kind + data):
            raise ValueError("a chunk is damaged")
        yield kind, data
        place += 12 + length


def _read_png_header(kind: bytes, data: bytes) -> Size:
    width, height, depth, colour, *methods = struct.unpack(">IIBBBBB", data)
    compression, filter_, interlace = methods
    known_methods = (compression, filter_) == (0, 0) and interlace in (0, 1)
    if kind != b"IHDR" or depth not in PNG_DEPTHS.get(colour, ()) or not known_methods:
        raise ValueError("its header is invalid")
    return width, height


# Browsers decode only baseline, extended and progressive frames.
JPEG_FRAMES = {0xC0, 0xC1, 0xC2}
JPEG_SCAN = 0xDA
JPEG_END = 0xD9
# Segments with a length: Huffman and quantization tables, the restart interval, application data
# and comments. Any other marker either has no length or changes the size of the picture.
JPEG_SEGMENTS = {0xC4, 0xDA, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE} | JPEG_FRAMES
# Any number of FF bytes may precede a marker's code.
JPEG_MARKER = re.compile(rb"\xff+([^\xff])", re.DOTALL)
# Finds the end of a scan's data. In the data, 00 escapes FF, and restart markers may occur.
JPEG_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)


def read_jpeg(content: bytes) -> Size:
    """Return the size of a JPEG file."""
    segments = list(limited(_jpeg_segments(content)))
    frames = [data for kind, data in segments if kind in JPEG_FRAMES]
    if len(frames) != 1 or all(kind != JPEG_SCAN for kind, _ in segments):
        raise ValueError("it must have exactly one frame, and at least one scan")
    precision, height, width, components = struct.unpack_from(">BHHB", frames[0])
    if precision not in (8, 12) or not components or len(frames[0]) != 6 + 3 * components:
        raise ValueError("its frame is invalid")
    return width, height


def _jpeg_segments(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the marker and the data of each segment, but not the data of scans."""
    place = 2
    while marker := JPEG_MARKER.match(content, place):
        kind, place = marker[1][0], marker.end()
        if kind == JPEG_END:
            if place != len(content):
                raise ValueError("it has extra bytes after its end")
            return
        if kind not in JPEG_SEGMENTS:
            raise ValueError(f"its marker {kind:02X} is not supported")
        (length,) = struct.unpack_from(">H", content, place)
        if length < 2:
            raise ValueError("a segment is damaged")
        yield kind, content[place + 2 : place + length]
        place += length
        if kind == JPEG_SCAN:
            after = JPEG_AFTER_SCAN.search(content, place)
            place = after.start() if after else len(content)
    raise ValueError("it is incomplete, or has bytes between its segments")


WEBP_METADATA = (b"ICCP", b"ANIM", b"ALPH", b"EXIF", b"XMP ")
# The type of a chunk, and the positions where its content begins and ends.
Chunk = tuple[bytes, int, int]


def read_webp(content: bytes) -> Size:
    """Return the size of a WebP file."""
    (length,) = struct.unpack_from("<I", content, 4)
    if length != len(content) - 8:
        raise ValueError("it is incomplete or has extra bytes after its end")
    (kind, start, end), *chunks = limited(_webp_chunks(content, 12, len(content)))
    if kind != b"VP8X":
        if chunks:
            raise ValueError("it has more than one image")
        return _webp_image_size(content, kind, start)
    if end - start != 10:
        raise ValueError("its header is invalid")
    canvas = _webp_sides(content, start + 4)
    frames = [chunk for chunk in chunks if chunk[0] == b"ANMF"]
    for _, start, end in frames:
        x, y = (2 * (side - 1) for side in _webp_sides(content, start))
        width, height = _webp_sides(content, start + 6)
        if x + width > canvas[0] or y + height > canvas[1]:
            raise ValueError("a frame is larger than the picture")
        image = limited(_webp_chunks(content, start + 16, end))
        _check_webp_image(content, image, (width, height))
    if not frames:
        _check_webp_image(content, chunks, canvas)
    elif any(kind not in (b"ANMF", *WEBP_METADATA) for kind, _, _ in chunks):
        raise ValueError("it has an unknown chunk")
    return canvas


def _check_webp_image(content: bytes, chunks: Iterable[Chunk], size: Size) -> None:
    """Raise ValueError unless the chunks contain exactly one image, with this size."""
    images = [(kind, start) for kind, start, _ in chunks if kind not in WEBP_METADATA]
    if [_webp_image_size(content, *image) for image in images] != [size]:
        raise ValueError("its image and the picture differ in size")


def _webp_chunks(content: bytes, place: int, end: int) -> Iterator[Chunk]:
    while place < end:
        kind, length = struct.unpack_from("<4sI", content, place)
        start = place + 8
        # A chunk of odd length is followed by a padding byte.
        place = start + length + length % 2
        if place > end or (length % 2 and content[place - 1]):
            raise ValueError("a chunk is damaged")
        yield kind, start, start + length


def _webp_image_size(content: bytes, kind: bytes, start: int) -> Size:
    if kind == b"VP8L" and content[start] == 0x2F:
        (bits,) = struct.unpack_from("<I", content, start + 1)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    # In a key frame, the lowest bit is 0, and this start code follows the first three bytes.
    has_start_code = content[start + 3 : start + 6] == b"\x9d\x01\x2a"
    if kind == b"VP8 " and has_start_code and not content[start] & 1:
        width, height = struct.unpack_from("<HH", content, start + 6)
        return width & 0x3FFF, height & 0x3FFF
    raise ValueError("it has an unknown chunk")


def _webp_sides(content: bytes, place: int) -> Size:
    """Return a width and a height; the file stores each minus one, in 24 bits."""
    first, second = struct.unpack_from("<3s3s", content, place)
    return 1 + int.from_bytes(first, "little"), 1 + int.from_bytes(second, "little")
