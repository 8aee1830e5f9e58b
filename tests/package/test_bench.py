"""The benchmark: reproducible catalogs and requests, the baseline, and the report."""

import hashlib
import json
import re
from collections import Counter
from itertools import islice
from math import log
from pathlib import Path
from statistics import linear_regression, mean
from typing import Any

import pytest
from conftest import ROOT
from ports import free_port

from bench import driver, processes, report, rounds, workload
from bench.catalogs import CURRENT, Catalog, Checkout, build, extract
from bench.comparison import Comparison
from bench.generate import FIXED_SCOPE, LONG_HISTORY, documents, write_catalog
from bench.load import LoadError, Sample, measure
from bench.words import EVERYWHERE, WORDS
from bench.workload import Request, Row
from catalog.documents import check_document

SIZE = 1000


@pytest.fixture(scope="module")
def catalog() -> list[dict[str, Any]]:
    return list(documents(SIZE))


def test_the_catalog_is_always_the_same(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog.jsonl", 250)
    digest = hashlib.sha256((tmp_path / "catalog.jsonl").read_bytes()).hexdigest()
    assert digest == "fbfbc49481fe25b63a419361289afc7f9efcd23d312668e572202df9e27a7aad"


def test_every_document_can_be_imported_without_a_warning(catalog: list[dict[str, Any]]) -> None:
    checked = [check_document(each) for each in catalog]
    assert not [warning for each in checked for warning in each.warnings]
    assert len({each.path for each in checked}) == SIZE


def test_the_catalog_has_the_shape_that_the_rows_are_about(catalog: list[dict[str, Any]]) -> None:
    versions = [version for each in catalog for version in each["versions"]]
    assert Counter(len(each["versions"]) for each in catalog) == {5: SIZE - 1, 60: 1}
    assert len(catalog[LONG_HISTORY]["versions"]) == 60
    scopes = Counter(each["widget"]["scope"] for each in catalog)
    assert (len(scopes), scopes[FIXED_SCOPE]) == (50, 200)
    assert len({version["sdkVersion"] for version in versions}) == 40
    assert 0 < sum(version["yanked"] for version in versions) < len(versions) / 20


def test_there_are_thousands_of_words_of_natural_length_and_some_are_not_ascii() -> None:
    assert len(set(WORDS)) == len(WORDS) == 6000
    assert 6 < mean(map(len, WORDS)) < 10
    assert mean(map(len, WORDS[:100])) < mean(map(len, WORDS)) - 2
    assert sum(bool(re.search("[á-ü]", word)) for word in WORDS) > 50
    assert sum(bool(re.search("[一-鿿]", word)) for word in WORDS) > 50


def test_the_frequency_of_a_word_follows_its_rank(catalog: list[dict[str, Any]]) -> None:
    texts = [each["widget"]["description"].lower() for each in catalog]
    counts = Counter(word for text in texts for word in re.findall(r"\w+", text))
    assert all(EVERYWHERE in text for text in texts)
    # Groups of ranks that double in size, since single words of a small catalog vary much.
    groups = [range(first, 2 * first) for first in (8, 16, 32, 64, 128, 256, 512, 1024)]
    means = [mean(counts[WORDS[rank].lower()] for rank in group) for group in groups]
    slope, _ = linear_regression([log(group[0]) for group in groups], list(map(log, means)))
    assert -1.1 < slope < -0.8


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


def test_every_row_has_requests_and_cold_rows_repeat_none() -> None:
    rows = workload.rows(SIZE)
    assert len({row.key for row in rows}) == len(rows)
    assert {row.key for row in rows} > set(workload.QUICK_ROWS)
    for row in rows:
        assert row.requests
        if row.cold:
            assert len(set(row.requests)) == len(row.requests)


def test_the_mixes_have_the_shares_of_their_titles() -> None:
    rows = {row.key: row.requests for row in workload.rows(SIZE)}
    hot = Counter(rows["hot"])
    assert len(hot) == 50
    assert hot.most_common(1)[0][1] > len(rows["hot"]) / 6
    installs = [request for request in rows["mix"] if request.method == "POST"]
    assert len(installs) / len(rows["mix"]) == pytest.approx(0.03, abs=0.01)


def test_rows_are_selected_by_key_in_a_quick_run_too() -> None:
    options = driver.parse(["--quick", "--rows", "registry,hot"])
    rows = driver.selected_rows(options, SIZE)
    assert [row.key for row in rows] == ["hot", "registry"]


def test_a_round_begins_only_if_it_will_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rounds, "elapsed", lambda: now)
    done = []
    for number in rounds.Rounds("Rows", 9, 160):
        done.append(number)
        now += 20
    assert (done, now) == ([1, 2, 3], 160)
    assert [*rounds.Rounds("Rows", 9, 0)] == [1]


