"""/widgets/{scope}/{name}/badge.svg: the version of a widget as a picture, for a README or wiki.

Its colours are readable on a light and on a dark page, and its width is computed from a table, so
that no font is needed; textLength makes any font fit.
"""

import json
import unicodedata
from typing import NamedTuple

from flask import Blueprint, Response, abort, current_app, render_template, request

from ..store.connection.database import Database
from ..store.read.detail import LATEST, find_version
from ..text import quoted, shorten
from .caching import page_response
from .forms import read_sdk

MAX_LABEL = 60  # characters
MAX_VALUE = 40  # characters
# Clients and proxies show a badge for this long without asking again.
CACHE_CONTROL = "max-age=300"

# Widths in tenths of a pixel, in Verdana or DejaVu Sans at 11 pixels.
WIDTHS = {
    character: width
    for width, characters in {
        36: "ijl|'",
        43: "fIt.,:; !()[]",
        52: 'r-/\\J"{}',
        60: "csz",
        67: "aekvxyL?_",
        72: "bdghnopqu0123456789FETPYS$*",
        78: "ABCKRVXZ^`",
        86: "DGHNOQU&+<=>~#",
        94: "Mw",
        108: "mW@%",
    }.items()
    for character in characters
}
OTHER_WIDTH = 80
WIDE_WIDTH = 115
PADDING = 60

# Behind white text, with a contrast of at least 4.5.
LABEL_COLOUR = "#4a5361"
AVAILABLE, DEPRECATED, UNAVAILABLE = "#2a4cc2", "#8a5a00", "#6b7280"

badge = Blueprint("badge", __name__)


class BadgePart(NamedTuple):
    """Half of a badge; its sizes are in tenths of a pixel."""

    text: str
    colour: str
    text_width: int

    @property
    def width(self) -> int:
        """The width with the padding."""
        return self.text_width + 2 * PADDING


@badge.get("/widgets/<scope>/<name>/badge.svg")
def badge_svg(scope: str, name: str) -> Response:
    sdk = read_sdk(request.args.get("compatSdk", ""))
    if sdk.error:
        abort(400, sdk.error)
    response = page_response(render_badge(scope, name, sdk.sdk), mimetype="image/svg+xml")
    response.headers["Cache-Control"] = CACHE_CONTROL
    return response


def render_badge(scope: str, name: str, sdk: str) -> str:
    """Return the badge of a listed widget; 404 if there is none."""
    database: Database = current_app.extensions["database"]
    result = find_version(database.reader(), scope, name, LATEST, sdk or None)
    if result is None:
        abort(404, f"There is no widget {quoted(f'{scope}/{name}')}.")
    _, body = result
    value, colour = "none", UNAVAILABLE
    if body is not None:
        entry = json.loads(body)
        is_deprecated = entry["deprecationMessage"] is not None
        value = shorten(entry["version"], MAX_VALUE) + (" (deprecated)" if is_deprecated else "")
        colour = DEPRECATED if is_deprecated else AVAILABLE
    label = shorten(f"{scope}/{name}", MAX_LABEL)
    if sdk:
        label += f" for SDK {shorten(sdk, MAX_VALUE)}"
    return render_template(
        "badge.svg", label=_part(label, LABEL_COLOUR), value=_part(value, colour)
    )


def _part(text: str, colour: str) -> BadgePart:
    return BadgePart(text, colour, sum(map(_width, text)))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return WIDE_WIDTH
    return WIDTHS.get(character, OTHER_WIDTH)
