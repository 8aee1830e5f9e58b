"""What a run of a mirror has to do, from what is here and at the upstream, and what it did."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..changes import WidgetName
from ..store.connection.database import Database
from .fetch import Counts, UpstreamChanges
from .remembered import MirrorOptions, Remembered


@dataclass
class MirrorReport:
    """Results of a run."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    # The scope/name of each selected widget that the upstream lists.
    listed: set[str] = field(default_factory=set)
    # Reasons, by what failed.
    failures: dict[str, str] = field(default_factory=dict)
    # Widgets and versions here that the upstream does not show, or no longer.
    gone: list[WidgetName] = field(default_factory=list)
    # When versions were published that are too new to be copied.
    held_back: dict[WidgetName, str] = field(default_factory=dict)
    # Versions that have other bytes at the upstream now, and stay as they are here.
    replaced: list[WidgetName] = field(default_factory=list)
    # Versions that are no longer among the newest ones that are copied.
    outdated: list[WidgetName] = field(default_factory=list)
    # The options of the last run, if they were others.
    former_options: MirrorOptions | None = None
    # Copies that are excluded now, and so became widgets of this catalog.
    released: list[WidgetName] = field(default_factory=list)
    # Upstreams whose last copies were replaced.
    forgotten: list[str] = field(default_factory=list)


class LocalWidget(NamedTuple):
    """A widget in the local catalog; the source is the upstream of a copy, else None."""

    listed: bool
    source: str | None
    etag: str | None
    upstream_count: int | None


LOCAL_WIDGETS = """
SELECT scope, name, listed, source, etag, upstream_count
FROM widget LEFT JOIN mirrored ON widget_id = id
ORDER BY scope, name
"""


def find_local(database: Database) -> dict[WidgetName, LocalWidget]:
    """Return all widgets of the local catalog."""
    rows = database.reader().execute(LOCAL_WIDGETS) if database.exists() else []
    return {WidgetName(*row[:2]): LocalWidget(*row[2:]) for row in rows}


class Plan(NamedTuple):
    """What a run has to do."""

    # Of the upstream, how far it was read by the last run, and since then.
    remembered: Remembered
    changes: UpstreamChanges | None
    # All selected widgets in the list, and whether no other one can be missing.
    listed: Counts
    is_complete: bool
    # The listed copies, those of them that are current, and all widgets that are fetched.
    copies: Sequence[WidgetName]
    current: Counts
    fetched: Sequence[WidgetName]
