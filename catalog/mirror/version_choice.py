"""Which versions of a widget a mirror copies: those that are old enough, or the newest ones."""

from collections.abc import Sequence

from ..changes import WidgetName
from ..documents import Row
from ..semver_ranges import precedence, satisfies
from ..store.connection.database import Database

STORED_VERSIONS = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
"""


def hold_back_new(
    database: Database, key: WidgetName, rows: Sequence[Row], limit: str
) -> tuple[list[Row], dict[WidgetName, str], list[WidgetName]]:
    """Return the versions that were published before the limit, and those that are here already.

    Also return the others with their times, and the versions here that have other bytes at the
    upstream now. They stay as they are, unless a later time of publication is before the limit: the
    upstream may have replaced the bytes a moment ago, and kept the time.
    """
    found = database.fetch(STORED_VERSIONS, key._asdict()) if database.exists() else []
    stored = {row["version"]: row for row in found}
    chosen: list[Row] = []
    held_back: dict[WidgetName, str] = {}
    replaced: list[WidgetName] = []
    for row in rows:
        here, name = stored.get(row["version"]), key._replace(version=row["version"])
        if here is None and row["published_at"] > limit:
            held_back[name] = row["published_at"]
        elif (
            here is None
            or here["sha256_hash"] == row["sha256_hash"]
            or here["published_at"] < row["published_at"] <= limit
        ):
            chosen.append(row)
        else:
            replaced.append(name)
            chosen.append({column: here[column] for column in row})
    return chosen, held_back, replaced


def choose_newest(rows: Sequence[Row], sdks: Sequence[str], count: int) -> list[Row]:
    """Return the newest versions that are not yanked: so many for each SDK, or of all."""
    available = [row for row in rows if not row["yanked"]]
    available.sort(
        key=lambda row: (row["published_at"], precedence(row["version"]), row["version"]),
        reverse=True,
    )
    if not sdks:
        return available[:count]
    chosen: dict[str, Row] = {}
    for sdk in sdks:
        fitting = [row for row in available if satisfies(sdk, row["sdk_version"])]
        chosen |= {row["version"]: row for row in fitting[:count]}
    return list(chosen.values())
