"""The benchmark: reproducible catalogs and requests, the baseline, and the report."""

import hashlib
import json
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from conftest import ROOT, create_demo
from ports import free_port

from bench import driver, peers, processes, report, rounds, workload
from bench.catalogs import CURRENT, Catalog, Checkout, build, extract
from bench.comparison import Comparison
from bench.generate import FIXED_SCOPE, LONG_HISTORY, documents, write_catalog
from bench.load import LoadError, Sample, measure
from bench.workload import Request, Row
from catalog.domain.documents import check_document

SIZE = 1000


@pytest.fixture(scope="module")
def catalog() -> list[dict[str, Any]]:
    return list(documents(SIZE))


def test_the_catalog_is_always_the_same(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog.jsonl", 250)
    digest = hashlib.sha256((tmp_path / "catalog.jsonl").read_bytes()).hexdigest()
    assert digest == "fbfbc49481fe25b63a419361289afc7f9efcd23d312668e572202df9e27a7aad"


def test_the_catalog_has_the_shape_that_the_rows_are_about(catalog: list[dict[str, Any]]) -> None:
    checked = [check_document(each) for each in catalog]
    assert not [warning for each in checked for warning in each.warnings]
    assert len({each.path for each in checked}) == SIZE
    versions = [version for each in catalog for version in each["versions"]]
    assert Counter(len(each["versions"]) for each in catalog) == {5: SIZE - 1, 60: 1}
    assert len(catalog[LONG_HISTORY]["versions"]) == 60
    scopes = Counter(each["widget"]["scope"] for each in catalog)
    assert (len(scopes), scopes[FIXED_SCOPE]) == (50, 200)
    assert len({version["sdkVersion"] for version in versions}) == 40
    assert 0 < sum(version["yanked"] for version in versions) < len(versions) / 20


def test_cold_queries_differ_and_find_something(catalog: list[dict[str, Any]]) -> None:
    queries = workload.cold_queries()
    assert len(set(queries)) == len(queries) == workload.REQUESTS
    widgets = [each["widget"] for each in catalog]
    texts = [workload.folded(f"{each['displayName']} {each['description']}") for each in widgets]
    hits = [
        sum(all(word in text for word in workload.folded(query).split()) for text in texts)
        for query in islice(queries, 200)
    ]
    assert sum(map(bool, hits)) > 150
    assert mean(hits) < SIZE / 50


def test_rows_have_the_requests_of_their_titles_and_cold_rows_repeat_none() -> None:
    rows = {row.key: row for row in workload.rows(SIZE)}
    assert rows.keys() > set(workload.QUICK_ROWS)
    earlier = {request.path for request in workload.earlier_use()}
    for row in rows.values():
        assert row.requests
        assert earlier.isdisjoint({request.path for request in row.requests})
        if row.cold:
            assert len(set(row.requests)) == len(row.requests)
    flood = list(islice(workload.slow_requests(SIZE), 2_000))
    assert len(set(flood)) == len(flood)
    hot = Counter(rows["hot"].requests)
    assert len(hot) == 50
    assert hot.most_common(1)[0][1] > hot.total() / 6
    installs = [request for request in rows["mix"].requests if request.method == "POST"]
    assert len(installs) / len(rows["mix"].requests) == pytest.approx(0.03, abs=0.01)
    for request in rows["updates"].requests:
        paths = [path.rpartition("%40")[0] for path in request.path.split("&installed=")[1:]]
        assert len(set(paths)) == 20


def test_rows_are_selected_by_key(capsys: pytest.CaptureFixture[str]) -> None:
    options = driver.parse(["--quick", "--rows", "registry,hot"])
    assert [row.key for row in driver.selected_rows(options, SIZE)] == ["hot", "registry"]
    with pytest.raises(SystemExit):
        driver.parse(["--rows", "hot,warm"])
    assert "unknown rows: warm" in capsys.readouterr().err


def test_a_round_begins_only_if_it_will_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rounds, "elapsed", lambda: now)
    done = []
    for number in rounds.Rounds("Rows", 9, 160):
        done.append(number)
        now += 20
    assert (done, now) == ([1, 2, 3], 160)
    assert [*rounds.Rounds("Rows", 9, 0)] == [1]


