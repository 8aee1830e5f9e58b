"""/feed.atom: the newest releases as an Atom feed (RFC 4287), for feed readers and chat rooms.

With scope it has those of one scope, with scope and name those of one widget.
"""

import re
from urllib.parse import quote, urlencode
from uuid import NAMESPACE_URL, uuid5

from flask import Response, abort, render_template, request

from ..public_url import public_url
from ..store.connection.sqlite import Connection
from ..text import quoted, shorten
from .pages import page_response, pages, reader

MAX_ENTRIES = 50
# Readers show the beginning of a long text, and the page of the widget has all of it.
MAX_TITLE_LENGTH = 200  # characters
MAX_SUMMARY_LENGTH = 2_000  # characters
# A feed must have a time, also without entries.
EMPTY_SINCE = "1970-01-01T00:00:00.000Z"
# The characters that XML 1.0 does not have, not even as references.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_RELEASES = """
SELECT listing.scope, listing.name, version.version, published_at AS publishedAt,
    coalesce(version.display_name, widget.display_name) AS displayName,
    coalesce(release_notes, version.description, widget.description, '') AS text
FROM {tables} CROSS JOIN widget ON widget.id = listing.widget_id
WHERE yanked = 0 AND {condition}
ORDER BY published_at DESC, listing.scope, listing.name, precedence DESC, version.version
LIMIT :limit
"""
# The index version_published is in the order of the feed. Those of one scope are sorted instead:
# they may be rare in that index.
NEWEST_RELEASES = _RELEASES.format(
    tables="version INDEXED BY version_published CROSS JOIN listing USING (widget_id)",
    condition="true",
)
IN_SCOPE = "listing.scope = :scope AND (:name = '' OR listing.name = :name)"
NEWEST_RELEASES_IN_SCOPE = _RELEASES.format(
    tables="listing CROSS JOIN version USING (widget_id)", condition=IN_SCOPE
)
HAS_SCOPE = f"SELECT 1 FROM listing WHERE {IN_SCOPE} LIMIT 1"


@pages.get("/feed.atom")
def feed() -> Response:
    scope = request.args.get("scope", "")
    name = request.args.get("name", "") if scope else ""
    releases = load_releases(reader(), scope, name)
    base = public_url()
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
    """Return the newest releases of listed widgets; 404 if there is no such scope or widget."""
    values = {"scope": scope, "name": name, "limit": MAX_ENTRIES}
    if scope and not connection.execute(HAS_SCOPE, values).fetchone():
        path = quoted(f"{scope}/{name}" if name else scope)
        abort(404, f"There is no widget {'' if name else 'in the scope '}{path}.")
    statement = NEWEST_RELEASES_IN_SCOPE if scope else NEWEST_RELEASES
    return [
        {
            **row,
            "displayName": shorten(row["displayName"], MAX_TITLE_LENGTH),
            "text": shorten(row["text"], MAX_SUMMARY_LENGTH),
        }
        for row in connection.execute(statement, values)
    ]


@pages.app_template_filter()
def release_id(release: dict[str, str]) -> str:
    """Return an id that is the same at every URL of this service and of its mirrors."""
    name = "widget-catalog:{scope}/{name}@{version}".format(**release)
    return uuid5(NAMESPACE_URL, name).urn


@pages.app_template_filter()
def release_path(release: dict[str, str]) -> str:
    """Return the path of the page of a version."""
    parts = (release[key] for key in ("scope", "name", "version"))
    return "/widgets/" + "/".join(quote(part, safe="") for part in parts)


@pages.app_template_filter()
def xml_text(text: str) -> str:
    """Return the text without the characters that XML does not allow."""
    return NOT_XML.sub("\ufffd", text)
