"""The figures of the torture tests, and the table of them in docs/internals/reliability.md.

A test uses the fixture `figures` to record the fault, the promise, and what was measured:

    figures("kill -9 under 8 clients posting", "no acknowledged install is lost", rounds=20, lost=0)

After a run without failures, the figures of each test that ran replace its earlier ones in
reliability.json, and the table is rendered from that file.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import machine

RECORDED = Path(__file__).with_name("reliability.json")
PAGE = Path(__file__).parent.parent.parent / "docs" / "internals" / "reliability.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"

Figures = dict[str, dict[str, object]]
measured: Figures = {}


@pytest.fixture
def figures() -> Callable[..., None]:
    """Records the figures of one fault; the test itself asserts lost, failed and the like."""

    def record(fault: str, promise: str, **counts: float) -> None:
        measured[fault] = {"promise": promise, **counts}

    return record


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and measured:
        figures: Figures = json.loads(RECORDED.read_text(encoding="utf-8"))["figures"] | measured
        run = (
            f"Last run on {datetime.now(UTC):%Y-%m-%d} at commit {machine.commit()}. The machine: "
            f"{machine.describe()}. Rows that it did not measure are of earlier runs."
        )
        recorded = {"run": run, "figures": figures}
        text = json.dumps(recorded, indent=2, ensure_ascii=False) + "\n"
        RECORDED.write_text(text, encoding="utf-8")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(before + BEGIN + table(run, figures) + END + after, encoding="utf-8")


def table(run: str, figures: Figures) -> str:
    """Render the figures as a table with a row for each fault, after a line about the run."""
    rows = [run, "", "| Fault | Promise | Figures of the last run |", "|---|---|---|"]
    for fault, values in figures.items():
        counts = [
            f"{name.replace('_', ' ')} {n:,}" for name, n in values.items() if name != "promise"
        ]
        rows.append(f"| {fault} | {values['promise']} | {', '.join(counts)} |")
    return "\n".join(rows) + "\n"
