"""What the torture measured: kept as figures, and told as the table of docs/reliability.md.

A test takes the fixture `figures` and says what it broke, what was promised, and what was counted:

    figures("kill -9 under 8 clients posting", "no acknowledged install is lost", rounds=20, lost=0)

At the end of a run in which nothing failed, the figures of each test that ran replace those of its
last run in docs/reliability.json, and the table is made anew of all of them.
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
    """Keeps the figures of one fault; lost, failed and the like are for the test to assert."""

    def keep(fault: str, promise: str, **counts: float) -> None:
        measured[fault] = {"promise": promise, **counts}

    return keep


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and measured:
        path = DOCS / "reliability.json"
        kept: Figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept |= measured
        path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        page = DOCS / "reliability.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        page.write_text(before + BEGIN + table(kept) + END + after, encoding="utf-8")


def table(kept: Figures) -> str:
    """The figures as a table, a fault in each row."""
    rows = ["| Fault | Promise | Figures of the last run |", "|---|---|---|"]
    for fault, said in kept.items():
        counts = [
            f"{name.replace('_', ' ')} {n:,}" for name, n in said.items() if name != "promise"
        ]
        rows.append(f"| {fault} | {said['promise']} | {', '.join(counts)} |")
    return "\n".join(rows) + "\n"
