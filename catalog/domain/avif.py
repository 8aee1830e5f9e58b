"""Reads the size of a still image from an AVIF file, as a decoder would find it.

An AVIF file is a tree of boxes. The size is a property of the primary item, but the item's AV1 data
also contains a size, and a decoder allocates memory for that second size. This module rejects
a file unless both sizes of every image are equal. It also rejects image sequences, grids and other
derived images, and boxes that a still image does not need.
"""

import struct
from collections.abc import Iterator

from .picture_formats import Size, limited

# The type and content of each box. The content of a full box begins with a version and flags.
Boxes = list[tuple[bytes, bytes]]
FILE_BOXES = {b"ftyp", b"meta", b"mdat", b"free"}
META_BOXES = {b"hdlr", b"pitm", b"iloc", b"iinf", b"iprp", b"iref", b"idat", b"grpl", b"free"}
# The maximum number of boxes in a box, items in a file, and properties or parts of an item.
MAX_COUNT = 100
IMAGE = b"av01"
# The types of items that no decoder renders.
METADATA = (b"Exif", b"mime")
# The type of AV1 data units that contain a sequence header.
SEQUENCE_HEADER = 1
# Unless a picture uses the reduced still-picture header, each frame may set its own size. The
# sequence header says how many bits encode a frame size: 12 bits allow 4096 pixels.
MAX_SIZE_BITS = 12


