"""Decides which version, if any, should replace an installed version, and why.

An update is the newest available version that runs on the SDK and has a higher precedence than the
installed one. Newest means published last, as everywhere in the API. A prerelease is an update only
for a prerelease with the same three numbers. An installed version that is yanked or does not run on
the SDK must be replaced: if it has no update, the version with the highest precedence below it is
offered as a downgrade.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .messages import shorten

# A reason names at most MAX_NAMED skipped versions, and truncates quotes to MAX_QUOTED.
MAX_NAMED = 3
MAX_QUOTED = 100  # characters


class Release(NamedTuple):
    """A version; SQLite returns its booleans as 0 and 1."""

    id: int
    # The key that precedence() in catalog/domain/semver_ranges.py returns.
    precedence: str
    number: str
    is_yanked: bool
    yanked_reason: str | None
    deprecation_message: str | None
    sdk_range: str
    # True if the version runs on the SDK.
    is_compatible: bool
    # The time of publication if the request excludes the version as too new, else None.
    too_new_at: str | None

    @property
    def is_prerelease(self) -> bool:
        """Whether the version number has a prerelease part, such as -rc.1."""
        return "-" in self.precedence

    @property
    def core(self) -> str:
        """The part of the precedence key for major, minor and patch."""
        return self.precedence.partition("-")[0].rstrip("~")


class Advice(NamedTuple):
    """The version to install instead, if there is one, and the reason as a sentence."""

    update: Release | None
    is_downgrade: bool
    reason: str


def advise(installed: Release, newest_first: Sequence[Release], sdk: str) -> Advice:
    """Return the advice for users of the installed version on this SDK."""
    above = [each for each in newest_first if each.precedence > installed.precedence]
    for index, release in enumerate(above):
        if _is_eligible(release, installed):
            found = f"{release.number} is the newest version above {installed.number} that runs"
            skipped = _explain_skipped(above[:index])
            return Advice(release, False, _sentence(f"{found} on SDK {sdk}", skipped))
    skipped = _explain_skipped(above)
    if installed.is_yanked or not installed.is_compatible:
        return _advise_downgrade(installed, newest_first, sdk, skipped)
    if not skipped:
        return Advice(None, False, _sentence(f"There is no version above {installed.number}"))
    none = f"{installed.number} has no update for SDK {sdk}"
    return Advice(None, False, _sentence(none, skipped))


def _advise_downgrade(
    installed: Release, newest_first: Sequence[Release], sdk: str, skipped: str
) -> Advice:
    """Return the advice for an installed version that must be replaced but has no update."""
    below = [
        each
        for each in newest_first
        if each.precedence < installed.precedence and _is_eligible(each, installed)
    ]
    problem = _explain(installed)
    if not below:
        other = f"no other version that could replace it runs on SDK {sdk}"
        return Advice(None, False, _sentence(problem, skipped, other))
    # Of equal versions, max() returns the first, which is the newest.
    best = max(below, key=lambda release: release.precedence)
    found = f"{best.number} is the highest version below {installed.number} that runs"
    return Advice(best, True, _sentence(problem, skipped, f"{found} on SDK {sdk}"))


def _is_eligible(release: Release, installed: Release) -> bool:
    return (
        release.is_compatible
        and not release.is_yanked
        and not release.too_new_at
        and (not release.is_prerelease or _is_same_prerelease(release, installed))
    )


def _is_same_prerelease(release: Release, installed: Release) -> bool:
    return installed.is_prerelease and release.core == installed.core


def _explain_skipped(skipped: Sequence[Release]) -> str:
    """Return why each of these versions is skipped; an empty string if there are none."""
    clauses = [_explain(release) for release in skipped[:MAX_NAMED]]
    if len(skipped) > MAX_NAMED:
        clauses.append(f"and {len(skipped) - MAX_NAMED} more")
    return "; ".join(clauses)


def _explain(release: Release) -> str:
    """Return why a version is skipped or must be replaced."""
    if release.is_yanked:
        reason = shorten(" ".join((release.yanked_reason or "").split()), MAX_QUOTED)
        return f"{release.number} was yanked" + (f": {reason.rstrip('.')}" if reason else "")
    if not release.is_compatible:
        return f"{release.number} needs SDK {shorten(release.sdk_range, MAX_QUOTED)}"
    if release.too_new_at:
        return f"{release.number} is too new (published {release.too_new_at})"
    return f"{release.number} is a prerelease"


def _sentence(*clauses: str) -> str:
    return "; ".join(filter(None, clauses)) + "."
