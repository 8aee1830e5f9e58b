"""What a mirror remembers of its upstreams, so that the next refresh needs no options."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.read.selection import Selection
from ..store.write.mirrored import release_copies
from ..validators import is_loopback
from .connections import Origin


@dataclass(frozen=True)
class MirrorOptions(Selection):
    """What is copied; what was copied before is refreshed whether or not it is selected."""

    # As scope/name: neither copied nor refreshed.
    excludes: Sequence[str] = ()
    # How many versions of a widget are copied, for each SDK if there are any; all if not given.
    newest: int | None = None
    bundles: bool = False
    keep_removed: bool = False
    # In hours or days, such as 7d.
    min_age: str | None = None
    # The path of a PEM file.
    ca: str | None = None

    def names(self, scope: str, name: str) -> bool:
        """Return whether the widget is one of the named ones."""
        return f"{scope}/{name}" not in self.excludes and super().names(scope, name)

    def has_versions_of(self, other: "MirrorOptions") -> bool:
        """Return whether the same versions of each widget are copied."""
        same_sdks = [*self.sdks] == [*other.sdks]
        return self.newest == other.newest and (not self.newest or same_sdks)

    def json(self) -> str:
        """Return the options as they are stored."""
        return json.dumps(asdict(self), ensure_ascii=False)


class Remembered(NamedTuple):
    """An upstream, what is copied from it, and how many copies there are."""

    source: str
    options: MirrorOptions
    # How far its changes were read, and when the last run in which no widget failed ended.
    token: str | None = None
    refreshed_at: str | None = None
    widgets: int = 0
    versions: int = 0
    bundles: int = 0
    gone: int = 0


REMEMBERED = """
SELECT upstream.source, options, token, refreshed_at,
    count(DISTINCT widget.id) FILTER (WHERE listed), count(version.id) FILTER (WHERE listed),
    count(bundle_path) FILTER (WHERE listed),
    count(DISTINCT widget.id) FILTER (WHERE gone AND NOT listed)
FROM upstream LEFT JOIN mirrored USING (source)
LEFT JOIN widget ON widget.id = mirrored.widget_id
LEFT JOIN version ON version.widget_id = widget.id
GROUP BY upstream.source ORDER BY upstream.source
"""


def find_remembered(database: Database) -> list[Remembered]:
    """Return the upstreams of the mirror."""
    rows = database.fetch(REMEMBERED, {}) if database.exists() else []
    return [
        Remembered(source, MirrorOptions(**json.loads(options)), *others)
        for source, options, *others in rows
    ]


PUT_REMEMBERED = """
INSERT INTO upstream SELECT :source, :options, :token, :refreshed_at WHERE true
ON CONFLICT (source) DO UPDATE SET (options, token, refreshed_at)
    = (excluded.options, excluded.token, excluded.refreshed_at)
"""


def put_remembered(transaction: Transaction, upstream: Remembered) -> None:
    """Remember an upstream, and how far it was read."""
    values = {**upstream._asdict(), "options": upstream.options.json()}
    transaction.note(PUT_REMEMBERED, values)


WITHOUT_COPIES = """
SELECT source FROM upstream
WHERE source <> :source AND source NOT IN (SELECT source FROM mirrored) ORDER BY source
"""
FORGET = "DELETE FROM upstream WHERE source = :source"


def forget_without_copies(transaction: Transaction, source: str) -> list[str]:
    """Forget all other upstreams that have no copies here, and return them."""
    forgotten = [other for (other,) in transaction.read(WITHOUT_COPIES, {"source": source})]
    for other in forgotten:
        transaction.execute(FORGET, {"source": other})
    return forgotten


def forget(transaction: Transaction, source: str, *, delete: bool) -> int:
    """Forget an upstream, and delete its copies or keep them; return how many they are."""
    count = release_copies(transaction, source, delete=delete)
    transaction.execute(FORGET, {"source": source})
    transaction.record("mirror", after={"forgotten": source, "widgets": count, "deleted": delete})
    return count


SOURCES = "SELECT source FROM upstream UNION SELECT source FROM mirrored ORDER BY source"


def find_source(database: Database, url: str) -> str:
    """Return the URL by which the copies of this upstream are known, another spelling perhaps."""
    known = [source for (source,) in database.fetch(SOURCES, {})] if database.exists() else []
    return next((source for source in known if _identity(source) == _identity(url)), url)


def _identity(url: str) -> tuple[Origin, str]:
    origin = Origin.of(url)
    path = url.partition("//")[2].partition("/")[2]
    return origin._replace(host="localhost") if is_loopback(origin.host) else origin, path
