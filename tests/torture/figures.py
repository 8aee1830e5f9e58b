"""The figures of the torture tests, and the table of them in docs/reliability.md.

A test uses the fixture `figures` to record the fault, the promise, and what was measured:

    figures("kill -9 under 8 clients posting", "no acknowledged install is lost", rounds=20, lost=0)

After a run without failures, the figures of each test that ran replace its earlier ones in
docs/reliability.json, and the table is rendered from that file.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
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
        path = DOCS / "reliability.json"
        figures: Figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        figures |= measured
        path.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        page = DOCS / "reliability.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(before + BEGIN + table(figures) + END + after, encoding="utf-8")


def table(figures: Figures) -> str:
    """Render the figures as a table with a row for each fault."""
    rows = ["| Fault | Promise | Figures of the last run |", "|---|---|---|"]
    for fault, values in figures.items():
        counts = [
            f"{name.replace('_', ' ')} {n:,}" for name, n in values.items() if name != "promise"
        ]
        rows.append(f"| {fault} | {values['promise']} | {', '.join(counts)} |")
    return "\n".join(rows) + "\n"
