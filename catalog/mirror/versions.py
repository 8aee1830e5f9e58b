"""Chooses which versions of a widget to copy: the newest versions that are old enough."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..domain.documents import Row
from ..domain.semver_ranges import is_prerelease, precedence, satisfies
from .options import MirrorOptions


class ChosenVersions(NamedTuple):
    """The versions to copy, and the versions that --min-age affects."""

    rows: list[Row]
    # The publication time of each version that is too new.
    held_back: dict[str, str]
    # Versions whose bytes the upstream has replaced. Their copies stay unchanged.
    replaced: list[str]
    # Versions that are too new but copied anyway: each is the only replacement for a yanked
    # version.
    urgent: dict[str, str]

    @property
    def is_final(self) -> bool:
        """Whether only a change at the upstream can change this choice."""
        return not self.held_back and not self.replaced


def choose_versions(
    rows: Sequence[Row], stored: Mapping[str, Row], options: MirrorOptions, limit: str | None
) -> ChosenVersions:
    """Choose among the versions in a document; hold back versions published after the limit."""
    chosen = ChosenVersions(list(rows), {}, [], {})
    if limit is not None:
        chosen = _hold_back(rows, stored, limit)
    if options.newest:
        newest = _choose_newest(chosen.rows, options.sdks, options.newest)
        chosen = chosen._replace(rows=newest)
    return chosen


def _hold_back(rows: Sequence[Row], stored: Mapping[str, Row], limit: str) -> ChosenVersions:
    """Choose the versions that were published before the limit or are already stored.

    Keep a stored version whose bytes the upstream has replaced, unless the upstream also gives it a
    later time before the limit. With the old time, the bytes may have been replaced just now.
    """
    chosen: list[Row] = []
    new: list[Row] = []
    replaced: list[str] = []
    for row in rows:
        here = stored.get(row["version"])
        if here is None and row["published_at"] > limit:
            new.append(row)
        elif (
            here is None
            or here["sha256_hash"] == row["sha256_hash"]
            or here["published_at"] < row["published_at"] <= limit
        ):
            chosen.append(row)
        else:
            replaced.append(row["version"])
            chosen.append({column: here[column] for column in row})
    urgent = _find_urgent(chosen, new)
    chosen += [row for row in new if row["version"] in urgent]
    held_back = {row["version"]: row["published_at"] for row in new if row["version"] not in urgent}
    return ChosenVersions(chosen, held_back, replaced, urgent)


def _find_urgent(chosen: Sequence[Row], new: Sequence[Row]) -> dict[str, str]:
    """Map new versions to the yanked versions that only they can replace."""
    urgent = {}
    for yanked in (row for row in chosen if row["yanked"]):
        replacements = [row for row in (*chosen, *new) if _replaces(row, yanked)]
        if len(replacements) == 1 and replacements[0] in new:
            urgent[replacements[0]["version"]] = yanked["version"]
    return urgent


def _replaces(row: Row, yanked: Row) -> bool:
    """Return whether users of the yanked version would be offered this version as an update."""
    new, old = row["version"], yanked["version"]
    is_offered = not is_prerelease(new) or (is_prerelease(old) and _core(new) == _core(old))
    return not row["yanked"] and is_offered and precedence(new) > precedence(old)


def _core(version: str) -> str:
    return version.partition("+")[0].partition("-")[0]


def _choose_newest(rows: Sequence[Row], sdks: Sequence[str], count: int) -> list[Row]:
    """Return the newest unyanked versions, stable ones first; return this many for each SDK."""
    available = [row for row in rows if not row["yanked"]]
    available.sort(
        key=lambda row: (
            not is_prerelease(row["version"]),
            row["published_at"],
            precedence(row["version"]),
            row["version"],
        ),
        reverse=True,
    )
    if not sdks:
        return available[:count]
    chosen: dict[str, Row] = {}
    for sdk in sdks:
        fitting = [row for row in available if satisfies(sdk, row["sdk_version"])]
        chosen |= {row["version"]: row for row in fitting[:count]}
    return list(chosen.values())
