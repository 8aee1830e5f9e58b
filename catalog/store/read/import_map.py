"""Import maps: the bundle URL and the integrity hash for each widget that a dashboard loads."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...domain.changes import WidgetName
from ...domain.messages import quoted
from ...domain.semver_ranges import is_version
from ..connection.sqlite import Connection, fetch_one
from .candidates import Candidates, parse_candidates
from .parameters import ParameterError, check_repeated, require_compat_sdk

MAX_WIDGETS = 100


class ImportMapQuery(NamedTuple):
    """The widgets in an import map, and the candidates to choose their versions from."""

    # If a widget is given without a version, its newest candidate is loaded.
    widgets: tuple[WidgetName, ...]
    candidates: Candidates


def parse_import_map(parameters: Mapping[str, str], widgets: Sequence[str]) -> ImportMapQuery:
    """Return the query that these parameters describe; raise ParameterError if it is invalid."""
    require_compat_sdk(parameters.get("compatSdk"))
    candidates = parse_candidates(parameters)
    requested = tuple(map(_parse_widget, widgets))
    check_repeated("widget", [f"{each.scope}/{each.name}" for each in requested], MAX_WIDGETS)
    return ImportMapQuery(requested, candidates)


def _parse_widget(text: str) -> WidgetName:
    path, _, version = text.rpartition("@")
    if "/" not in path:
        # An @ in the scope does not begin a version.
        path, version = text, ""
    scope, _, name = path.partition("/")
    if not scope or not name or "/" in name or (path != text and not is_version(version)):
        raise ParameterError(
            "widget must be scope/name or scope/name@version such as acme/clock@1.0.0, "
            f"not {quoted(text)}; a + in it must be sent as %2B."
        )
    return WidgetName(scope, name, version or None)


# Returns one JSON document with an array for each requested widget, in the order of the request:
# whether the widget is listed, then the bundle URL and the hash of the version to load. The URL is
# a path if this service stores the bundle.
BUNDLES = """
SELECT content, (
    SELECT json_group_array(json_array(is_listed, bundle_url, sha256_hash)) FROM (
        SELECT widget.id IS NOT NULL AS is_listed,
            coalesce(bundle_path, bundle_url) AS bundle_url, sha256_hash
        FROM json_each(:widgets) AS item
        LEFT JOIN widget ON scope = item.value ->> 0 AND name = item.value ->> 1 AND listed
        LEFT JOIN version ON version.id = iif(item.value ->> 2 IS NULL, {newest}, (
            SELECT id FROM version AS named
            WHERE named.widget_id = widget.id AND named.version = item.value ->> 2))
        ORDER BY item.key))
FROM revision
"""


def find_import_map(
    connection: Connection, query: ImportMapQuery, public_url: str
) -> tuple[int, bytes]:
    """Return the catalog's content revision and the response as JSON."""
    statement = BUNDLES.format(newest=query.candidates.newest("id", "widget.id"))
    values = {"widgets": json.dumps(query.widgets), **query.candidates.values}
    content, text = fetch_one(connection, statement, values)
    imports: dict[str, str] = {}
    integrity: dict[str, str] = {}
    unavailable: dict[str, str] = {}
    for widget, (is_listed, url, sha256) in zip(query.widgets, json.loads(text), strict=True):
        # A dashboard imports the widget by this name.
        path = f"{widget.scope}/{widget.name}"
        if url is None:
            unavailable[path] = _explain(widget, query.candidates, is_listed=is_listed)
            continue
        url = public_url + url if url.startswith("/") else url
        expected = f"sha256-{b64encode(bytes.fromhex(sha256)).decode()}"
        if integrity.setdefault(url, expected) == expected:
            imports[path] = url
        else:
            unavailable[path] = (
                f"Another widget in this map has a different hash for the same bundle URL, {url}."
            )
    response = {"imports": imports, "integrity": integrity}
    # Add this key only if it is needed: browsers warn about unknown keys in an import map.
    response |= {"unavailable": unavailable} if unavailable else {}
    body = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
    return content, f"{body}\n".encode()


def _explain(widget: WidgetName, candidates: Candidates, *, is_listed: bool) -> str:
    """Return why no version of a widget can be loaded."""
    if not is_listed:
        return f"There is no widget {quoted(str(widget.widget))}."
    if widget.version is not None:
        return f"There is no version {quoted(str(widget))}."
    return candidates.explain_none(str(widget))
