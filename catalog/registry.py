"""/api/widgets/{scope}/registry.json: a whole scope in one answer, fit for edge caching."""

import json
import sqlite3

from flask import Blueprint, Response, abort

from catalog import resources
from catalog.answers import Made, respond
from catalog.documents import shown
from catalog.routing import public_url

registry = Blueprint("registry", __name__)


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    named = {"scope": scope, "public_url": public_url()}
    key = ("registry", *named.values())
    return respond(key, still_holds, lambda connection: make_registry(connection, named))


UNCHANGED = "SELECT 1 FROM revision WHERE content = :content"


def still_holds(connection: sqlite3.Connection, seen: dict[str, int]) -> dict[str, int] | None:
    return seen if connection.execute(UNCHANGED, seen).fetchone() else None


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
    return {"content": content}, b'{"scope":%b,"widgets":[%b]}\n' % (name, widgets)
