"""Which version, if any, a user of an installed version should change to, and why.

An update is the newest available version that runs on the SDK and has a higher precedence than the
installed one. Newest means published last, as everywhere in the API. A prerelease is an update only
of a prerelease of the same three numbers. If the installed version is yanked and has no update, the
version with the highest precedence below it is a downgrade.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .text import shorten

# Bounds of what a reason says about versions that are no update.
MAX_NAMED = 3
MAX_QUOTED = 100  # characters


class Release(NamedTuple):
    """A version; is_compatible is whether it runs on the SDK. SQLite has 0 and 1 as booleans."""

    id: int
    # As precedence() in catalog/semver_ranges.py returns it.
    precedence: str
    number: str
    is_yanked: bool
    yanked_reason: str | None
    deprecation_message: str | None
    sdk_range: str
    is_compatible: bool

    @property
    def is_prerelease(self) -> bool:
        """Whether the version is one before the release of its three numbers."""
        return "-" in self.precedence

    @property
    def core(self) -> str:
        """The three numbers of the version, in the form that precedence has."""
        return self.precedence.partition("-")[0].rstrip("~")


class Advice(NamedTuple):
    """The version to change to, None to stay; reason is a sentence."""

    update: Release | None
    is_downgrade: bool
    reason: str


def advise(installed: Release, newest_first: Sequence[Release], sdk: str) -> Advice:
    """Return what the user of the installed version should do on this SDK."""
    above = [each for each in newest_first if each.precedence > installed.precedence]
    for index, release in enumerate(above):
        if _is_eligible(release, installed):
            found = f"{release.number} is the newest version above {installed.number} that runs"
            skipped = _explain_skipped(above[:index])
            return Advice(release, False, _sentence(f"{found} on SDK {sdk}", skipped))
    skipped = _explain_skipped(above)
    if not installed.is_yanked and not skipped:
        return Advice(None, False, _sentence(f"There is no version above {installed.number}"))
    if not installed.is_yanked:
        none = f"{installed.number} has no update for SDK {sdk}"
        return Advice(None, False, _sentence(none, skipped))
    below = [
        each
        for each in newest_first
        if each.precedence < installed.precedence and _is_eligible(each, installed)
    ]
    withdrawn = _explain_yank(installed)
    if not below:
        other = f"no other version to change to runs on SDK {sdk}"
        return Advice(None, False, _sentence(withdrawn, skipped, other))
    # max() returns the first of equal ones, which is the newest.
    best = max(below, key=lambda release: release.precedence)
    found = f"{best.number} is the highest version below {installed.number} that runs"
    return Advice(best, True, _sentence(withdrawn, skipped, f"{found} on SDK {sdk}"))


def _is_eligible(release: Release, installed: Release) -> bool:
    return (
        release.is_compatible
        and not release.is_yanked
        and (not release.is_prerelease or _is_same_prerelease(release, installed))
    )


def _is_same_prerelease(release: Release, installed: Release) -> bool:
    return installed.is_prerelease and release.core == installed.core


def _explain_skipped(skipped: Sequence[Release]) -> str:
    """Return why none of these versions is the update; empty if there are none."""
    clauses = [_explain(release) for release in skipped[:MAX_NAMED]]
    if len(skipped) > MAX_NAMED:
        clauses.append(f"and {len(skipped) - MAX_NAMED} more")
    return "; ".join(clauses)


def _explain(release: Release) -> str:
    if release.is_yanked:
        return _explain_yank(release)
    if not release.is_compatible:
        return f"{release.number} needs SDK {shorten(release.sdk_range, MAX_QUOTED)}"
    return f"{release.number} is a prerelease"


def _explain_yank(release: Release) -> str:
    reason = shorten(" ".join((release.yanked_reason or "").split()), MAX_QUOTED)
    return f"{release.number} was yanked" + (f": {reason.rstrip('.')}" if reason else "")


def _sentence(*clauses: str) -> str:
    return "; ".join(filter(None, clauses)) + "."
