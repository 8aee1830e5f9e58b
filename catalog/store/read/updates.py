"""Updates of installed versions: the parameters, the statements and the JSON of the response."""

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring

from ...installed_list import Installed, UpdatesQuery, parse_installed
from ...text import quoted
from ...update_rule import Advice, Release, advise
from ..connection.sqlite import Connection, snapshot
from ..schema.sdk_intervals import sdk_key
from .json_sql import NEWEST_FIRST, VERSION_ADMITS
from .search_params import ParameterError, parse_compat_sdk

MAX_INSTALLED = 100

CURRENT, UPDATE, UNAVAILABLE, UNKNOWN = "current", "update", "unavailable", "unknown"


def parse_updates(sdk: str | None, installed: Sequence[str]) -> UpdatesQuery:
    """Return the query of these parameters; raise ParameterError."""
    if sdk is None:
        raise ParameterError("compatSdk is missing: the SDK of the dashboard, such as 1.4.0.")
    parse_compat_sdk(sdk)
    if not 1 <= len(installed) <= MAX_INSTALLED:
        raise ParameterError(
            f"installed must be given 1 to {MAX_INSTALLED} times, not {len(installed)}."
        )
    try:
        parsed = tuple(map(parse_installed, installed))
    except ValueError as error:
        raise ParameterError(str(error)) from error
    if len(set(parsed)) < len(parsed):
        repeated = next(each for each in parsed if parsed.count(each) > 1)
        raise ParameterError(f"installed has {quoted(str(repeated))} more than once.")
    return UpdatesQuery(sdk, parsed)


# The versions of each listed widget, newest first, as one JSON text: pairs of the widget's position
# in :widgets and the fields of Release. Without an SDK every version is compatible. A row for each
# version or widget takes longer; the text of a hundred widgets could take too much memory.
WIDGETS_PER_TEXT = 20
RELEASES = f"""
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
    # All statements must see the same versions.
    with snapshot(connection):
        (content,) = connection.execute("SELECT content FROM revision").fetchone()
        releases = _read_releases(connection, query.installed, query.sdk)
        found = []
        for each in query.installed:
            connection.check_deadline()
            found.append(_find(each, releases.get(each[:2]), query.sdk))
        ids = json.dumps([advice.update.id for _, _, advice in found if advice.update])
        entries = dict(connection.execute(ENTRIES, {"ids": ids}).fetchall())
    items = [_render(each, *one, entries) for each, one in zip(query.installed, found, strict=True)]
    return content, f'{{"updates":[{",".join(items)}]}}\n'.encode()


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
        (text,) = connection.execute(RELEASES, values).fetchone()
        for position, rows in json.loads(text):
            # The deadline of the thread also bounds the work in Python.
            connection.check_deadline()
            releases[some[position]] = list(map(Release._make, rows))
    return releases


def _find(
    installed: Installed, releases: list[Release] | None, sdk: str
) -> tuple[str, Release | None, Advice]:
    """Return the status of an installed version, the version itself, and the advice."""
    if releases is None:
        widget = quoted(f"{installed.scope}/{installed.name}")
        return UNAVAILABLE, None, Advice(None, False, f"There is no widget {widget}.")
    own = next((each for each in releases if each.number == installed.version), None)
    if own is None:
        reason = f"There is no version {quoted(str(installed))}."
        return UNKNOWN, None, Advice(None, False, reason)
    advice = advise(own, releases, sdk)
    return UPDATE if advice.update else CURRENT, own, advice


# The members of an installed version. With a dict for each and an encoder, find_updates() would
# take 8 % longer.
ITEM = (
    '{{"scope":{},"name":{},"installed":{},"status":"{}","yanked":{},"yankedReason":{},'
    '"deprecationMessage":{},"compatible":{},"update":{},{}"reason":{}}}'
)


def _render(
    installed: Installed,
    status: str,
    own: Release | None,
    advice: Advice,
    entries: Mapping[int, str],
) -> str:
    """Return the JSON of an installed version; entries has the JSON of updates by their id."""
    return ITEM.format(
        *map(encode_basestring, installed),
        status,
        _boolean(own and own.is_yanked),
        _text(own and own.yanked_reason),
        _text(own and own.deprecation_message),
        _boolean(own and own.is_compatible),
        entries[advice.update.id] if advice.update else "null",
        '"downgrade":true,' if advice.is_downgrade else "",
        encode_basestring(advice.reason),
    )


def _boolean(value: object) -> str:
    return "null" if value is None else "true" if value else "false"


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring(value)
