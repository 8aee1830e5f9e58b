"""Operational endpoints: for the operator of the service, without a promise of stability."""

import sqlite3

from flask import Blueprint, Response, current_app, jsonify

from .. import __version__
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.sqlite import (
    Connection,
    DatabaseError,
    DeadlineExceeded,
    ReplicaBehindError,
    snapshot,
)
from ..store.read.search_params import DEFAULT_LIMIT, MAX_LIMIT
from .response_cache import RenderResult, render_for_cache

StatsRevision = tuple[int, int]

operations = Blueprint("operations", __name__, url_prefix="/api")


@operations.get("/health")
def health() -> tuple[Response, int, dict[str, str]]:
    try:
        body, status = check_health()
    except DeadlineExceeded:
        # At any other deadline the request begins again in another thread.
        if not current_app.extensions["database"].deadline.is_final:
            raise
        body = {"status": "unavailable", "error": "The database did not respond in time."}
        status = 503
    return jsonify(body), status, {"Cache-Control": "no-store"}


# Of the newest versions only: a load balancer asks every second.
NEWEST_BUNDLES = """
SELECT sha256_hash, bundle_size FROM (SELECT * FROM version ORDER BY id DESC LIMIT 20)
WHERE bundle_path IS NOT NULL
"""


def lacks_bundle(database: Database) -> bool:
    """Return whether a bundle is missing here that another machine of a cluster has stored."""
    bundles: Bundles = current_app.extensions["bundles"]
    try:
        return not all(bundles.holds(*row) for row in database.fetch(NEWEST_BUNDLES, {}))
    except OSError:
        return True


def check_health() -> tuple[dict[str, str], int]:
    """Return the response body and status for what can be done with the database now."""
    database: Database = current_app.extensions["database"]
    try:
        database.check_in_place()
        with database.read() as connection:
            connection.execute("SELECT 1 FROM widget LIMIT 1").fetchone()
    except (DatabaseError, sqlite3.Error) as error:
        database.log_error("The database cannot be read", error)
        return {"status": "unavailable", "error": "The database cannot be read."}, 503
    try:
        database.check_writes()
    except ReplicaBehindError as error:
        database.log_error("The database is behind", error)
        return {"status": "behind", "error": "The database lacks recent writes."}, 503
    except (DatabaseError, sqlite3.Error) as error:
        database.log_error("The database cannot be written", error)
        return {"status": "read-only", "error": "The database cannot be written."}, 503
    if database.is_damaged:
        return {"status": "unavailable", "error": "The database is damaged."}, 503
    if database.is_cluster and lacks_bundle(database):
        return {"status": "incomplete", "error": "A bundle is missing in CATALOG_BUNDLES."}, 503
    return {"status": "ok"}, 200


@operations.get("/version")
def service_version() -> Response:
    return jsonify(version=__version__)


@operations.get("/widgets/cli-version")
def cli_version() -> Response:
    return jsonify(minimumVersion=current_app.config["MINIMUM_CLI_VERSION"])


# The recursive part reads one entry of an index for each scope. The sum of all counters can exceed
# SQLite's integers; total() is exact up to 2^53.
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
       CAST(total(downloads) AS INTEGER) AS downloads,
       (SELECT count(*) FROM listing WHERE official = 1) AS official
FROM listing WHERE downloads > 0
"""
STATS_REVISION = "SELECT content, downloads FROM revision"


@operations.get("/stats")
def stats() -> Response:
    return render_for_cache(revalidate_stats, render_stats, has_etag=False)


def revalidate_stats(connection: Connection, revision: StatsRevision) -> StatsRevision | None:
    """Return the revision if it is current, else None."""
    return revision if read_revision(connection) == revision else None


def render_stats(connection: Connection) -> RenderResult:
    """Return the revision and the JSON of the statistics."""
    with snapshot(connection):
        revision = read_revision(connection)
        row = connection.execute(STATS).fetchone()
    return revision, jsonify(dict(row)).data


def read_revision(connection: Connection) -> StatsRevision:
    content, downloads = connection.execute(STATS_REVISION).fetchone()
    return content, downloads


@operations.get("/settings")
def settings() -> Response:
    return jsonify(
        search={"defaultLimit": DEFAULT_LIMIT, "maxLimit": MAX_LIMIT},
        rateLimit=None,
    )
