"""Operational endpoints: for whoever runs the service, with no promise of stability."""

import sqlite3

from flask import Blueprint, Response, current_app, jsonify

from catalog import __version__
from catalog.db import Database
from catalog.parameters import DEFAULT_LIMIT, MAX_LIMIT
from catalog.sqlite_file import DatabaseError

operations = Blueprint("operations", __name__, url_prefix="/api")


@operations.get("/health")
def health() -> tuple[Response, int]:
    database: Database = current_app.extensions["database"]
    try:
        with database.read() as connection:
            connection.execute("SELECT 1 FROM widget LIMIT 1").fetchone()
    except (DatabaseError, sqlite3.Error) as error:
        current_app.logger.error("The database cannot be read: %s", error)
        return jsonify(status="unavailable", error="The database cannot be read."), 503
    try:
        database.check_writes()
    except (DatabaseError, sqlite3.Error) as error:
        current_app.logger.error("The database cannot be written: %s", error)
        return jsonify(status="read-only", error="The database cannot be written."), 503
    return jsonify(status="ok"), 200


@operations.get("/version")
def version() -> Response:
    return jsonify(version=__version__)


@operations.get("/widgets/cli-version")
def cli_version() -> Response:
    return jsonify(minimumVersion=current_app.config["MINIMUM_CLI_VERSION"])


STATS = """
SELECT count(DISTINCT scope) AS scopes,
       count(*) AS widgets,
       (SELECT count(*) FROM version JOIN listing USING (widget_id)) AS versions,
       total(max(downloads, 0)) AS downloads,
       coalesce(sum(official), 0) AS official
FROM listing
"""


@operations.get("/stats")
def stats() -> Response:
    with current_app.extensions["database"].read() as connection:
        counts = dict(connection.execute(STATS).fetchone())
    counts["downloads"] = int(counts["downloads"])  # total() cannot overflow, but is a float
    return jsonify(counts)


@operations.get("/settings")
def settings() -> Response:
    return jsonify(
        search={"defaultLimit": DEFAULT_LIMIT, "maxLimit": MAX_LIMIT},
        rateLimit=None,
    )
