"""A simple implementation: stock Flask and waitress, one SELECT with LIKE, json.dumps.

It reads the tables of a catalog, and does less than the service: there is no latest version in the
search results, no ranking, no folding of accents, no validation and no ETag.
Run: python bench/stock_flask.py DATABASE PORT
"""

import json
import sqlite3
import sys

import waitress
from flask import Flask, Response, abort, g, request

SEARCH = """
SELECT scope, name, display_name, description, icon, is_official, download_count,
    count(*) OVER () AS total
FROM widget WHERE listed AND (display_name LIKE :words OR description LIKE :words)
ORDER BY download_count DESC, scope, name LIMIT 20
"""
WIDGET = "SELECT * FROM widget WHERE scope = ? AND name = ? AND listed"
VERSIONS = "SELECT * FROM version WHERE widget_id = ? ORDER BY published_at DESC"

app = Flask(__name__)
database, port = sys.argv[1:]


def connection() -> sqlite3.Connection:
    if "connection" not in g:
        g.connection = sqlite3.connect(database)
        g.connection.row_factory = sqlite3.Row
    opened: sqlite3.Connection = g.connection
    return opened


def respond(value: object) -> Response:
    return Response(json.dumps(value), mimetype="application/json")


@app.get("/api/v1/widgets/search")
def search() -> Response:
    words = {"words": f"%{request.args.get('q', '')}%"}
    return respond({"widgets": [dict(row) for row in connection().execute(SEARCH, words)]})


@app.get("/api/v1/widgets/<scope>/<name>")
def detail(scope: str, name: str) -> Response:
    widget = connection().execute(WIDGET, (scope, name)).fetchone()
    if widget is None:
        abort(404)
    versions = connection().execute(VERSIONS, (widget["id"],))
    return respond({"widget": dict(widget), "versions": [dict(row) for row in versions]})


@app.teardown_appcontext
def close(_: object) -> None:
    if opened := g.pop("connection", None):
        opened.close()


waitress.serve(app, listen=f"127.0.0.1:{port}")
