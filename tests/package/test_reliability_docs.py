"""docs/reliability.md: its table matches docs/reliability.json, and no request was lost."""

import json

import pytest
from conftest import ROOT
from torture.figures import BEGIN, END, table

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
FIGURES = json.loads((ROOT / "docs" / "reliability.json").read_text(encoding="utf-8"))


def test_the_table_matches_the_figures() -> None:
    assert PAGE.split(BEGIN)[1].split(END)[0] == table(FIGURES)


@pytest.mark.parametrize("fault", FIGURES)
def test_nothing_was_lost_failed_or_cut_off(fault: str) -> None:
    assert {FIGURES[fault].get(name, 0) for name in ("lost", "failed", "cut_off")} == {0}
