"""The results of a mirror run, which the commands print."""

from dataclasses import dataclass, field

from ..domain.changes import WidgetName


@dataclass
class MirrorReport:
    """The results of a run or dry run."""

    # These sets contain widgets as scope/name.
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    # The reason for each failure, by scope/name.
    failures: dict[str, str] = field(default_factory=dict)
    # Copied widgets and versions that the upstream no longer shows.
    gone: list[WidgetName] = field(default_factory=list)
    # The publication time of each version that is held back, by scope/name@version.
    held_back: dict[str, str] = field(default_factory=dict)
    # Versions that are copied even though they are too new, with the yanked versions they replace.
    urgent: dict[str, str] = field(default_factory=dict)
    # Versions whose bytes the upstream has replaced. Their copies stay unchanged.
    replaced: list[str] = field(default_factory=list)
    # Copied versions that --newest no longer selects.
    outdated: list[WidgetName] = field(default_factory=list)
    # Upstreams that were removed because their last copies were replaced.
    forgotten: list[str] = field(default_factory=list)
