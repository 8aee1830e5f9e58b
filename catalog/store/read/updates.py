"""Updates of installed versions: the parameters, the statements and the JSON of the response."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...documents import Json
from ...semver_ranges import is_version
from ...text import quoted
from ..connection.sqlite import Connection, snapshot
from ..schema.sdk_intervals import sdk_key
from .json_sql import NEWEST_FIRST, VERSION_ADMITS
from .search_params import ParameterError, parse_compat_sdk
from .update_rule import Advice, Release, advise

MAX_INSTALLED = 100

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

CURRENT, UPDATE, UNAVAILABLE, UNKNOWN = "current", "update", "unavailable", "unknown"


class Installed(NamedTuple):
    """A version that a dashboard has installed."""

    scope: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}@{self.version}"


class UpdatesQuery(NamedTuple):
    """Installed versions, and the SDK of the dashboard."""

    sdk: str
    installed: tuple[Installed, ...]


def parse_updates(sdk: str | None, installed: Sequence[str]) -> UpdatesQuery:
    """Return the query of these parameters; raise ParameterError."""
    if sdk is None:
        raise ParameterError("compatSdk is missing: the SDK of the dashboard, such as 1.4.0.")
    parse_compat_sdk(sdk)
    if not 1 <= len(installed) <= MAX_INSTALLED:
        raise ParameterError(
            f"installed must be given 1 to {MAX_INSTALLED} times, not {len(installed)}."
        )
    parsed = tuple(map(parse_installed, installed))
    if len(set(parsed)) < len(parsed):
        repeated = next(each for each in parsed if parsed.count(each) > 1)
        raise ParameterError(f"installed has {quoted(str(repeated))} more than once.")
    return UpdatesQuery(sdk, parsed)


def parse_installed(text: str) -> Installed:
    """Return the version that scope/name@version names; raise ParameterError."""
    path, _, version = text.rpartition("@")
    scope, _, name = path.partition("/")
    if not scope or not name or "/" in name or not is_version(version):
        raise ParameterError(
            f"installed must be scope/name@version such as acme/clock@1.0.0, not {quoted(text)}; "
            "a + in it must be sent as %2B."
        )
    return Installed(scope, name, version)


# The versions of each listed widget, newest first, as one JSON text: pairs of the widget's position
# in :widgets and the fields of Release. Without an SDK every version is compatible. A row for each
# version or widget takes longer; the text of a hundred widgets could take too much memory.
WIDGETS_PER_TEXT = 20
VERSIONS = f"""
SELECT json_group_array(json_array(position, json(versions))) FROM (
    SELECT item.key AS position, (
        SELECT json_group_array(json_array(
            id, precedence, version, yanked, yanked_reason, deprecation_message, sdk_version,
            iif(:sdk IS NULL OR {VERSION_ADMITS}, 1, 0)))
        FROM (
            SELECT id, precedence, version, yanked, yanked_reason, deprecation_message, sdk_version
            FROM version
            WHERE widget_id = widget.id
            ORDER BY {NEWEST_FIRST})
    ) AS versions
    FROM json_each(:widgets) AS item
    JOIN widget
        ON scope = json_extract(item.value, '$[0]') AND name = json_extract(item.value, '$[1]')
    WHERE listed)
"""

ENTRIES = """
SELECT id, entry FROM version_entry WHERE id IN (SELECT value FROM json_each(:ids))
"""


def find_updates(connection: Connection, query: UpdatesQuery) -> tuple[int, bytes]:
    """Return the revision of the catalog, and the JSON of the response."""
    # Both statements must see the same versions.
    with snapshot(connection):
        (content,) = connection.execute("SELECT content FROM revision").fetchone()
        releases = _read_releases(connection, query.installed, query.sdk)
        described = []
        for each in query.installed:
            connection.check_deadline()
            described.append(_describe(each, releases.get(each[:2]), query.sdk))
        items, update_ids = zip(*described, strict=True)
        ids = json.dumps([update_id for update_id in update_ids if update_id])
        entries = dict(connection.execute(ENTRIES, {"ids": ids}).fetchall())
    return content, _render(items, [entries.get(each, "null") for each in update_ids])


# The ranges of a widget's versions that admit some SDK which the range of this version admits.
SHARED_RANGES = """
WITH widget_id (id) AS (SELECT id FROM widget WHERE scope = :scope AND name = :name),
admitted AS (
    SELECT low, high FROM version
    JOIN sdk_range ON range = sdk_version JOIN sdk_interval ON range_id = sdk_range.id
    WHERE widget_id = (SELECT id FROM widget_id) AND version = :version
)
SELECT range FROM sdk_range
WHERE range IN (SELECT sdk_version FROM version WHERE widget_id = (SELECT id FROM widget_id))
    AND EXISTS (
        SELECT 1 FROM sdk_interval JOIN admitted
        WHERE range_id = sdk_range.id
            AND sdk_interval.low < admitted.high AND sdk_interval.high > admitted.low)
