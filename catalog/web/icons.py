"""Icons by their Iconify name, as SVG that is safe to put into a page, without any network."""

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

from catalog.documents import Json
from catalog.text import quoted

SHIPPED = Path(__file__).parent / "iconify"

# What draws, and nothing that runs, loads, links or is styled from elsewhere.
ELEMENTS = {
    *("g", "path", "circle", "ellipse", "rect", "line", "polyline", "polygon"),
    *("defs", "clipPath", "mask", "linearGradient", "radialGradient", "stop"),
}
ATTRIBUTES = {
    *("id", "d", "points", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry"),
    *("fx", "fy", "width", "height", "transform", "opacity", "offset", "color", "clip-path"),
    *("clip-rule", "clipPathUnits", "mask", "maskUnits", "maskContentUnits", "fill"),
    *("fill-rule", "fill-opacity", "stroke", "stroke-width", "stroke-opacity"),
    *("stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-dasharray"),
    *("stroke-dashoffset", "stop-color", "stop-opacity", "gradientUnits"),
    *("gradientTransform", "spreadMethod"),
}
LOCAL = re.compile(r"url\(#([\w.-]+)\)", re.ASCII)
COLOUR = re.compile(r"(?:rgb|hsl)a?\([\d\s.,%/]*\)", re.ASCII)
TRANSFORMS = ("transform", "gradientTransform")
NAME = re.compile("[a-z0-9]+(-[a-z0-9]+)*")
BOX = ("left", "top", "width", "height")
MAX_LENGTH = 128  # of a prefix and a name
MAX_PARENTS = 8  # of an alias; more is a circle


class IconError(ValueError):
    """An icon or a set that cannot be used; the message says why."""


def icon_svg(icon: str | None, directory: str, *, name: str, seed: str) -> str:
    """The icon as an SVG element, or the first letter of the name in a colour that the seed has."""
    # The length comes first, so that no cache holds a long text.
    found = find_icon(icon, directory) if icon and len(icon) <= MAX_LENGTH else None
    return found or letter_avatar(name, seed)


@lru_cache(maxsize=4096)
def find_icon(icon: str, directory: str) -> str | None:
    """The SVG element of "prefix:name", from the directory or what is shipped; None if unknown."""
    prefix, _, name = icon.partition(":")
    if not (NAME.fullmatch(prefix) and NAME.fullmatch(name)):
        return None
    folders = [Path(directory), SHIPPED] if directory else [SHIPPED]
    for folder in folders:
        try:
            resolved = _resolve(_load(folder / f"{prefix}.json"), name)
            if resolved is not None:
                return _element(f"{prefix}-{name}", resolved)
        except IconError as error:
            logging.getLogger(__name__).warning("The icon %s is not shown: %s", icon, error)
    return None


@lru_cache(maxsize=16)
def _load(path: Path) -> Json:
    """A set of icons; one without any where there is no such file."""
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
    """What the set says of the icon, with what it has from its parents and from the set itself."""
    turns: float = 0
    flips = {"hFlip": False, "vFlip": False}
    own: Json = {}
    for _ in range(MAX_PARENTS):
        icon = _member(icons, "icons", name)
        alias = icon if icon is not None else _member(icons, "aliases", name)
        if alias is None:
            return None
        turns += _number(alias.get("rotate", 0))
        flips = {flip: flips[flip] != bool(alias.get(flip)) for flip in flips}
        own = {**alias, **own}
        if icon is not None:
            box = {key: value for key, value in icons.items() if key in BOX}
            return {**box, **own, "rotate": turns, **flips}
        name = str(alias.get("parent"))
    raise IconError("its aliases go round in a circle.")


def _member(icons: Json, group: str, name: str) -> Json | None:
    members = icons.get(group, {})
    member = members.get(name) if isinstance(members, dict) else None
    if member is not None and not isinstance(member, dict):
        raise IconError("it is not an object.")
    return member


def _element(identity: str, icon: Mapping[str, Any]) -> str:
    """The SVG element of a resolved icon."""
    body = _safe_body(identity, icon.get("body"))
    left, top = _number(icon.get("left", 0)), _number(icon.get("top", 0))
    width, height = _number(icon.get("width", 16)), _number(icon.get("height", 16))
    middle, centre = left + width / 2, top + height / 2
    transform = ""
    if icon["rotate"] % 4:
        transform += f"rotate({icon['rotate'] % 4 * 90:g} {middle:g} {centre:g})"
    if icon["hFlip"] or icon["vFlip"]:
        across, down = -1 if icon["hFlip"] else 1, -1 if icon["vFlip"] else 1
        transform += (
            f"translate({middle:g} {centre:g})scale({across} {down})"
            f"translate({-middle:g} {-centre:g})"
        )
    if icon["rotate"] % 2:
        width, height = height, width
        left, top = middle - width / 2, centre - height / 2
    if transform:
        body = f'<g transform="{transform}">{body}</g>'
    return _svg(f"{left:g} {top:g} {width:g} {height:g}", body, "icon")


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) <= 10_000:  # NaN is neither
        raise IconError("its size is not a number.")
    return value


def _safe_body(identity: str, body: object) -> str:
    """The body written anew from what is allowed in it; raises IconError for all else."""
    if not isinstance(body, str) or "<!" in body or "<?" in body:
        raise IconError("its body is not SVG.")
    try:
        root = ElementTree.fromstring(f"<svg>{body}</svg>")  # noqa: S314, it declares no entities
        for element in root.iter():
            if element is not root and element.tag not in ELEMENTS:
                raise IconError(f"its body has the element {quoted(element.tag)}.")
            element.text = element.tail = None  # no shape has text
            for attribute, value in element.attrib.items():
                element.set(attribute, _safe_value(identity, attribute, value))
        return "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    except (ElementTree.ParseError, UnicodeError, RecursionError) as error:
        raise IconError("its body is not SVG.") from error


def _safe_value(identity: str, attribute: str, value: str) -> str:
    if attribute not in ATTRIBUTES:
        raise IconError(f"its body has the attribute {quoted(attribute)}.")
    if attribute == "id":
        return f"{identity}-{value}"  # icons share a page, and so its ids
    rest = COLOUR.sub("", LOCAL.sub("", value))
    if "(" in rest and attribute not in TRANSFORMS:
        raise IconError(f"its body refers to {quoted(value)}.")
    return LOCAL.sub(rf"url(#{identity}-\1)", value)


def letter_avatar(name: str, seed: str) -> str:
    """The first letter or digit of the name on a tile, in a colour that the seed always gives."""
    hue = zlib.crc32(seed.encode()) % 24 * 15
    letters = unicodedata.normalize("NFC", name)
    letter = next((letter for letter in letters if letter.isalnum()), "?").upper()[0]
    body = (
        f'<rect width="24" height="24" rx="5" fill="hsl({hue} 42% 38%)"/>'
        '<text x="12" y="16.5" text-anchor="middle" font-size="13" fill="#fff">'
        f"{escape(letter)}</text>"
    )
    return _svg("0 0 24 24", body, "avatar")


def _svg(box: str, body: str, kind: str) -> str:
    """An SVG element that a screen reader passes over and that has a size without any style."""
    return (
        f'<svg class="{kind}" viewBox="{box}" width="40" height="40" fill="currentColor" '
        f'aria-hidden="true" focusable="false">{body}</svg>'
    )
