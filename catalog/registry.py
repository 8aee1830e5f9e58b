"""/api/widgets/{scope}/registry.json: a whole scope in one answer, fit for edge caching."""

import json
import sqlite3

from flask import Blueprint, Response, abort, current_app

from catalog import resources
from catalog.answers import Made, respond
from catalog.db import Database
from catalog.documents import shown

registry = Blueprint("registry", __name__)

UNCHANGED = "SELECT 1 FROM revision WHERE content = :content"


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    database: Database = current_app.extensions["database"]

    def look(seen: dict[str, int]) -> dict[str, int] | None:
        return seen if database.reader().execute(UNCHANGED, seen).fetchone() else None

    return respond(("registry", scope), look, lambda: make_registry(database.reader(), scope))


REGISTRY = f"""
SELECT content, (
    SELECT CAST(group_concat(text) AS BLOB) FROM (
        SELECT {resources.REGISTRY_WIDGET} AS text FROM widget WHERE scope = :scope AND listed
        ORDER BY name))
FROM revision
"""


def make_registry(connection: sqlite3.Connection, scope: str) -> Made:
    content, widgets = connection.execute(REGISTRY, {"scope": scope}).fetchone()
    if widgets is None:
        abort(404, f"There is no widget in the scope {shown(scope)}.")
    name = json.dumps(scope, ensure_ascii=False).encode()
    return {"content": content}, b'{"scope":%b,"widgets":[%b]}' % (name, widgets)
