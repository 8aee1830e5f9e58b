"""/api/widgets/{scope}/registry.json: a whole scope in one answer, fit for edge caching."""

from itertools import groupby
from operator import itemgetter

from flask import Blueprint, Response, abort, current_app, jsonify

from catalog import resources
from catalog.conditional import revalidate
from catalog.documents import shown

registry = Blueprint("registry", __name__)

WIDGETS = """
SELECT * FROM widget WHERE scope = :scope AND listed ORDER BY name
"""

VERSIONS = f"""
SELECT {resources.VERSION_ENTRY_COLUMNS}
FROM widget JOIN version ON version.widget_id = widget.id
WHERE widget.scope = :scope AND widget.listed
ORDER BY widget.name, published_at DESC, precedence DESC, version DESC
"""


@registry.get("/api/widgets/<scope>/registry.json")
def scope_registry(scope: str) -> Response:
    with current_app.extensions["database"].read() as connection:
        widgets = connection.execute(WIDGETS, {"scope": scope}).fetchall()
        rows = connection.execute(VERSIONS, {"scope": scope}).fetchall()
    if not widgets:
        abort(404, f"There is no widget in the scope {shown(scope)}.")
    versions = {
        widget_id: [resources.version_entry(row) for row in group]
        for widget_id, group in groupby(rows, key=itemgetter("widget_id"))
    }
    response = jsonify(
        scope=scope,
        widgets=[
            resources.registry_widget(widget, versions.get(widget["id"], [])) for widget in widgets
        ],
    )
    return revalidate(response)
