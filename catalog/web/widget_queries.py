"""What the pages of a widget and of a scope read: only as many versions as a page shows."""

import json
from typing import NamedTuple

from ..documents import Json
from ..store.connection.sqlite import Connection
from ..store.read import json_sql
from ..store.read.detail import find_version
from ..store.schema.sdk_intervals import sdk_key
from .charts import MonthReleases

# A table shows this much of a text. The page of a version has all of it.
MAX_ROW_TEXT = 2_000  # characters


class VersionsFilter(NamedTuple):
    """Which versions a table shows. Empty for every SDK."""

    sdk: str = ""
    only_compatible: bool = False
    only_stable: bool = False


WIDGET = f"""
SELECT id, {json_sql.WIDGET} FROM widget WHERE scope = :scope AND name = :name AND listed
"""


def find_widget(connection: Connection, scope: str, name: str) -> tuple[int, Json] | None:
    """Return the id and the JSON of a listed widget, without versions; None if there is none."""
    row = connection.execute(WIDGET, {"scope": scope, "name": name}).fetchone()
    return (row[0], json.loads(row[1])) if row else None


def load_version(
    connection: Connection, widget: Json, number: str, public_url: str, sdk: str = ""
) -> Json | None:
    """Return a version as the API does, LATEST included; None if there is no such version."""
    found = find_version(connection, widget["scope"], widget["name"], number, sdk or None)
    if found is None or found[1] is None:
        return None
    version: Json = json.loads(json_sql.with_bundle_urls(found[1], public_url))
    return version


_FILTER = f"""
widget_id = :widget_id
AND (NOT :only_stable OR yanked = 0 AND instr(precedence, '-') = 0)
AND (NOT :only_compatible OR yanked = 0 AND {json_sql.VERSION_ADMITS})
"""
COUNT = f"SELECT count(*) FROM version WHERE {_FILTER}"


def count_versions(connection: Connection, widget_id: int, shown: VersionsFilter) -> int:
    """Return how many versions of a widget the filter admits."""
    (count,) = connection.execute(COUNT, _values(widget_id, shown)).fetchone()
    return int(count)


# The columns of a row of the table. Texts are cut, since a page has a hundred of them.
VERSION_ROWS = f"""
SELECT CAST(json_group_array(json(text)) AS BLOB) FROM (
    SELECT json_object(
        'name', :name,
        'version', version, 'bundleUrl', coalesce(bundle_path, bundle_url),
        'bundleSize', bundle_size, 'sha256Hash', sha256_hash, 'publishedAt', published_at,
        'yanked', json(iif(yanked, 'true', 'false')),
        'yankedReason', substr(yanked_reason, 1, :max_text),
        'deprecationMessage', substr(deprecation_message, 1, :max_text),
        'releaseNotes', substr(release_notes, 1, :max_text),
        'hasMoreNotes', json(iif(length(release_notes) > :max_text, 'true', 'false')),
        'minSize', json_object('w', min_w, 'h', min_h),
        'maxSize', json_object('w', max_w, 'h', max_h),
        'sdkVersion', sdk_version, 'configVersion', config_version,
        'permissions', json(permissions), 'license', license,
        'isCompatible', json(iif(yanked = 0 AND {json_sql.VERSION_ADMITS}, 'true', 'false'))
    ) AS text
    FROM version WHERE {_FILTER}
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT :limit OFFSET :offset)
"""


def load_versions(
    connection: Connection,
    widget_id: int,
    name: str,
    shown: VersionsFilter,
    public_url: str,
    *,
    limit: int,
    offset: int,
) -> list[Json]:
    """Return a page of the versions that the filter admits, newest first."""
    values = _values(widget_id, shown) | {"name": name, "limit": limit, "offset": offset}
    (text,) = connection.execute(VERSION_ROWS, values | {"max_text": MAX_ROW_TEXT}).fetchone()
    rows: list[Json] = json.loads(json_sql.with_bundle_urls(text, public_url))
    return rows


def _values(widget_id: int, shown: VersionsFilter) -> Json:
    return {
        "widget_id": widget_id,
        "sdk": sdk_key(shown.sdk) if shown.sdk else None,
        "only_compatible": bool(shown.sdk) and shown.only_compatible,
        "only_stable": shown.only_stable,
    }


NUMBERS = f"""
SELECT json_group_array(version) FROM (
    SELECT version FROM version WHERE widget_id = :widget_id
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT :limit)
"""


def load_numbers(connection: Connection, widget_id: int, limit: int) -> list[str]:
    """Return the numbers of the newest versions of a widget."""
    values = {"widget_id": widget_id, "limit": limit}
    numbers: list[str] = json.loads(connection.execute(NUMBERS, values).fetchone()[0])
    return numbers


_NEIGHBOUR = """
SELECT json_object('version', version, 'permissions', json(permissions)) FROM version
WHERE widget_id = :widget_id {condition}
    AND (published_at, precedence, version) {comparison} (
        SELECT published_at, precedence, version FROM version
        WHERE widget_id = :widget_id AND version = :version)
ORDER BY {order} LIMIT 1
"""
OLDER = _NEIGHBOUR.format(condition="", comparison="<", order=json_sql.NEWEST_FIRST)
OLDER_AVAILABLE = _NEIGHBOUR.format(
    condition="AND yanked = 0", comparison="<", order=json_sql.NEWEST_FIRST
)
NEWER = _NEIGHBOUR.format(
    condition="", comparison=">", order=json_sql.NEWEST_FIRST.replace(" DESC", "")
)


def find_neighbour(
    connection: Connection, statement: str, widget_id: int, version: str
) -> Json | None:
    """Return the number and permissions of the version next to this one: OLDER, NEWER and so on."""
    values = {"widget_id": widget_id, "version": version}
    row = connection.execute(statement, values).fetchone()
    return json.loads(row[0]) if row else None


# The first names in a month are enough for the label of its bar.
RELEASE_MONTHS = """
SELECT json_group_array(json_array(month, releases, yanked, names)) FROM (
    SELECT substr(published_at, 1, 7) AS month, count(*) AS releases, sum(yanked) AS yanked,
        substr(group_concat(version, ', '), 1, 200) AS names
    FROM version INDEXED BY version_newest WHERE widget_id = :widget_id
    GROUP BY month)
"""
# The month in which each major version was first released.
MAJOR_MONTHS = """
SELECT json_group_array(json_array(month, major)) FROM (
    SELECT min(substr(published_at, 1, 7)) AS month,
        CAST(substr(version, 1, instr(version, '.') - 1) AS INTEGER) AS major
    FROM version WHERE widget_id = :widget_id AND instr(precedence, '-') = 0
    GROUP BY major)
"""


def load_release_months(
    connection: Connection, widget_id: int
) -> tuple[list[MonthReleases], list[tuple[str, int]]]:
    """Return the months with releases, and the month of the first release of each major."""
    values = {"widget_id": widget_id}
    months, majors = (
        json.loads(connection.execute(statement, values).fetchone()[0])
        for statement in (RELEASE_MONTHS, MAJOR_MONTHS)
    )
    return [MonthReleases(*row) for row in months], [(month, major) for month, major in majors]
