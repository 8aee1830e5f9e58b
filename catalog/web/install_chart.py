"""The installs of a widget for its page: the last weeks as bars, and the share of each version."""

import json
from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

from ..documents import Json
from ..store.connection.sqlite import Connection, today
from ..store.read.installs import find_installs
from .formatting import format_day

WEEKS = 12


class Week(NamedTuple):
    """Seven days, the last of which is a whole number of weeks ago: their dates and installs."""

    first: str
    last: str
    installs: int


class InstallChart(NamedTuple):
    """The installs of the last weeks, oldest first, and the percentage of each version.

    The percentage is that of the installs with a version that exists.
    """

    weeks: Sequence[Week]
    shares: dict[str, str]
    with_version: int

    @property
    def highest(self) -> int:
        """The most installs of a week; 0 if there was none."""
        return max(week.installs for week in self.weeks)

    @property
    def trend(self) -> int | None:
        """By how many percent the last week differs from the one before; None without that one."""
        before, last = (week.installs for week in self.weeks[-2:])
        return round(100 * (last - before) / before) if before else None


def load_install_chart(connection: Connection, widget: Json) -> InstallChart:
    """Return the chart of a listed widget, up to today."""
    day = today()
    found = find_installs(connection, widget["scope"], widget["name"], 7 * WEEKS, day)
    installs = json.loads(found[1]) if found else {"days": [], "versions": []}
    last = date(1970, 1, 1) + timedelta(days=day)
    sums = [0] * WEEKS
    for each in installs["days"]:
        # The clock may have been set back.
        ago = max((last - date.fromisoformat(each["day"])).days, 0)
        sums[ago // 7] += each["installs"]
    total = sum(each["installs"] for each in installs["versions"])
    return InstallChart(
        [_week(last, ago, sums[ago]) for ago in reversed(range(WEEKS))],
        {each["version"]: _share(each["installs"], total) for each in installs["versions"]},
        total,
    )


def _week(today: date, ago: int, installs: int) -> Week:
    last = today - timedelta(weeks=ago)
    first = last - timedelta(days=6)
    return Week(format_day(first.isoformat()), format_day(last.isoformat()), installs)


def _share(part: int, total: int) -> str:
    percentage = round(100 * part / total)
    return f"{percentage}%" if percentage else "under 1%"
