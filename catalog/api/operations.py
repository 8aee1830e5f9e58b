"""Operational endpoints: for whoever runs the service, with no promise of stability."""

import sqlite3

from flask import Blueprint, Response, current_app, jsonify

from catalog import __version__
from catalog.api.response_cache import RenderResult, respond_without_etag
from catalog.store.database import Database
from catalog.store.search_params import DEFAULT_LIMIT, MAX_LIMIT
from catalog.store.sqlite import Connection, DatabaseError, DeadlineExceeded, snapshot

Revision = tuple[int, int]

operations = Blueprint("operations", __name__, url_prefix="/api")


@operations.get("/health")
def health() -> tuple[Response, int, dict[str, str]]:
    try:
        said, status = database_health()
    except DeadlineExceeded:
        if not current_app.extensions["database"].deadline.is_final:
            raise
        said, status = {"status": "unavailable", "error": "The database takes too long."}, 503
    return jsonify(said), status, {"Cache-Control": "no-store"}


def database_health() -> tuple[dict[str, str], int]:
    """What can be done with the database now, as a response body and its status."""
    database: Database = current_app.extensions["database"]
    try:
        with database.read() as connection:
            connection.execute("SELECT 1 FROM widget LIMIT 1").fetchone()
    except (DatabaseError, sqlite3.Error) as error:
        current_app.logger.error("The database cannot be read: %s", error)
        return {"status": "unavailable", "error": "The database cannot be read."}, 503
    try:
        database.check_writes()
    except (DatabaseError, sqlite3.Error) as error:
        current_app.logger.error("The database cannot be written: %s", error)
        return {"status": "read-only", "error": "The database cannot be written."}, 503
    return {"status": "ok"}, 200


@operations.get("/version")
def version() -> Response:
    return jsonify(version=__version__)


@operations.get("/widgets/cli-version")
def cli_version() -> Response:
    return jsonify(minimumVersion=current_app.config["MINIMUM_CLI_VERSION"])


# The scopes are read off an index, one step for each. A sum of counters can exceed SQLite's
# integers, so there is one of their upper and one of their lower 32 bits.
STATS = """
WITH RECURSIVE each_scope (scope) AS (
    SELECT min(scope) FROM listing
    UNION ALL
    SELECT (SELECT min(scope) FROM listing WHERE scope > each_scope.scope)
    FROM each_scope WHERE scope IS NOT NULL
)
SELECT (SELECT count(scope) FROM each_scope) AS scopes,
       (SELECT count(*) FROM listing) AS widgets,
       (SELECT count(*) FROM version JOIN listing USING (widget_id)) AS versions,
       coalesce(sum(downloads >> 32), 0) AS upper_downloads,
       coalesce(sum(downloads & 0xffffffff), 0) AS lower_downloads,
       (SELECT count(*) FROM listing WHERE official = 1) AS official
FROM listing WHERE downloads > 0
"""
REVISION = "SELECT content, downloads FROM revision"


@operations.get("/stats")
def stats() -> Response:
    return respond_without_etag("stats", is_current, render_stats)


def is_current(connection: Connection, seen: Revision) -> Revision | None:
    return seen if revision(connection) == seen else None


def render_stats(connection: Connection) -> RenderResult:
    with snapshot(connection):
        seen = revision(connection)
        counts = connection.execute(STATS).fetchone()
    downloads = (counts["upper_downloads"] << 32) + counts["lower_downloads"]
    names = ("scopes", "widgets", "versions", "downloads", "official")
    body = jsonify({name: downloads if name == "downloads" else counts[name] for name in names})
    return seen, (body.data,)


def revision(connection: Connection) -> Revision:
    content, downloads = connection.execute(REVISION).fetchone()
    return content, downloads


@operations.get("/settings")
def settings() -> Response:
    return jsonify(
        search={"defaultLimit": DEFAULT_LIMIT, "maxLimit": MAX_LIMIT},
        rateLimit=None,
    )
