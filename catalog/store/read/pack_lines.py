"""Additional lines in a pack: the origins of copies, and deleted versions."""

import sqlite3

from ..connection.sqlite import fetch_all, fetch_one
from .selection import IS_SELECTED

READ_MIRRORED = f"""
SELECT json_object('scope', scope, 'name', name, 'source', source, 'etag', etag,
    'upstreamCount', upstream_count, 'gone', json(iif(gone, 'true', 'false')))
FROM mirrored JOIN widget ON widget.id = widget_id
WHERE {IS_SELECTED} ORDER BY scope, name
"""
READ_DELETED = f"""
SELECT json_object('scope', scope, 'name', name, 'version', version, 'sha256Hash', sha256_hash)
FROM deleted_version WHERE {IS_SELECTED} ORDER BY scope, name, version, sha256_hash
"""


def read_lines(connection: sqlite3.Connection, statement: str, paths: str | None) -> list[str]:
    """Return the lines of a file that one of these statements reads; for paths, see IS_SELECTED."""
    return [f"{line}\n" for (line,) in fetch_all(connection, statement, {"paths": paths})]


ALL_VERSIONS = """
SELECT scope, name, version FROM widget LEFT JOIN version ON widget.id = widget_id
ORDER BY scope, name, precedence
"""
HAS_VERSION = """
SELECT count(*), count(version.id) FROM widget
LEFT JOIN version ON widget.id = widget_id AND version = :version
WHERE scope = :scope AND name = :name
"""


def find_unpacked(
    connection: sqlite3.Connection, packed: sqlite3.Connection
) -> tuple[list[str], list[str]]:
    """Return the widgets that are not in the pack, and the versions that packed widgets lack."""
    widgets: dict[str, None] = {}
    versions = []
    for scope, name, version in fetch_all(connection, ALL_VERSIONS):
        values = {"scope": scope, "name": name, "version": version}
        has_widget, has_version = fetch_one(packed, HAS_VERSION, values)
        if not has_widget:
            widgets[f"{scope}/{name}"] = None
        elif version and not has_version:
            versions.append(f"{scope}/{name}@{version}")
    return [*widgets], versions
