"""/feed.atom: the newest releases as an Atom feed (RFC 4287), for feed readers and chat rooms."""

import re
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from flask import Blueprint, Response, abort, current_app, render_template, request

from ..routing import public_url
from ..store.connection.database import Database
from ..store.connection.sqlite import Connection
from ..text import quoted, shorten

MAX_ENTRIES = 50
# Readers show the beginning of a long text, and the page of the widget has all of it.
MAX_TITLE_LENGTH = 200  # characters
MAX_SUMMARY_LENGTH = 2_000  # characters
# A feed must have a time, also without entries.
EMPTY_SINCE = "1970-01-01T00:00:00.000Z"
# The characters that XML 1.0 does not have, not even as references.
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

feed = Blueprint("feed", __name__)

_RELEASES = """
SELECT listing.scope, listing.name, version.version, published_at AS publishedAt,
    coalesce(version.display_name, widget.display_name) AS displayName,
    coalesce(release_notes, version.description, widget.description, '') AS text
FROM {tables} CROSS JOIN widget ON widget.id = listing.widget_id
WHERE yanked = 0 AND {condition}
ORDER BY published_at DESC, listing.scope, listing.name, precedence DESC, version.version
LIMIT :limit
"""
# The index version_published is in the order of the feed. One scope is sorted instead: its versions
# may be rare in that index.
NEWEST_RELEASES = _RELEASES.format(
    tables="version INDEXED BY version_published CROSS JOIN listing USING (widget_id)",
    condition="true",
)
NEWEST_RELEASES_IN_SCOPE = _RELEASES.format(
    tables="listing CROSS JOIN version USING (widget_id)", condition="listing.scope = :scope"
)
HAS_SCOPE = "SELECT 1 FROM listing WHERE scope = :scope LIMIT 1"


@feed.get("/feed.atom")
def atom() -> Response:
    database: Database = current_app.extensions["database"]
    scope = request.args.get("scope", "")
    releases = load_releases(database.reader(), scope)
    base = public_url()
    text = render_template(
        "feed.xml",
        base=base,
        url=f"{base}/feed.atom" + (f"?scope={quote(scope, safe='')}" if scope else ""),
        scope=scope,
        releases=releases,
        updated=max((each["publishedAt"] for each in releases), default=EMPTY_SINCE),
    )
    response = Response(text, mimetype="application/atom+xml")
    response.headers["Cache-Control"] = "no-cache"
    response.add_etag()
    response.make_conditional(request)
    return response


def load_releases(connection: Connection, scope: str) -> list[dict[str, str]]:
    """Return the newest releases of listed widgets; 404 if the scope has no listed widget."""
    values = {"scope": scope, "limit": MAX_ENTRIES}
    if scope and not connection.execute(HAS_SCOPE, values).fetchone():
        abort(404, f"There is no widget in the scope {quoted(scope)}.")
    statement = NEWEST_RELEASES_IN_SCOPE if scope else NEWEST_RELEASES
    return [
        {
            **row,
            "displayName": shorten(row["displayName"], MAX_TITLE_LENGTH),
            "text": shorten(row["text"], MAX_SUMMARY_LENGTH),
        }
        for row in connection.execute(statement, values)
    ]


@feed.app_template_filter()
def release_id(release: dict[str, str]) -> str:
    """Return an id that is the same at every URL of this service and of its mirrors."""
    name = "widget-catalog:{scope}/{name}@{version}".format(**release)
    return uuid5(NAMESPACE_URL, name).urn


@feed.app_template_filter()
def widget_path(release: dict[str, str]) -> str:
    """Return the path of the widget's page."""
    return f"/widgets/{quote(release['scope'], safe='')}/{quote(release['name'], safe='')}"


@feed.app_template_filter()
def xml_text(text: str) -> str:
    """Return the text without the characters that XML does not allow."""
    return NOT_XML.sub("\ufffd", text)