"""


def find_advice(connection: Connection, installed: Installed, sdk: str | None) -> Advice | None:
    """Return the advice for a version of a listed widget; None if there is no such version.

    Without an SDK, a version is compatible that runs on one of the SDKs of the installed one; if
    that finds none, or only a deprecated one, every version is. The reason is then not meaningful.
    """
    newest_first = _read_releases(connection, [installed], sdk).get(installed[:2], [])
    own = next((each for each in newest_first if each.number == installed.version), None)
    if own is None:
        return None
    if sdk is not None:
        return advise(own, newest_first, sdk)
    shared = {range for (range,) in connection.execute(SHARED_RANGES, installed._asdict())}
    near = [each._replace(is_compatible=each.sdk_range in shared) for each in newest_first]
    advice = advise(own, near, "")
    if advice.update is None or advice.update.deprecation_message is not None:
        advice = advise(own, newest_first, "")
    return advice


def _read_releases(
    connection: Connection, installed: Iterable[Installed], sdk: str | None
) -> dict[tuple[str, ...], list[Release]]:
    """Return the versions of each listed widget, newest first, by scope and name."""
    # Each widget is read once, however many of its versions are installed.
    names = list(dict.fromkeys(each[:2] for each in installed))
    releases = {}
    for start in range(0, len(names), WIDGETS_PER_TEXT):
        some = names[start : start + WIDGETS_PER_TEXT]
        values = {"widgets": json.dumps(some), "sdk": sdk and sdk_key(sdk)}
        (text,) = connection.execute(VERSIONS, values).fetchone()
        for position, rows in json.loads(text):
            # The deadline of the thread also bounds the work in Python.
            connection.check_deadline()
            releases[some[position]] = list(map(Release._make, rows))
    return releases


def _describe(
    installed: Installed, releases: list[Release] | None, sdk: str
) -> tuple[Json, int | None]:
    """Return the JSON of an installed version, without the update, and the id of the update."""
    own = next((each for each in releases or () if each.number == installed.version), None)
    advice = Advice(None, False, "")
    if releases is None:
        status = UNAVAILABLE
        reason = f"There is no widget {quoted(f'{installed.scope}/{installed.name}')}."
    elif own is None:
        status, reason = UNKNOWN, f"There is no version {quoted(str(installed))}."
    else:
        advice = advise(own, releases, sdk)
        status, reason = UPDATE if advice.update else CURRENT, advice.reason
    item = {
        "scope": installed.scope,
        "name": installed.name,
        "installed": installed.version,
        "status": status,
        "yanked": own and bool(own.is_yanked),
        "yankedReason": own and own.yanked_reason,
        "deprecationMessage": own and own.deprecation_message,
        "compatible": own and bool(own.is_compatible),
        "update": None,
        **({"downgrade": True} if advice.is_downgrade else {}),
        "reason": reason,
    }
    return item, advice.update.id if advice.update else None


def _render(items: Sequence[Json], entries: Sequence[str]) -> bytes:
    """Return the response; the entry of each update is JSON already."""
    # Quotes inside a JSON string are escaped, so no text can contain the separator.
    first, *others = _encoder.encode({"updates": items}).split('"update":null')
    updates = map('"update":{}{}'.format, entries, others)
    return f"{first}{''.join(updates)}\n".encode()
