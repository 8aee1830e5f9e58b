"""Updates for installed versions: the parameters, the statements and the JSON response."""

import json
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring

from ...domain.installed_list import Installed, UpdatesQuery, parse_installed
from ...domain.messages import quoted
from ...domain.update_rule import Advice, Release, advise
from ..connection.revision import read_revision
from ..connection.sqlite import Connection, fetch_all, fetch_one, snapshot
from .candidates import IS_EARLIER, NEWEST_FIRST, RUNS_ON_SDK, Candidates
from .parameters import ParameterError, check_repeated, parse_before, require_compat_sdk

MAX_INSTALLED = 100

CURRENT, UPDATE, UNAVAILABLE, UNKNOWN = "current", "update", "unavailable", "unknown"


def parse_updates(parameters: Mapping[str, str], installed: Sequence[str]) -> UpdatesQuery:
    """Return the query that these parameters describe; raise ParameterError if it is invalid."""
    sdk = require_compat_sdk(parameters.get("compatSdk"))
    before = parse_before(parameters.get("before"))
    try:
        parsed = tuple(map(parse_installed, installed))
    except ValueError as error:
        raise ParameterError(str(error)) from error
    check_repeated("installed", parsed, MAX_INSTALLED)
    return UpdatesQuery(sdk, parsed, before)


# Returns a JSON array with a pair for each listed widget: its position in :widgets, and its
# versions, newest first, with the fields of Release. Without an SDK, every version is compatible. A
# single array is faster than one row per version or widget. Each statement reads only
# WIDGETS_PER_TEXT widgets, because an array of a hundred widgets could take too much memory.
WIDGETS_PER_TEXT = 20
RELEASES = f"""
SELECT json_group_array(json_array(position, json(versions))) FROM (
    SELECT item.key AS position, (
        SELECT json_group_array(json_array(
            id, precedence, version, yanked, yanked_reason, deprecation_message, sdk_version,
            iif(:sdk IS NULL OR {RUNS_ON_SDK}, 1, 0),
            iif(:before IS NULL OR {IS_EARLIER}, NULL, published_at)))
        FROM (
            SELECT id, precedence, version, yanked, yanked_reason, deprecation_message,
                sdk_version, published_at
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
    """Return the catalog's content revision and the response as JSON."""
    # All statements must see the same versions.
    with snapshot(connection):
        content = read_revision(connection).content
        candidates = Candidates(query.sdk, before=query.before)
        releases = _read_releases(connection, query.installed, candidates)
        found = []
        for each in query.installed:
            connection.check_deadline()
            found.append(_find(each, releases.get(each[:2]), query.sdk))
        ids = json.dumps([advice.update.id for _, _, advice in found if advice.update])
        entries = dict(fetch_all(connection, ENTRIES, {"ids": ids}))
    items = [_render(each, *one, entries) for each, one in zip(query.installed, found, strict=True)]
    return content, f'{{"updates":[{",".join(items)}]}}\n'.encode()


# Selects the SDK ranges in :ranges that overlap with :range.
SHARED_RANGES = """
SELECT range FROM json_each(:ranges) JOIN sdk_range ON range = value
WHERE EXISTS (
    SELECT 1 FROM sdk_interval AS own JOIN sdk_interval AS other
    ON own.low < other.high AND other.low < own.high
    WHERE own.range_id = (SELECT id FROM sdk_range WHERE range = :range)
        AND other.range_id = sdk_range.id)
"""


def find_advice(connection: Connection, installed: Installed, sdk: str | None) -> Advice | None:
    """Return the advice for a version of a listed widget; None if there is no such version.

    Without an SDK, a version counts as compatible if it shares an SDK with the installed version.
    If this finds no update, or only a deprecated one, every version counts as compatible. The
    reason is meaningless without an SDK.
    """
    releases = _read_releases(connection, [installed], Candidates(sdk))
    newest_first = releases.get(installed[:2], [])
    own = next((each for each in newest_first if each.number == installed.version), None)
    if own is None:
        return None
    if sdk is not None:
        return advise(own, newest_first, sdk)
    ranges = json.dumps(list({each.sdk_range for each in newest_first}))
    values = {"range": own.sdk_range, "ranges": ranges}
    shared = {range for (range,) in fetch_all(connection, SHARED_RANGES, values)}
    near = [each._replace(is_compatible=each.sdk_range in shared) for each in newest_first]
    advice = advise(own, near, "")
    if advice.update is None or advice.update.deprecation_message is not None:
        advice = advise(own, newest_first, "")
    return advice


def _read_releases(
    connection: Connection, installed: Iterable[Installed], candidates: Candidates
) -> dict[tuple[str, ...], list[Release]]:
    """Return the versions of each listed widget, newest first, by scope and name."""
    # Each widget is read once, however many of its versions are installed.
    names = list(dict.fromkeys(each[:2] for each in installed))
    releases = {}
    for start in range(0, len(names), WIDGETS_PER_TEXT):
        some = names[start : start + WIDGETS_PER_TEXT]
        values = {"widgets": json.dumps(some), **candidates.values}
        (text,) = fetch_one(connection, RELEASES, values)
        for position, rows in json.loads(text):
            # The thread's deadline also limits the work in Python.
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


# A template for an installed version's JSON. Building and encoding a dict for each version would
# make find_updates() 8% slower.
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
    """Return an installed version's JSON; entries maps the id of each update to its JSON."""
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
