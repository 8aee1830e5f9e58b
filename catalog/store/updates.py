"""Updates of installed versions: the parameters, the statements and the JSON of the response."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from catalog.documents import Json
from catalog.semver_ranges import is_version
from catalog.store.json_sql import VERSION_ADMITS
from catalog.store.sdk_intervals import sdk_key
from catalog.store.search_params import ParameterError, parse_compat_sdk
from catalog.store.sqlite import Connection, snapshot
from catalog.store.update_rule import Advice, Release, advise
from catalog.text import quoted

MAX_INSTALLED = 100

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


# The versions of each installed widget; one row of NULLs if it is not listed or has no version.
# Not sorted, so that rows come one by one and the deadline of the thread bounds the work on them.
VERSIONS = f"""
SELECT item.key, widget.id AS widget_id, version.id, version, published_at, precedence, yanked,
    yanked_reason, deprecation_message, sdk_version, {VERSION_ADMITS} AS is_compatible
FROM json_each(:installed) AS item
LEFT JOIN widget
    ON scope = json_extract(item.value, '$[0]') AND name = json_extract(item.value, '$[1]')
    AND listed
LEFT JOIN version ON widget_id = widget.id
"""

ENTRIES = """
SELECT id, entry FROM version_entry WHERE id IN (SELECT value FROM json_each(:ids))
"""


def find_updates(connection: Connection, query: UpdatesQuery) -> tuple[int, bytes]:
    """Return the revision of the catalog, and the JSON of the response."""
    # Both statements must see the same versions.
    with snapshot(connection):
        (content,) = connection.execute("SELECT content FROM revision").fetchone()
        items = list(_read_items(connection, query))
        ids = json.dumps([update_id for _, update_id in items if update_id])
        entries = dict(connection.execute(ENTRIES, {"ids": ids}).fetchall())
    bodies = [_render(item, entries.get(update_id, "null")) for item, update_id in items]
    return content, f'{{"updates":[{",".join(bodies)}]}}\n'.encode()


def _read_items(connection: Connection, query: UpdatesQuery) -> Iterator[tuple[Json, int | None]]:
    """Yield each installed version as JSON without its update, and the id of that version."""
    installed = json.dumps([each[:2] for each in query.installed])
    values = {"installed": installed, "sdk": sdk_key(query.sdk)}
    rows = connection.execute(VERSIONS, values)
    for key, group in groupby(rows, itemgetter("key")):
        yield _describe(query.installed[key], list(group), query.sdk)


def _describe(installed: Installed, rows: Sequence[Any], sdk: str) -> tuple[Json, int | None]:
    item: Json = {
        **{"scope": installed.scope, "name": installed.name, "installed": installed.version},
        **{"status": UNAVAILABLE, "yanked": None, "yankedReason": None},
        **{"deprecationMessage": None, "compatible": None, "update": None},
    }
    path = f"{installed.scope}/{installed.name}"
    if rows[0]["widget_id"] is None:
        return {**item, "reason": f"There is no widget {quoted(path)}."}, None
    own = next((row for row in rows if row["version"] == installed.version), None)
    if own is None:
        reason = f"There is no version {quoted(str(installed))}."
        return {**item, "status": UNKNOWN, "reason": reason}, None
    newest_first = sorted(rows, key=itemgetter("published_at", "precedence", "version"))[::-1]
    advice = advise(_release(own), [_release(row) for row in newest_first], sdk)
    item |= {
        "status": UPDATE if advice.update else CURRENT,
        "yanked": bool(own["yanked"]),
        "yankedReason": own["yanked_reason"],
        "deprecationMessage": own["deprecation_message"],
        "compatible": bool(own["is_compatible"]),
    }
    return _with_advice(item, advice), _update_id(rows, advice)


def _with_advice(item: Json, advice: Advice) -> Json:
    downgrade = {"downgrade": True} if advice.is_downgrade else {}
    return {**item, **downgrade, "reason": advice.reason}


def _update_id(rows: Sequence[Any], advice: Advice) -> int | None:
    if advice.update is None:
        return None
    update_id: int = next(row["id"] for row in rows if row["version"] == advice.update.number)
    return update_id


def _release(row: Any) -> Release:
    return Release(
        number=row["version"],
        precedence=row["precedence"],
        is_yanked=bool(row["yanked"]),
        yanked_reason=row["yanked_reason"],
        sdk_range=row["sdk_version"],
        is_compatible=bool(row["is_compatible"]),
    )


def _render(item: Json, entry: str) -> str:
    """Return the JSON of an item; the entry of its update is JSON already."""
    members = [
        f"{json.dumps(key)}:{entry if key == 'update' else json.dumps(value, ensure_ascii=False)}"
        for key, value in item.items()
    ]
    return f"{{{','.join(members)}}}"
