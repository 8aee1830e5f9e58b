"""The geometry of the chart of releases over time."""

from datetime import date

import pytest

from catalog.web.charts import MonthReleases, releases_chart


def month(text: str, releases: int = 1, yanked: int = 0, names: str = "1.0.0") -> MonthReleases:
    return MonthReleases(text, releases, yanked, names)


def test_chart_of_a_short_history_has_a_bar_for_each_month_until_today() -> None:
    months = [
        month("2024-12", yanked=1),
        month("2024-09"),
        month("2024-10", releases=3, yanked=1, names="1.0.1, 1.0.2, 1.0.0"),
    ]
    chart = releases_chart(months, date(2025, 1, 31))
    assert chart is not None
    bars = [(bar.available, bar.yanked) for bar in chart.bars]
    assert bars == [(1, 0), (2, 1), (0, 0), (0, 1), (0, 0)]
    assert (chart.highest, chart.unit) == (3, "month")
    assert (chart.first, chart.last) == ("Sep 2024", "Jan 2025")
    assert chart.label == "5 releases from Sep 2024 to Jan 2025"
    assert chart.bars[1].label == "Oct 2024: 3 releases (1.0.1, 1.0.2, 1.0.0)"
    assert chart.bars[2].label == "Nov 2024: 0 releases"


@pytest.mark.parametrize(
    ("first", "last", "bars", "unit", "label"),
    [
        ("2022-01", "2025-03", 39, "month", "Jan 2022: 1 release (1.0.0)"),
        ("2022-02", "2025-06", 14, "quarter", "Jan 2022 to Mar 2022: 1 release (1.0.0)"),
        ("2000-05", "2025-06", 26, "year", "Jan 2000 to Dec 2000: 1 release (1.0.0)"),
        ("0001-01", "9999-12", 10, "millennium", "Jan 0 to Dec 999: 1 release (1.0.0)"),
    ],
)
def test_chart_of_a_long_history_has_bars_of_several_months(
    first: str, last: str, bars: int, unit: str, label: str
) -> None:
    # A release may be dated in the future.
    chart = releases_chart([month(first), month(last)], date(2020, 1, 1))
    assert chart is not None
    assert (len(chart.bars), chart.unit, chart.bars[0].label) == (bars, unit, label)


def test_releases_of_this_month_alone_have_no_chart() -> None:
    assert releases_chart([month("2025-01")], date(2025, 1, 9)) is None
