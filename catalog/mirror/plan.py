"""The plan for a run: a pure function of the local state, the upstream's lists and the options."""

from collections.abc import Mapping
from typing import NamedTuple

from ..domain.changes import WidgetName
from ..store.read.mirrors import LocalWidget
from .lists import Counts, Lists
from .options import MirrorOptions


class Memory(NamedTuple):
    """The local state before a run."""

    # The URL under which the copies from this upstream are stored.
    source: str
    # The options of the last completed run; None before the first one.
    options: MirrorOptions | None
    position: str | None
    held_back: Mapping[str, str]
    local: Mapping[WidgetName, LocalWidget]

    @property
    def copies(self) -> dict[WidgetName, LocalWidget]:
        """The copies from this upstream."""
        return {key: each for key, each in self.local.items() if each.source == self.source}


class Plan(NamedTuple):
    """What happens to each widget; a widget is in only one of the first six fields."""

    # Copies that are not in the list. If the upstream responds 404, they are gone; otherwise they
    # are refreshed, because they were copied with another selection.
    missing: list[WidgetName]
    # Copies that may have changed.
    refreshed: list[WidgetName]
    # Widgets that do not exist here yet.
    added: list[WidgetName]
    # Local widgets and copies from other upstreams that will be replaced.
    adopted: list[WidgetName]
    # Copies that are up to date, except perhaps for their download counts.
    current: Counts
    # Excluded copies, which become local widgets.
    released: list[WidgetName]
    # Selected widgets that are not copied, each with the reason.
    refused: dict[WidgetName, str]
    # Copies whose about columns may have changed, even if their document is up to date.
    described: set[WidgetName]

    @property
    def fetched(self) -> list[WidgetName]:
        """The widgets to request, with possible takedowns first."""
        return [*self.missing, *self.refreshed, *self.adopted, *self.added]


def plan(lists: Lists, memory: Memory, options: MirrorOptions, *, adopt: bool) -> Plan:
    """Return the plan for these lists, this local state and these options."""
    result = Plan([], [], [], [], {}, [], {}, set())
    wanted = dict.fromkeys([*_changed_selection(lists, options), *lists.listed])
    for key, copy in memory.copies.items():
        if str(key) in options.excludes:
            result.released.append(key)
        elif not copy.listed:
            # The copy is unlisted. If the upstream lists the widget, a refresh relists the copy.
            if key in wanted:
                result.refreshed.append(key)
        elif key not in lists.listed:
            result.missing.append(key)
        elif lists.changes and lists.changes.has_current(key, options.valid_etag(copy.etag)):
            result.current[key] = lists.listed[key]
        else:
            result.refreshed.append(key)
    for key in wanted:
        local = memory.local.get(key)
        if local is None:
            result.added.append(key)
        elif local.source != memory.source and adopt:
            result.adopted.append(key)
        elif local.source != memory.source:
            result.refused[key] = _describe_conflict(local)
    result.described.update(_find_described(lists, memory, options))
    return result


def _changed_selection(lists: Lists, options: MirrorOptions) -> list[WidgetName]:
    """Return selected widgets that the list may have missed because it changed in the meantime."""
    # The changes do not name SDKs, so they cannot be filtered by SDK.
    if lists.changes is None or options.sdks:
        return []
    return [key for key in lists.changes.public if options.selects(key.scope, key.name)]


def is_complete(lists: Lists, options: MirrorOptions) -> bool:
    """Return whether the lists together contain every selected widget."""
    return lists.is_complete or (lists.changes is not None and not options.sdks)


def _find_described(lists: Lists, memory: Memory, options: MirrorOptions) -> set[WidgetName]:
    copies = set(memory.copies)
    had_pictures = memory.options is not None and memory.options.bundles
    if lists.changes is None or (options.bundles and not had_pictures):
        return copies
    return copies.intersection(lists.changes.public)


def _describe_conflict(local: LocalWidget) -> str:
    origin = f"is a copy from {local.source}" if local.source else "was published or imported here"
    return f"{origin}; --adopt replaces it, --exclude keeps it"