def test_an_unknown_row_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        driver.parse(["--rows", "hot,warm"])
    assert "unknown rows: warm" in capsys.readouterr().err


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
    facts = {"command": "python -m bench", "date": "2026-01-02", "machine": "a machine"}
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
        *(target_row("fast", min_rate=200), target_row("slow", min_rate=201)),
        *(target_row("light", max_milliseconds=1), target_row("heavy", max_milliseconds=0.1)),
    ]
    page = report.page(results_of(rows))
    lines = lines_of(page)
    assert lines["constant response, 20 kB"] == ["60", "400", "", "", "", ""]
    # The second turn is disturbed, so the ratio of the medians would be another one.
    assert lines["met"] == ["100", "200", "0.50", "0.60", "≥ 0.50", "yes"]
    assert lines["missed"][-2:] == ["≥ 0.51", "**no**"]
    assert lines["free"][-2:] == ["", ""]
    assert lines["fast"][-2:] == ["≥ 200/s", "yes"]
    assert lines["slow"][-2:] == ["≥ 201/s", "**no**"]
    assert lines["light"][-2:] == ["< 1 ms CPU", "yes"]
    assert lines["heavy"][-2:] == ["< 0.1 ms CPU", "**no**"]
    assert "Not met: “missed”; “slow”; “heavy”." in page


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
    assert lines["cold"] == [
        "0.50 (0.40)",
        "1.00 (0.80)",
        "2.00 (1.60)",
        "2.00",
        "growth ≤ 4.0",
        "yes",
    ]
    assert lines["everywhere"][-2:] == ["< 250 ms", "**no**"]
    flood = "hot search while 40 connections send distinct slow requests"
    assert lines[flood] == ["4.0", "200.0", "200.0", "p99 ≤ 100 ms", "**no**"]
    assert lines["memory after the run, MB"] == [*["100"] * 3, "100,000: < 150", "yes"]
    assert "compared with a constant response, at 10,000 widgets" in page.lower()
    assert f"Not met: “{flood}”; “everywhere”." in page


@pytest.mark.parametrize(
    ("commit", "load", "doubts"),
    [
        ("abc", 0.5, []),
        ("abc-dirty", 0.1, ["**The commit is not clean**"]),
        ("unknown", 0.51, ["**The commit is not clean**", "**The machine was busy**"]),
    ],
)
def test_the_page_says_if_the_commit_is_dirty_or_the_machine_busy(
    commit: str, load: float, doubts: list[str]
) -> None:
    page = report.page(results_of([], commit=commit, load_average=load))
    assert re.findall(r"^\*\*.*?\*\*", page, re.MULTILINE) == doubts


def test_updates_are_of_twenty_widgets() -> None:
    (updates,) = [row for row in workload.rows(SIZE) if row.key == "updates"]
    for request in updates.requests:
        paths = [path.rpartition("%40")[0] for path in request.path.split("&installed=")[1:]]
        assert len(set(paths)) == 20


def test_no_request_of_the_flood_repeats() -> None:
    flood = list(islice(workload.slow_requests(SIZE), 2_000))
    assert len(set(flood)) == len(flood)


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


def test_searches_of_earlier_use_are_not_measured() -> None:
    earlier = {request.path for request in workload.earlier_use()}
    assert len(earlier) == workload.EARLIER_QUERIES
    for row in workload.rows(1_000):
        assert earlier.isdisjoint({request.path for request in row.requests})


@pytest.mark.usefixtures("work")
def test_a_request_that_fails_ends_the_measurement() -> None:
    with processes.start_baseline() as server, pytest.raises(LoadError, match="status 404"):
        measure(server, [Request("GET", "/api/v1/widgets/acme/none")], connections=1)
