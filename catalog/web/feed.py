"""/feed.atom: the newest releases as an Atom feed (RFC 4287), for feed readers and chat rooms.

The scope parameter limits the feed to one scope; scope and name together limit it to one widget.
"""

import re
from urllib.parse import quote, urlencode
from uuid import NAMESPACE_URL, uuid5

from flask import Response, abort, render_template, request

from ..domain.messages import quoted, shorten
from ..store.connection.sqlite import Connection
from ..store.read.releases import find_releases
from .pages import page_response, pages, reader, site_url

MAX_ENTRIES = 50
# Feed readers show only the beginning of a long text. The widget's page shows all of it.
MAX_TITLE_LENGTH = 200  # characters
MAX_SUMMARY_LENGTH = 2_000  # characters
# Atom requires a time even if the feed has no entries.
EMPTY_SINCE = "1970-01-01T00:00:00.000Z"
# Characters that XML 1.0 does not allow, not even as character references.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@pages.get("/feed.atom")
def feed() -> Response:
    scope = request.args.get("scope", "")
    name = request.args.get("name", "") if scope else ""
    releases = load_releases(reader(), scope, name)
    base = site_url()
    arguments = {key: value for key, value in (("scope", scope), ("name", name)) if value}
    query = f"?{urlencode(arguments, quote_via=quote, safe='')}" if arguments else ""
    text = render_template(
        "feed.xml",
        base=base,
        url=f"{base}/feed.atom{query}",
        subject=f"{scope}/{name}" if name else scope,
        releases=releases,
        updated=max((each["publishedAt"] for each in releases), default=EMPTY_SINCE),
    )
    return page_response(text, mimetype="application/atom+xml")


def load_releases(connection: Connection, scope: str, name: str) -> list[dict[str, str]]:
    """Return the newest releases of listed widgets; respond 404 if there is no such widget."""
    releases = find_releases(connection, scope, name, MAX_ENTRIES)
    if releases is None:
        path = quoted(f"{scope}/{name}" if name else scope)
        abort(404, f"There is no widget {'' if name else 'in the scope '}{path}.")
    return [
        {
            **row,
            "displayName": shorten(row["displayName"], MAX_TITLE_LENGTH),
            "text": shorten(row["text"], MAX_SUMMARY_LENGTH),
        }
        for row in releases
    ]


@pages.app_template_filter()
def release_id(release: dict[str, str]) -> str:
    """Return an id that is the same under every URL of this service, and on its mirrors."""
    name = "widget-catalog:{scope}/{name}@{version}".format(**release)
    return uuid5(NAMESPACE_URL, name).urn


@pages.app_template_filter()
def release_path(release: dict[str, str]) -> str:
    """Return the path of a version's page."""
    parts = (release[key] for key in ("scope", "name", "version"))
    return "/widgets/" + "/".join(quote(part, safe="") for part in parts)


@pages.app_template_filter()
def xml_text(text: str) -> str:
    """Replace characters that XML does not allow with U+FFFD."""
    return NOT_XML.sub("\ufffd", text)
