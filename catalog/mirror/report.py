"""The results of a run for the commands to print."""

from dataclasses import dataclass, field

from ..domain.changes import WidgetName


@dataclass
class MirrorReport:
    """The results of a run or of a dry run."""

    # Each widget is given as scope/name.
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    # The reason for each failure, by scope/name.
    failures: dict[str, str] = field(default_factory=dict)
    # Local widgets and versions that the upstream no longer shows.
    gone: list[WidgetName] = field(default_factory=list)
    # The publication time of each version that is held back, by scope/name@version.
    held_back: dict[str, str] = field(default_factory=dict)
    # Versions that are copied although they are too new, with the yanked ones that they replace.
    urgent: dict[str, str] = field(default_factory=dict)
    # Versions whose bytes the upstream has replaced. Their copies stay unchanged.
    replaced: list[str] = field(default_factory=list)
    # Copied versions that are no longer among the newest versions that the options select.
    outdated: list[WidgetName] = field(default_factory=list)
    # Upstreams whose last copies were replaced.
    forgotten: list[str] = field(default_factory=list)