def samples(cpu: list[float], rate: float = 100) -> list[Sample]:
    return [Sample(each, rate) for each in cpu]


def results_of(rows: list[Row], **parts: Any) -> report.Results:
    """Results in which every row has half of the rate of the baseline, and one slow turn."""
    small, usual, large = (
        Catalog(CURRENT, widgets, Path(__file__), 9.0, [0.5, 1.0], 10**8)
        for widgets in (1_000, report.USUAL, report.LARGE)
    )
    comparison = Comparison(rows, [usual])
    for row in rows:
        of_row = comparison.samples[row.key]
        of_row["current"] += samples([100, 240, 80], 200)
        of_row["baseline"] += samples([60, 120, 60], 400)
    facts: dict[str, Any] = {
        "command": "python -m bench",
        "date": "2026-01-02",
        "machine": "a machine",
    }
    facts |= {"commit": "abc", "load_average": 0.1, "catalogs": [small, usual, large]}
    return report.Results(**(facts | {"comparison": comparison} | parts))


def target_row(title: str, target: float | None = None, **targets: Any) -> Row:
    return Row(title, title, [], target, **targets)


def lines_of(page: str) -> dict[str, list[str]]:
    """The cells of each line of the tables, by the title of the line."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    return {line[0]: line[1:] for line in cells if line}


def test_every_row_shows_its_target_and_whether_it_is_met() -> None:
    rows = [
        *(target_row("met", 0.5), target_row("missed", 0.51), target_row("free")),
        *(target_row("fast", min_rate=200), target_row("heavy", max_milliseconds=0.1)),
    ]
    page = report.page(results_of(rows))
    lines = lines_of(page)
    assert lines["constant response, 20 kB"] == ["60", "400", "", "", "", ""]
    # The second turn is disturbed, so the ratio of the medians would be another one.
    assert lines["met"] == ["100", "200", "0.50", "0.60", "≥ 0.50", "yes"]
    assert lines["missed"][-2:] == ["≥ 0.51", "**no**"]
    assert lines["free"][-2:] == ["", ""]
    assert lines["fast"][-2:] == ["≥ 200/s", "yes"]
    assert lines["heavy"][-2:] == ["< 0.1 ms CPU", "**no**"]
    assert "Not met: “missed”; “heavy”." in page


def test_growth_flood_and_catalogs_have_targets() -> None:
    cold, everywhere = (target_row(key) for key in ("cold", "everywhere"))
    sizes = (1_000, report.USUAL, report.LARGE)
    growth = [
        (row, {size: samples([cpu], rate) for size, (cpu, rate) in zip(sizes, each, strict=True)})
        for row, each in (
            (cold, [(400, 2000), (800, 1000), (1600, 500)]),
            (everywhere, [(900, 1000), (9000, 100), (90_000, 2)]),
        )
    ]
    flooded = [0.004] * 98 + [0.2] * 2
    page = report.page(results_of([], growth=growth, flooded=flooded))
    lines = lines_of(page)
    figures = ["0.50 (0.40)", "1.00 (0.80)", "2.00 (1.60)", "2.00"]
    assert lines["cold"] == [*figures, "growth ≤ 4.0", "yes"]
    assert lines["everywhere"][-2:] == ["< 250 ms", "**no**"]
    flood = "hot search while 40 connections send distinct slow requests"
    assert lines[flood] == ["4.0", "200.0", "200.0", "p99 ≤ 50 ms", "**no**"]
    assert lines["memory after the run, MB"] == [*["100"] * 3, "100,000: < 150", "yes"]
    assert f"Not met: “{flood}”; “everywhere”." in page


def test_the_page_says_if_the_commit_is_dirty_or_the_machine_busy() -> None:
    clean = report.page(results_of([], load_average=0.5))
    assert "\n**The " not in clean
    doubtful = report.page(results_of([], commit="abc-dirty", load_average=0.51))
    for doubt in ("commit is not clean", "machine was busy"):
        assert f"\n**The {doubt}**" in doubtful


def test_the_report_compares_two_commits() -> None:
    results = results_of([target_row("cold", 0.3)])
    other = Catalog(Checkout("2b3bc74", ROOT), report.USUAL, Path(__file__), 9.0, [0.5])
    results.comparison.samples["cold"]["2b3bc74"] = samples([150, 480, 90], 50)
    results.catalogs = [*results.comparison.catalogs, other]
    _, _, compared = report.page(results).partition("## Compared with 2b3bc74")
    assert lines_of(compared)["cold"] == ["100", "200", "4.00", "1.50", "", ""]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in ("bench.processes", "bench.catalogs"):
        monkeypatch.setattr(f"{module}.WORK", tmp_path)
    monkeypatch.setattr("bench.processes.free_port", free_port)
    return tmp_path


@pytest.mark.usefixtures("work")
def test_the_baseline_is_served_on_the_io_thread() -> None:
    requests = [Request("GET", workload.constant_path(workload.PAGE_BYTES))] * 50
    with processes.start_baseline() as server:
        threads = Path(f"/proc/{server.pid}/task")
        before = cpu_nanoseconds(threads)
        sample = measure(server, requests, connections=1)
        after = cpu_nanoseconds(threads)
        # A request that fails ends the measurement.
        with pytest.raises(LoadError, match="status 404"):
            measure(server, [Request("GET", "/api/v1/widgets/acme/none")], connections=1)
    used = {thread: after[thread] - before.get(thread, 0) for thread in after}
    assert used[server.pid] > 0.8 * sum(used.values())
    assert sample.cpu == pytest.approx(sum(used.values()) / 50 / 1000, rel=0.2)


def cpu_nanoseconds(threads: Path) -> dict[int, int]:
    return {
        int(each.name): int((each / "schedstat").read_text().split()[0])
        for each in threads.iterdir()
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="This is not a git checkout.")
def test_another_commit_is_served_with_its_own_code_and_database(work: Path) -> None:
    checkout = extract("HEAD")
    assert (checkout.directory / "app.py").read_bytes()
    catalog = build(checkout, 30)
    with catalog.serve() as server:
        status, _, body = processes.fetch(server.url, "GET", workload.SEARCH)
        running_in = Path(f"/proc/{server.pid}/cwd").resolve()
    assert (status, json.loads(body)["total"]) == (200, 30)
    assert running_in == work / "commit"


def test_the_peer_of_stock_flask_responds_from_the_same_database(tmp_path: Path) -> None:
    database, port = create_demo(tmp_path / "demo.db"), free_port()
    processes.WORK.mkdir(exist_ok=True)
    program = str(ROOT / "bench" / "stock_flask.py")
    command = [sys.executable, program, str(database), str(port)]
    with processes.Server("stock", command, port, workload.SEARCH) as server:
        _, _, found = processes.fetch(server.url, "GET", f"{workload.SEARCH}?q=weather")
        assert json.loads(found)["widgets"][0]["name"] == "weather"
        _, _, detail = processes.fetch(server.url, "GET", "/api/v1/widgets/acme/weather")
        assert json.loads(detail)["versions"][0]["version"] == "3.1.0"
        figures = peers.measure(server, [Request("GET", workload.SEARCH)] * 20, once=True)
        assert 0 < figures.median <= figures.p99


@pytest.mark.parametrize(("text", "expected"), [("1.50ms", 1.5), ("900.00us", 0.9), ("2s", 2000)])
def test_times_of_wrk_are_milliseconds(text: str, expected: float) -> None:
    assert peers.milliseconds(text) == pytest.approx(expected)
