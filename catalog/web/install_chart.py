"""A widget's installs, as its page shows them: recent weeks as bars, and each version's share."""

import json
from datetime import date, timedelta

from ..domain.documents import Json
from ..store.connection.sqlite import Connection, today
from ..store.read.installs import find_installs
from .formatting import format_day

WEEKS = 12


def load_install_chart(connection: Connection, widget: Json) -> Json:
    """Return the installs in recent weeks, oldest week first, and each version's share.

    The last week ends today. The trend is the percentage change from the week before, or None if
    that week had no installs. Shares are based on the installs of versions that still exist.
    """
    day = today()
    found = find_installs(connection, widget["scope"], widget["name"], 7 * WEEKS, day)
    installs = json.loads(found) if found else {"days": [], "versions": []}
    last_day = date(1970, 1, 1) + timedelta(days=day)
    sums = [0] * WEEKS
    for each in installs["days"]:
        ago = (last_day - date.fromisoformat(each["day"])).days
        sums[ago // 7] += each["installs"]
    last, before = sums[:2]
    total = sum(each["installs"] for each in installs["versions"])
    return {
        "weeks": [describe_week(last_day, ago, sums[ago]) for ago in reversed(range(WEEKS))],
        "highest": max(sums),
        "trend": round(100 * (last - before) / before) if before else None,
        "shares": {
            each["version"]: share(each["installs"], total) for each in installs["versions"]
        },
        "with_version": total,
    }


def describe_week(today: date, ago: int, installs: int) -> Json:
    """Return the first day, last day and installs of the week that ended this many weeks ago."""
    last = today - timedelta(weeks=ago)
    first = last - timedelta(days=6)
    return {
        "first": format_day(first.isoformat()),
        "last": format_day(last.isoformat()),
        "installs": installs,
    }


def share(part: int, total: int) -> str:
    """Return the part as a percentage of the total."""
    percentage = round(100 * part / total)
    return f"{percentage}%" if percentage else "under 1%"
