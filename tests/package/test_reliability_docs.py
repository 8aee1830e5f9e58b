"""docs/internals/reliability.md: its table has the recorded figures, and no request was lost."""

import json

import pytest
from torture.figures import BEGIN, END, PAGE, RECORDED, table

RUN, FIGURES = json.loads(RECORDED.read_text(encoding="utf-8")).values()


def test_the_table_matches_the_figures() -> None:
    shown = PAGE.read_text(encoding="utf-8")
    assert shown.split(BEGIN)[1].split(END)[0] == table(RUN, FIGURES)


@pytest.mark.parametrize("fault", FIGURES)
def test_nothing_was_lost_failed_or_cut_off(fault: str) -> None:
    assert {FIGURES[fault].get(name, 0) for name in ("lost", "failed", "cut_off")} == {0}
