"""The geometry of drawings: releases over time, and sizes."""

import pytest

from catalog.web.charts import MonthReleases, releases_chart, size_drawing


def month(text: str, releases: int = 1, yanked: int = 0, names: str = "1.0.0") -> MonthReleases:
    return MonthReleases(text, releases, yanked, names)


def test_chart_of_a_short_history_has_a_bar_for_each_month() -> None:
    chart = releases_chart(
        [
            month("2025-02", yanked=1),
            month("2024-11"),
            month("2024-12", releases=3, yanked=1, names="1.0.1, 1.0.2, 1.0.0"),
        ]
    )
    assert chart is not None
    assert [(bar.available, bar.yanked) for bar in chart.bars] == [(1, 0), (2, 1), (0, 0), (0, 1)]
    assert (chart.highest, chart.unit) == (3, "month")
    assert (chart.first, chart.last) == ("Nov 2024", "Feb 2025")
    assert chart.label == "5 releases from Nov 2024 to Feb 2025"
    assert chart.bars[1].label == "Dec 2024: 3 releases (1.0.1, 1.0.2, 1.0.0)"
    assert chart.bars[2].label == "Jan 2025: 0 releases"


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
    chart = releases_chart([month(first), month(last)])
    assert chart is not None
    assert (len(chart.bars), chart.unit, chart.bars[0].label) == (bars, unit, label)


@pytest.mark.parametrize("months", [[], ["2025-01"]])
def test_versions_of_a_single_month_have_no_chart(months: list[str]) -> None:
    assert releases_chart([month(each) for each in months]) is None


def test_bar_names_the_majors_that_begin_there() -> None:
    majors = [("2024-01", 1), ("2024-03", 3), ("2024-03", 2), ("2024-04", 123456)]
    chart = releases_chart([month(f"2024-0{number}") for number in range(1, 5)], majors)
    assert chart is not None
    assert [bar.majors for bar in chart.bars] == ["1", "", "2, 3", "123456"]
    assert [bar.major_label for bar in chart.bars] == ["1", "", "3", "1234…"]


def test_at_most_ten_majors_have_a_label() -> None:
    months = [f"{year}-{number:02}" for year in (2022, 2023, 2024) for number in range(1, 13)]
    chart = releases_chart(
        [month(each) for each in months], [(each, n) for n, each in enumerate(months)]
    )
    assert chart is not None
    labels = [bar.major_label for bar in chart.bars if bar.major_label]
    assert labels == ["0", "4", "8", "12", "16", "20", "24", "28", "32"]


def test_chart_of_ten_thousand_majors_is_small() -> None:
    months = [month("2024-01", releases=5_000), month("2024-09", releases=5_000)]
    chart = releases_chart(months, [(f"2024-{n % 9 + 1:02}", n) for n in range(10_000)])
    assert chart is not None
    assert all(len(bar.majors) < 70 and len(bar.major_label) <= 5 for bar in chart.bars)


def test_sizes_are_drawn_up_to_24_cells() -> None:
    entry = {"minSize": {"w": 0, "h": 30}, "maxSize": {"w": 24, "h": 2**53}}
    assert size_drawing(entry) == (0, 24, 24, 24, True)
    entry = {"minSize": {"w": 1, "h": 2}, "maxSize": {"w": 3, "h": 24}}
    assert size_drawing(entry) == (1, 2, 3, 24, False)
