"""/api/widgets/{scope}/registry.json: a whole scope in one answer, fit for edge caching."""

import json
import sqlite3
from itertools import groupby
from operator import itemgetter

from flask import Blueprint, Response, abort, current_app

from catalog import resources
from catalog.answers import Made, respond
from catalog.documents import shown

registry = Blueprint("registry", __name__)

REVISION = "SELECT content FROM revision"


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    connection = current_app.extensions["database"].reader()
    revision = tuple(connection.execute(REVISION).fetchone())
    return respond(("registry", scope), revision, lambda: make_registry(connection, scope))


REGISTRY = f"""
SELECT content, widget.id, {resources.REGISTRY_WIDGET} AS widget,
    version.version, yanked, {resources.VERSION_ENTRY} AS entry
FROM revision
JOIN widget ON scope = :scope AND listed
LEFT JOIN version ON widget_id = widget.id
WHERE revision.id = 1
ORDER BY widget.name, {resources.NEWEST_FIRST}
"""


def make_registry(connection: sqlite3.Connection, scope: str) -> Made:
    rows = connection.execute(REGISTRY, {"scope": scope}).fetchall()
    if not rows:
        abort(404, f"There is no widget in the scope {shown(scope)}.")
    widgets = [registry_widget(list(group)) for _, group in groupby(rows, key=itemgetter("id"))]
    text = f'{{"scope":{json.dumps(scope, ensure_ascii=False)},"widgets":[{",".join(widgets)}]}}'
    return (rows[0]["content"],), text


def registry_widget(rows: list[sqlite3.Row]) -> str:
    versions = [row for row in rows if row["version"] is not None]
    return resources.with_members(
        rows[0]["widget"],
        latestVersion=json.dumps(resources.latest_version(versions)),
        versions=f"[{','.join(row['entry'] for row in versions)}]",
    )
