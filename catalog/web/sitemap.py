"""/sitemap.xml and /robots.txt: the addresses of the pages, for search engines.

A catalog of more than PART_SIZE widgets has one sitemap for each of that many, and /sitemap.xml is
the index of them (sitemaps.org). Widgets are in the order in which they were added, so that a new
one changes only the last sitemap.
"""

import re
from urllib.parse import urlsplit

from flask import Blueprint, Response, abort, current_app, render_template, request

from ..routing import public_url
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection
from .caching import page_response
from .urls import absolute_url

# The format allows 50,000 addresses and 50 MB; the longest ones have 5 kB.
PART_SIZE = 5_000
FIXED_PAGES = ("pages.browse", "updates_page.updates", "docs.reference")
XML = "application/xml"
NUMBER = re.compile("[1-9][0-9]{0,6}")

sitemap = Blueprint("sitemap", __name__)


@sitemap.get("/robots.txt")
def robots() -> Response:
    # The API has no page to find, and its addresses are endless.
    prefix = urlsplit(public_url()).path
    lines = ["User-agent: *", f"Disallow: {prefix}/api/", ""]
    lines.append(f"Sitemap: {absolute_url('sitemap.first_sitemap')}")
    response = Response("\n".join(lines) + "\n", mimetype="text/plain")
    response.add_etag()
    response.make_conditional(request)
    return revalidated(response)


@sitemap.get("/sitemap.xml")
def first_sitemap() -> Response:
    return revalidated(page_response(render_first(), mimetype=XML))


@sitemap.get("/sitemap-<number>.xml")
def numbered_sitemap(number: str) -> Response:
    if not NUMBER.fullmatch(number):
        abort(404)
    return revalidated(page_response(render_part(int(number)), mimetype=XML))


def revalidated(response: Response) -> Response:
    """Return the response, to be revalidated by every cache."""
    response.headers["Cache-Control"] = "no-cache"
    return response


COUNT_LISTED = "SELECT count(*) FROM listing"


def render_first() -> str:
    """Return the sitemap; the index of sitemaps if there are several."""
    (count,) = reader().execute(COUNT_LISTED).fetchone()
    parts = -(-count // PART_SIZE)
    if parts <= 1:
        return render_part(1)
    urls = [absolute_url("sitemap.numbered_sitemap", number=n + 1) for n in range(parts)]
    return render_template("sitemap_index.xml", urls=urls)


LISTED_WIDGETS = """
SELECT scope, name, updated FROM listing ORDER BY widget_id LIMIT :limit OFFSET :offset
"""


def render_part(number: int) -> str:
    """Return the sitemap with this number, from 1; 404 if it would be empty."""
    values = {"limit": PART_SIZE, "offset": (number - 1) * PART_SIZE}
    rows = reader().execute(LISTED_WIDGETS, values).fetchall()
    if not rows and number != 1:
        abort(404)
    base = absolute_url("pages.browse").removesuffix("/")
    fixed = [absolute_url(endpoint) for endpoint in FIXED_PAGES] if number == 1 else []
    return render_template("sitemap.xml", fixed=fixed, base=base, widgets=map(dict, rows))


def reader() -> Connection:
    """Return this thread's connection for reading."""
    database: Database = current_app.extensions["database"]
    return database.reader()
