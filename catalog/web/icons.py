"""Icons by Iconify name, as SVG that is safe in a page. No icon is loaded over the network."""

import json
import logging
import re
import unicodedata
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from ..domain.documents import Json
from ..domain.messages import quoted
from ..domain.validators import is_icon_name

BUILT_IN_ICONS = Path(__file__).parent / "iconify"

# The allowed SVG elements and attributes cannot run scripts, load files, link or set styles.
ELEMENTS = {
    "g", "path", "circle", "ellipse", "rect", "line", "polyline", "polygon",
    "defs", "clipPath", "mask", "linearGradient", "radialGradient", "stop",
}  # fmt: skip
ATTRIBUTES = {
    "id", "d", "points", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry",
    "fx", "fy", "width", "height", "transform", "opacity", "offset", "color", "clip-path",
    "clip-rule", "clipPathUnits", "mask", "maskUnits", "maskContentUnits", "fill",
    "fill-rule", "fill-opacity", "stroke", "stroke-width", "stroke-opacity",
    "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-dasharray",
    "stroke-dashoffset", "stop-color", "stop-opacity", "gradientUnits",
    "gradientTransform", "spreadMethod",
}  # fmt: skip
LOCAL_REFERENCE = re.compile(r"url\(#([\w.-]+)\)", re.ASCII)
COLOUR = re.compile(r"(?:rgb|hsl)a?\([\d\s.,%/]*\)", re.ASCII)
TRANSFORMS = ("transform", "gradientTransform")
VIEW_BOX_KEYS = ("left", "top", "width", "height")
# The maximum length of prefix:name.
MAX_ICON_LENGTH = 128
# An alias with more ancestors than this is treated as a loop.
MAX_ALIAS_DEPTH = 8


class IconError(ValueError):
    """An icon or icon set is invalid; the message gives the reason."""


def icon_svg(icon: str | None, directory: str, *, name: str, seed: str) -> str:
    """Return the icon as an SVG element; for an unknown icon, return a letter avatar."""
    # Check the length first, so that find_icon() never caches long strings.
    svg = find_icon(icon, directory) if icon and len(icon) <= MAX_ICON_LENGTH else None
    return svg or letter_avatar(name, seed)


@lru_cache(maxsize=4096)
def find_icon(icon: str, directory: str) -> str | None:
    """Return the SVG for prefix:name from the directory or the built-in set; None if not found."""
    if not is_icon_name(icon):
        return None
    prefix, _, name = icon.partition(":")
    folders = [Path(directory), BUILT_IN_ICONS] if directory else [BUILT_IN_ICONS]
    for folder in folders:
        try:
            resolved = _resolve(_load(folder / f"{prefix}.json"), name)
            if resolved is not None:
                return _render(f"{prefix}-{name}", resolved)
        except IconError as error:
            logging.getLogger(__name__).warning("The icon %s is not shown: %s", icon, error)
    return None