class Fields:
    """Reads consecutive numbers from a byte string."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0  # bits

    def bits(self, count: int) -> int:
        """Return the number in the next bits; raise ValueError if there are too few bits left."""
        first, self._place = self._place // 8, self._place + count
        if self._place > 8 * len(self._data):
            raise ValueError("it is incomplete")
        number = int.from_bytes(self._data[first : -(-self._place // 8)], "big")
        return number >> -self._place % 8 & (1 << count) - 1

    def bytes(self, count: int) -> int:
        """Return the number in the next bytes; raise ValueError if there are too few bytes left."""
        return self.bits(8 * count)


def read_avif(content: bytes) -> Size:
    """Return the size of an AVIF file; raise ValueError if it is not a plain still image."""
    boxes = _read_boxes(content)
    if boxes[0][0] != b"ftyp" or not {kind for kind, _ in boxes} <= FILE_BOXES:
        raise ValueError("it has an unknown box")
    meta = _only(boxes, b"meta")
    children = _read_boxes(meta[4:])
    if not {kind for kind, _ in children} <= META_BOXES:
        raise ValueError("it has an unknown box")
    types = _item_types(_only(children, b"iinf"))
    sizes = _item_sizes(_read_boxes(_only(children, b"iprp")))
    idat = b"".join(data for kind, data in children if kind == b"idat")
    locations = _item_locations(_only(children, b"iloc"))
    # Items that share their data would make this reader copy the data many times.
    if sum(length for extents in locations.values() for _, _, length in extents) > len(content):
        raise ValueError("its items overlap")
    primary = _read_item_id(Fields(_only(children, b"pitm")))
    width, height = sizes[primary]
    for item, kind in types.items():
        if kind in METADATA:
            continue
        if kind != IMAGE:
            raise ValueError("it has an image that is derived from others")
        data = b"".join(
            (idat if in_idat else content)[start : start + length]
            for in_idat, start, length in locations[item]
        )
        if _sequence_sizes(data) != {sizes[item]}:
            raise ValueError("its image and the picture differ in size")
        # The other images are masks and thumbnails, which must not be larger than the picture.
        if sizes[item][0] > width or sizes[item][1] > height:
            raise ValueError("it has an image that is larger than the picture")
    if types[primary] != IMAGE:
        raise ValueError("it has no image")
    return width, height


def _read_boxes(data: bytes) -> Boxes:
    """Return all boxes in the data; raise ValueError if one is damaged or there are too many."""
    return list(limited(_boxes(data), MAX_COUNT))


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 0
    while place < len(data):
        # Sizes 0 and 1 have special meanings that a still image does not need.
        size, kind = struct.unpack_from(">I4s", data, place)
        if size < 8 or place + size > len(data):
            raise ValueError("a box is damaged")
        yield kind, data[place + 8 : place + size]
        place += size


def _only(boxes: Boxes, kind: bytes) -> bytes:
    """Return the content of the box of this type; raise ValueError unless there is exactly one."""
    contents = [data for each, data in boxes if each == kind]
    if len(contents) != 1:
        raise ValueError(f"it must have exactly one {kind.decode()} box")
    return contents[0]


def _read_item_id(fields: Fields) -> int:
    """Return the item number after the version and flags of a pitm or infe box."""
    version = fields.bytes(1)
    fields.bytes(3)
    return fields.bytes(2 if version in (0, 2) else 4)


def _item_types(data: bytes) -> dict[int, bytes]:
    """Return the type of each item, from the content of the iinf box."""
    start = 6 if data[0] == 0 else 8
    types: dict[int, bytes] = {}
    for kind, entry in _read_boxes(data[start:]):
        item = _read_item_id(Fields(entry))
        if kind != b"infe" or entry[0] not in (2, 3) or item in types:
            raise ValueError("an item is not supported")
        place = 8 if entry[0] == 2 else 10
        types[item] = entry[place : place + 4]
    return types


def _item_sizes(boxes: Boxes) -> dict[int, Size]:
    """Return the size of each item that has one, from the boxes in the iprp box."""
    properties = _read_boxes(_only(boxes, b"ipco"))
    associations = _only(boxes, b"ipma")
    fields = Fields(associations)
    version, flags, count = fields.bytes(1), fields.bytes(3), fields.bytes(4)
    sizes: dict[int, Size] = {}
    for _ in limited(range(count), MAX_COUNT):
        item = fields.bytes(4 if version else 2)
        for _ in limited(range(fields.bytes(1)), MAX_COUNT):
            # The first bit tells whether the property is essential.
            index = fields.bytes(1 + (flags & 1)) & (0x7FFF if flags & 1 else 0x7F)
            kind, data = properties[index - 1] if index else (b"", b"")
            if kind == b"ispe":
                reserved, width, height = struct.unpack(">III", data)
                if reserved or item in sizes:
                    raise ValueError("an image has more than one size")
                sizes[item] = width, height
    return sizes


def _item_locations(data: bytes) -> dict[int, list[tuple[bool, int, int]]]:
    """Return the parts of each item; a part is a tuple (is in idat, offset, length)."""
    fields = Fields(data)
    version = fields.bytes(1)
    fields.bytes(3)
    offset_bytes, length_bytes, base_bytes, index_bytes = (fields.bits(4) for _ in range(4))
    id_bytes = 4 if version == 2 else 2
    locations: dict[int, list[tuple[bool, int, int]]] = {}
    for _ in limited(range(fields.bytes(id_bytes)), MAX_COUNT):
        item = fields.bytes(id_bytes)
        method = fields.bytes(2) if version else 0
        source = fields.bytes(2)
        base = fields.bytes(base_bytes)
        extents = []
        for _ in limited(range(fields.bytes(2)), MAX_COUNT):
            if version and index_bytes:
                fields.bytes(index_bytes)
            offset, length = base + fields.bytes(offset_bytes), fields.bytes(length_bytes)
            extents.append((method == 1, offset, length))
        # Reject data in another file or in other items, and a second item with the same number.
        if method > 1 or source or item in locations:
            raise ValueError("an item is not supported")
        locations[item] = extents
    return locations


def _sequence_sizes(data: bytes) -> set[Size]:
    """Return the sizes in the sequence headers of AV1 data."""
    return {_sequence_size(unit) for kind, unit in limited(_units(data)) if kind == SEQUENCE_HEADER}


def _units(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each unit of AV1 data."""
    place = 0
    while place < len(data):
        header = data[place]
        place += 2 if header & 4 else 1
        length = len(data) - place
        # The last unit may lack a length.
        if header & 2:
            length, place = _read_leb128(data, place)
        if header & 0x80 or place + length > len(data):
            raise ValueError("its image is damaged")
        yield header >> 3 & 15, data[place : place + length]
        place += length


def _read_leb128(data: bytes, place: int) -> tuple[int, int]:
    """Return a number that is stored in groups of seven bits, and the position after it."""
    number = 0
    for index in range(8):
        byte = data[place + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, place + index + 1
    raise ValueError("its image is damaged")


def _sequence_size(data: bytes) -> Size:
    """Return the maximum frame size in a sequence header (AV1 specification, 5.5)."""
    fields = Fields(data)
    # Skip seq_profile and still_picture, and read reduced_still_picture_header.
    fields.bits(4)
    has_short_header = fields.bits(1)
    if has_short_header:
        fields.bits(5)
    else:
        if fields.bits(1):
            raise ValueError("its image has timing information")
        has_display_delay = fields.bits(1)
        for _ in range(fields.bits(5) + 1):
            fields.bits(12)
            if fields.bits(5) > 7:
                fields.bits(1)
            if has_display_delay and fields.bits(1):
                fields.bits(4)
    width_bits, height_bits = fields.bits(4) + 1, fields.bits(4) + 1
    if not has_short_header and max(width_bits, height_bits) > MAX_SIZE_BITS:
        raise ValueError("its frames can be larger than the picture")
    return fields.bits(width_bits) + 1, fields.bits(height_bits) + 1
