"""Candidates: the versions of a widget from which a response chooses the newest.

A yanked version is never a candidate. A request can further restrict the candidates to stable
versions, to versions that run on an SDK, and to versions published before a given time.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...domain.messages import quoted
from ...domain.sdk_intervals import sdk_key
from .parameters import parse_before, parse_boolean, parse_compat_sdk

# Sorts versions in the same order as the indexes in schema.sql.
NEWEST_FIRST = "published_at DESC, precedence DESC, version DESC"

IS_AVAILABLE = "yanked = 0"
# In the precedence string, the three numbers are followed by a hyphen for a prerelease and by a
# tilde for a release.
IS_STABLE = "instr(precedence, '-') = 0"
IS_EARLIER = "published_at < :before"
# This condition is true if the SDK satisfies a range. A range's intervals are disjoint, so only the
# last one that begins at or before the SDK's key can contain the key.
ADMITS = """
:sdk < (SELECT high FROM sdk_interval
        WHERE range_id = {range_id} AND low <= :sdk ORDER BY low DESC LIMIT 1)
"""
RUNS_ON_SDK = ADMITS.format(range_id="(SELECT id FROM sdk_range WHERE range = sdk_version)")
# A variant of RUNS_ON_SDK for a statement that reads the versions of every widget. There are few
# distinct ranges, so the statement looks up only once which of them the SDK satisfies.
RUNS_ON_SDK_IN_SCAN = """
+sdk_version IN (
    SELECT range FROM sdk_interval CROSS JOIN sdk_range ON id = range_id
    WHERE low <= :sdk AND :sdk < high)
"""


class Candidates(NamedTuple):
    """Tells which versions are candidates; by default, all that are not yanked."""

    # If set, only versions that run on this SDK are candidates.
    sdk: str | None = None
    # If true, prereleases are not candidates.
    stable: bool = False
    # If set, only versions that were published before this time are candidates. The format is the
    # same as in version.published_at.
    before: str | None = None

    @property
    def values(self) -> dict[str, object]:
        """The values of the SQL parameters in the condition."""
        return {"sdk": self.sdk and sdk_key(self.sdk), "before": self.before}

    def condition(self, *, in_scan: bool = False) -> str:
        """Return the SQL condition that is true if a row in the version table is a candidate."""
        runs_on_sdk = RUNS_ON_SDK_IN_SCAN if in_scan else RUNS_ON_SDK
        conditions = {
            IS_AVAILABLE: True,
            IS_STABLE: self.stable,
            IS_EARLIER: self.before is not None,
            runs_on_sdk: self.sdk is not None,
        }
        return all_of(each for each, is_given in conditions.items() if is_given)

    def newest(self, column: str, widget_id: str, *, in_scan: bool = False) -> str:
        """Return the SQL expression for a column of the newest candidate; NULL if there is none."""
        return f"""(
    SELECT version.{column} FROM version
    WHERE version.widget_id = {widget_id} AND {self.condition(in_scan=in_scan)}
    ORDER BY {NEWEST_FIRST} LIMIT 1)"""

    def newest_entry(self, widget_id: str) -> str:
        """Return the SQL expression for the JSON of the newest candidate; NULL if there is none."""
        return f"(SELECT entry FROM version_entry WHERE id = {self.newest('id', widget_id)})"

    def explain_none(self, path: str) -> str:
        """Return a sentence saying that the widget with this scope/name has no candidate."""
        conditions = [f"runs on SDK {self.sdk}"] if self.sdk else []
        conditions += [f"was published before {self.before}"] if self.before else []
        stable = "stable " if self.stable else ""
        condition = " and ".join(conditions) or "is available"
        return f"No {stable}version of {quoted(path)} {condition}."


# Every version that is not yanked is a candidate.
AVAILABLE = Candidates()


def parse_candidates(parameters: Mapping[str, str]) -> Candidates:
    """Return the candidates that the query string allows; raise ParameterError if it is invalid."""
    return Candidates(
        sdk=parse_compat_sdk(parameters.get("compatSdk")),
        stable=parse_boolean("stable", parameters.get("stable")) or False,
        before=parse_before(parameters.get("before")),
    )


def all_of(conditions: Iterable[str]) -> str:
    """Return an SQL condition that is true if all of the given conditions are true."""
    return " AND ".join(conditions) or "true"
