"""Widget pictures: PNG, JPEG, WebP and AVIF files of limited size.

describe_picture() checks every file before it becomes a picture, and again before it is sent. SVG
is not allowed, because it can contain scripts.
"""

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

from .. import V1_PREFIX
from .avif import read_avif
from .messages import NotAllowedError
from .picture_formats import PNG_SIGNATURE, read_jpeg, read_png, read_webp
from .validators import check_sha256, check_whole_number

MAX_PICTURE_BYTES = 512 * 1024
MAX_SIDE = 4096  # pixels
ALLOWED = (
    f"a PNG, JPEG, WebP or AVIF file of at most {MAX_PICTURE_BYTES} bytes "
    f"and {MAX_SIDE} pixels per side"
)
TYPES = ("image/png", "image/jpeg", "image/webp", "image/avif")
NUMBERS = ("size", "width", "height")


def describe_picture(content: bytes) -> dict[str, object]:
    """Describe a picture as the API does, but without its URL.

    Raise NotAllowedError unless the file is exactly one complete picture.
    """
    try:
        if len(content) > MAX_PICTURE_BYTES:
            raise ValueError("it is too large")
        type_, width, height = _read_format(content)
    except (struct.error, LookupError):
        raise NotAllowedError(f"{ALLOWED} (it is incomplete or damaged)") from None
    except ValueError as error:
        raise NotAllowedError(f"{ALLOWED} ({error})") from None
    if not 0 < min(width, height) <= max(width, height) <= MAX_SIDE:
        raise NotAllowedError(f"{ALLOWED} (it is {width} x {height} pixels)")
    numbers = {"size": len(content), "width": width, "height": height}
    return {"type": type_, **numbers, "sha256Hash": sha256(content).hexdigest()}


def is_picture(content: bytes, described: Mapping[str, object]) -> bool:
    """Return whether the file is a picture with the type, size and hash in a document."""
    try:
        return describe_picture(content) == dict(described)
    except NotAllowedError:
        return False


def check_picture(value: object) -> str:
    """Return the description of a picture as JSON; raise ValueError if it is invalid."""
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


def _read_format(content: bytes) -> tuple[str, int, int]:
    """Return the file's media type, width and height."""
    if content.startswith(PNG_SIGNATURE):
        return "image/png", *read_png(content)
    if content.startswith(b"\xff\xd8"):
        return "image/jpeg", *read_jpeg(content)
    if content[:4] + content[8:12] == b"RIFFWEBP":
        return "image/webp", *read_webp(content)
    if content[4:12] == b"ftypavif":
        return "image/avif", *read_avif(content)
    raise ValueError("its format is not supported")


def picture_url(url: str, scope: str, name: str, sha256: str) -> str:
    """Return the URL of a picture; url_for() returns the same, but takes ten times as long."""
    path = "/".join(quote(part, safe="!$&'()*+,:;=@") for part in (scope, name, "picture"))
    return f"{url}{V1_PREFIX}{path}?sha256={sha256}"
