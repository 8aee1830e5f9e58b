"""/api/widgets/{scope}/registry.json: a whole scope in one answer, fit for edge caching."""

import json
import sqlite3

from flask import Blueprint, Response, abort, current_app

from catalog import resources
from catalog.answers import Made, respond
from catalog.db import Database
from catalog.documents import shown
from catalog.routing import public_url

registry = Blueprint("registry", __name__)

UNCHANGED = "SELECT 1 FROM revision WHERE content = :content"


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    database: Database = current_app.extensions["database"]
    named = {"scope": scope, "public_url": public_url()}

    def look(seen: dict[str, int]) -> dict[str, int] | None:
        return seen if database.reader().execute(UNCHANGED, seen).fetchone() else None

    key = ("registry", *named.values())
    return respond(key, look, lambda: make_registry(database.reader(), named))


REGISTRY = f"""
SELECT content, (
    SELECT CAST(group_concat(text) AS BLOB) FROM (
        SELECT {resources.REGISTRY_WIDGET} AS text FROM widget WHERE scope = :scope AND listed
        ORDER BY name))
FROM revision
"""


def make_registry(connection: sqlite3.Connection, named: dict[str, str | None]) -> Made:
    scope = named["scope"]
    content, widgets = connection.execute(REGISTRY, named).fetchone()
    if widgets is None:
        abort(404, f"There is no widget in the scope {shown(scope)}.")
    name = json.dumps(scope, ensure_ascii=False).encode()
    return {"content": content}, b'{"scope":%b,"widgets":[%b]}' % (name, widgets)
