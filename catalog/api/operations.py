"""Operational endpoints for the operator of the service, without a stability guarantee."""

import sqlite3
from collections.abc import Sequence

from flask import Blueprint, Response, current_app, jsonify

from .. import __version__
from ..store.bundles.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.revision import Revision, read_revision
from ..store.connection.sqlite import (
    Connection,
    DatabaseError,
    DeadlineExceeded,
    ReplicaBehindError,
    snapshot,
)
from ..store.read.parameters import DEFAULT_LIMIT, MAX_LIMIT
from ..store.read.statistics import read_statistics
from ..store.read.stored_bundles import newest_bundles
from .response_cache import RenderResult, render_for_cache

operations = Blueprint("operations", __name__, url_prefix="/api")


@operations.get("/health")
def health() -> tuple[Response, int, dict[str, str]]:
    try:
        body, status = check_health()
    except DeadlineExceeded:
        # Before the final deadline, another thread retries the request.
        if not current_app.extensions["database"].deadline.is_final:
            raise
        body = {"status": "unavailable", "error": "The database did not respond in time."}
        status = 503
    return jsonify(body), status, {"Cache-Control": "no-store"}


def lacks_bundle(newest: Sequence[tuple[str, int]]) -> bool:
    """Return whether any of these bundles is missing; raise OSError if the first is unreadable."""
    bundles: Bundles = current_app.extensions["bundles"]
    try:
        for sha256, _ in newest[:1]:
            with bundles.path(sha256).open("rb") as file:
                file.read(1)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return not all(bundles.has(*row) for row in newest)


def check_health() -> tuple[dict[str, str], int]:
    """Check the database and the newest bundles; return the body and status of the response."""
    database: Database = current_app.extensions["database"]
    try:
        database.check_in_place()
        with database.read() as connection:
            newest = newest_bundles(connection)
    except (DatabaseError, sqlite3.Error) as error:
        database.log_error("The database cannot be read", error)
        return {"status": "unavailable", "error": "The database cannot be read."}, 503
    try:
        database.check_writes()
    except ReplicaBehindError as error:
        database.log_error("The database is behind", error)
        return {"status": "behind", "error": "The database lacks recent writes."}, 503
    except (DatabaseError, sqlite3.Error) as error:
        database.log_error("Cannot write to the database", error)
        return {"status": "read-only", "error": "Cannot write to the database."}, 503
    if database.is_damaged:
        return {"status": "unavailable", "error": "The database is damaged."}, 503
    try:
        is_incomplete = lacks_bundle(newest)
    except OSError as error:
        database.log_error("A stored bundle cannot be read", error)
        return {"status": "unavailable", "error": "A stored bundle cannot be read."}, 503
    missing = "A bundle is missing from CATALOG_BUNDLES."
    if is_incomplete and database.is_cluster:
        # In a cluster, another machine may have stored a bundle that is not here yet.
        return {"status": "incomplete", "error": missing}, 503
    return {"status": "ok", **({"warning": missing} if is_incomplete else {})}, 200


@operations.get("/version")
def service_version() -> Response:
    return jsonify(version=__version__)


@operations.get("/widgets/cli-version")
def cli_version() -> Response:
    return jsonify(minimumVersion=current_app.config["MINIMUM_CLI_VERSION"])


@operations.get("/stats")
def stats() -> Response:
    return render_for_cache(revalidate_stats, render_stats, has_etag=False)


def revalidate_stats(connection: Connection, revision: Revision) -> Revision | None:
    """Return the revision if it is still current, else None."""
    return revision if read_revision(connection) == revision else None


def render_stats(connection: Connection) -> RenderResult:
    """Return the revision and the statistics as JSON."""
    with snapshot(connection):
        revision = read_revision(connection)
        statistics = read_statistics(connection)
    return revision, jsonify(statistics).data


@operations.get("/settings")
def settings() -> Response:
    return jsonify(
        search={"defaultLimit": DEFAULT_LIMIT, "maxLimit": MAX_LIMIT},
        rateLimit=None,
    )
