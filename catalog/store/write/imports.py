"""The statements of an import into a cluster: a few, with the rows of many widgets in each.

rqlite compiles every statement that it runs, together with all triggers: 1.2 ms for a version whose
insertion takes 0.13 ms, on each node. For a file, SQLite compiles each statement once.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby

from catalog.documents import Document, Row
from catalog.store.connection.sqlite import Statement
from catalog.store.write.writes import add_ranges, version_rows, widget_row

# A transaction delays installs by about the time that this many widgets take: 0.2 seconds.
WIDGETS_PER_WRITE = 100

WIDGET_COLUMNS = (
    *("display_name", "description", "icon", "is_official"),
    *("folded_name", "folded_text", "download_count", "created_at", "listed"),
)
# As in PUT_WIDGET of writes.py, a value that the document does not have stays as it is.
OPTIONAL_COLUMNS = ("download_count", "created_at", "listed")
VERSION_COLUMNS = (
    *("precedence", "bundle_url", "bundle_size", "sha256_hash", "published_at", "yanked"),
    *("yanked_reason", "deprecation_message", "release_notes", "display_name", "description"),
    *("icon", "min_w", "min_h", "max_w", "max_h", "sdk_version", "config_version"),
    *("permissions", "license"),
)


def _fields(names: Iterable[str]) -> str:
    return ", ".join(f"json_extract(value, '$.{name}')" for name in names)


def _columns(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in names)


_NEW_WIDGET = ", ".join(
    f"iif(:has_{name}, excluded.{name}, widget.{name})"
    if name in OPTIONAL_COLUMNS
    else f"excluded.{name}"
    for name in WIDGET_COLUMNS
)

PUT_WIDGETS = f"""
INSERT INTO widget (scope, name, {_columns(WIDGET_COLUMNS)})
SELECT {_fields(("scope", "name", *WIDGET_COLUMNS))} FROM json_each(:rows) WHERE true
ON CONFLICT (scope, name) DO UPDATE SET ({_columns(WIDGET_COLUMNS)}) = ({_NEW_WIDGET})
WHERE ({_columns(WIDGET_COLUMNS, "widget.")}) IS NOT ({_NEW_WIDGET})
"""

PUT_VERSIONS = f"""
INSERT INTO version (widget_id, version, {_columns(VERSION_COLUMNS)})
SELECT (SELECT id FROM widget WHERE (scope, name) = ({_fields(("scope", "name"))})),
       {_fields(("version", *VERSION_COLUMNS))}
FROM json_each(:rows) WHERE true
ON CONFLICT (widget_id, version) DO UPDATE SET
    ({_columns(VERSION_COLUMNS)}) = ({_columns(VERSION_COLUMNS, "excluded.")}),
    bundle_path = iif(
        (version.sha256_hash, version.bundle_size) = (excluded.sha256_hash, excluded.bundle_size),
        bundle_path, NULL
    )
WHERE ({_columns(VERSION_COLUMNS, "version.")}) IS NOT ({_columns(VERSION_COLUMNS, "excluded.")})
"""


def put_in_bulk(documents: Sequence[Document]) -> list[Statement]:
    """Add or update the widgets and versions, as put_documents() of writes.py does."""
    versions = [row for document in documents for row in version_rows(document)]
    statements = [add_ranges(row["sdk_version"] for row in versions)]
    widgets = map(widget_row, documents)
    for flags, rows in groupby(sorted(widgets, key=_optional_flags), _optional_flags):
        names = (f"has_{name}" for name in OPTIONAL_COLUMNS)
        values = dict(zip(names, flags, strict=True))
        statements.append((PUT_WIDGETS, {**values, "rows": _json_rows(map(_stored_widget, rows))}))
    return [*statements, (PUT_VERSIONS, {"rows": _json_rows(versions)})]


def _optional_flags(widget: Row) -> tuple[bool, ...]:
    """Return which of OPTIONAL_COLUMNS the document has."""
    has_count = bool(widget["has_download_count"])
    return has_count, widget["created_at"] is not None, widget["listed"] is not None


def _stored_widget(widget: Row) -> Row:
    """Return the row of a new widget, with the defaults."""
    created_at = widget["created_at"] or widget["default_created_at"]
    listed = True if widget["listed"] is None else widget["listed"]
    return {**widget, "created_at": created_at, "listed": listed}


def _json_rows(rows: Iterable[Row]) -> str:
    return json.dumps(list(rows), ensure_ascii=False)