@lru_cache(maxsize=16)
def _load(path: Path) -> Json:
    """Return an icon set; an empty one if the file does not exist."""
    try:
        icons = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise IconError(f"{path.name} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise IconError(f"{path.name} is not JSON.") from error
    if not isinstance(icons, dict):
        raise IconError(f"{path.name} is not an Iconify set.")
    return icons


def _resolve(icons: Json, name: str) -> Json | None:
    """Return the icon with the properties that it inherits from its parents and from the set."""
    quarter_turns: float = 0
    flips = {"hFlip": False, "vFlip": False}
    own: Json = {}
    for _ in range(MAX_ALIAS_DEPTH):
        icon = _find_entry(icons, "icons", name)
        alias = icon if icon is not None else _find_entry(icons, "aliases", name)
        if alias is None:
            return None
        quarter_turns += _number(alias.get("rotate", 0))
        flips = {flip: flips[flip] != bool(alias.get(flip)) for flip in flips}
        own = {**alias, **own}
        if icon is not None:
            box = {key: value for key, value in icons.items() if key in VIEW_BOX_KEYS}
            return {**box, **own, "rotate": quarter_turns, **flips}
        name = str(alias.get("parent"))
    raise IconError("its aliases form a loop.")


def _find_entry(icons: Json, group: str, name: str) -> Json | None:
    entries = icons.get(group, {})
    entry = entries.get(name) if isinstance(entries, dict) else None
    if entry is not None and not isinstance(entry, dict):
        raise IconError("it is not an object.")
    return entry


def _render(id_prefix: str, icon: Mapping[str, Any]) -> str:
    """Return the SVG element for a resolved icon."""
    body = _safe_body(id_prefix, icon.get("body"))
    left, top = _number(icon.get("left", 0)), _number(icon.get("top", 0))
    width, height = _number(icon.get("width", 16)), _number(icon.get("height", 16))
    center_x, center_y = left + width / 2, top + height / 2
    transform = ""
    if icon["rotate"] % 4:
        transform += f"rotate({icon['rotate'] % 4 * 90:g} {center_x:g} {center_y:g})"
    if icon["hFlip"] or icon["vFlip"]:
        scale_x, scale_y = -1 if icon["hFlip"] else 1, -1 if icon["vFlip"] else 1
        transform += (
            f"translate({center_x:g} {center_y:g})scale({scale_x} {scale_y})"
            f"translate({-center_x:g} {-center_y:g})"
        )
    if icon["rotate"] % 2:
        width, height = height, width
        left, top = center_x - width / 2, center_y - height / 2
    if transform:
        body = f'<g transform="{transform}">{body}</g>'
    return _svg(f"{left:g} {top:g} {width:g} {height:g}", body, "icon")


def _number(value: object) -> float:
    # This form of the comparison also rejects NaN.
    if not isinstance(value, int | float) or not abs(value) <= 10_000:
        raise IconError("its size is not a number.")
    return value


def _safe_body(id_prefix: str, body: object) -> str:
    """Return the body, rebuilt from allowed parts; raise IconError if it has other parts."""
    if not isinstance(body, str) or "<!" in body or "<?" in body:
        raise IconError("its body is not SVG.")
    try:
        root = ElementTree.fromstring(f"<svg>{body}</svg>")  # noqa: S314, no entities
        for element in root.iter():
            if element is not root and element.tag not in ELEMENTS:
                raise IconError(f"its body contains the forbidden element {quoted(element.tag)}.")
            # Shapes do not contain text.
            element.text = element.tail = None
            for attribute, value in element.attrib.items():
                element.set(attribute, _safe_value(id_prefix, attribute, value))
        return "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    except (ElementTree.ParseError, UnicodeError, RecursionError) as error:
        raise IconError("its body is not SVG.") from error


def _safe_value(id_prefix: str, attribute: str, value: str) -> str:
    if attribute not in ATTRIBUTES:
        raise IconError(f"its body contains the forbidden attribute {quoted(attribute)}.")
    if attribute == "id":
        # Ids must be unique in a page with several icons.
        return f"{id_prefix}-{value}"
    remainder = COLOUR.sub("", LOCAL_REFERENCE.sub("", value))
    if "(" in remainder and attribute not in TRANSFORMS:
        raise IconError(f"its body contains the forbidden value {quoted(value)}.")
    return LOCAL_REFERENCE.sub(rf"url(#{id_prefix}-\1)", value)


def letter_avatar(name: str, seed: str) -> str:
    """Return a tile with the name's first letter or digit, in a colour that depends on the seed."""
    hue = zlib.crc32(seed.encode()) % 24 * 15
    composed = unicodedata.normalize("NFC", name)
    letter = next((character for character in composed if character.isalnum()), "?").upper()[0]
    body = (
        f'<rect width="24" height="24" rx="5" fill="hsl({hue} 42% 38%)"/>'
        '<text x="12" y="16.5" text-anchor="middle" font-size="13" fill="#fff">'
        f"{escape(letter)}</text>"
    )
    return _svg("0 0 24 24", body, "avatar")


def _svg(view_box: str, body: str, css_class: str) -> str:
    """Return an SVG element that screen readers skip and that has a size even without CSS."""
    return (
        f'<svg class="{css_class}" viewBox="{view_box}" width="40" height="40" '
        f'fill="currentColor" aria-hidden="true" focusable="false">{body}</svg>'
    )
