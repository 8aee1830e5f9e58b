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
from xml.etree import ElementTree

import pytest
from conftest import ROOT
from ports import free_port

from bench import driver, processes, report, rounds, workload
from bench.catalogs import build, extract
from bench.generate import (
    FIXED_SCOPE,
    LONG_HISTORY,
    document,
    documents,
    write_catalog,
)
from bench.load import Client
from bench.words import EVERYWHERE, WORDS
from catalog.documents import check_document

SIZE = 1000


@pytest.fixture(scope="module")
def catalog() -> list[dict[str, Any]]:
    return list(documents(SIZE))


def test_the_catalog_is_always_the_same(tmp_path: Path) -> None:
    write_catalog(tmp_path / "catalog.jsonl", 250)
    digest = hashlib.sha256((tmp_path / "catalog.jsonl").read_bytes()).hexdigest()
    assert digest == "fbfbc49481fe25b63a419361289afc7f9efcd23d312668e572202df9e27a7aad"


def test_a_smaller_catalog_is_the_beginning_of_a_larger_one(catalog: list[dict[str, Any]]) -> None:
    assert list(documents(20)) == catalog[:20]
    assert document(SIZE - 1) == catalog[-1]


def test_every_document_can_be_imported_without_a_warning(catalog: list[dict[str, Any]]) -> None:
    checked = [check_document(each) for each in catalog]
    assert not [warning for each in checked for warning in each.warnings]
    assert len({each.path for each in checked}) == SIZE


def test_widgets_have_five_versions_and_one_has_sixty(catalog: list[dict[str, Any]]) -> None:
    assert Counter(len(each["versions"]) for each in catalog) == {5: SIZE - 1, 60: 1}
    assert len(catalog[LONG_HISTORY]["versions"]) == 60


def test_there_are_fifty_scopes_and_one_has_two_hundred_widgets(
    catalog: list[dict[str, Any]],
) -> None:
    scopes = Counter(each["widget"]["scope"] for each in catalog)
    assert len(scopes) == 50
    assert scopes[FIXED_SCOPE] == 200
    assert FIXED_SCOPE not in {document(number)["widget"]["scope"] for number in (2000, 90_000)}


def test_there_are_forty_sdk_ranges(catalog: list[dict[str, Any]]) -> None:
    ranges = {version["sdkVersion"] for each in catalog for version in each["versions"]}
    assert len(ranges) == 40


def test_versions_are_newest_first_and_few_are_yanked(catalog: list[dict[str, Any]]) -> None:
    versions = [version for each in catalog for version in each["versions"]]
    for each in catalog:
        published = [version["publishedAt"] for version in each["versions"]]
        assert published == sorted(published, reverse=True)
    assert 0 < sum(version["yanked"] for version in versions) < len(versions) / 20


def test_few_widgets_have_most_of_the_installs(catalog: list[dict[str, Any]]) -> None:
    counts = [each["widget"]["downloadCount"] for each in catalog]
    known = sorted((count for count in counts if count is not None), reverse=True)
    assert 0 < counts.count(None) < SIZE / 20
    assert sum(known[: SIZE // 10]) > sum(known) / 2


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
    for number in rounds.Rounds(9, 160):
        done.append(number)
        now += 20
    assert (done, now) == ([1, 2, 3], 160)


def test_one_round_is_measured_even_if_no_time_is_left() -> None:
    assert [*rounds.Rounds(9, 0)] == [1]


def test_an_unknown_row_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        driver.parse(["--rows", "hot,warm"])
    assert "unknown rows: warm" in capsys.readouterr().err


def samples(cpu: list[float], rate: float = 100) -> list[dict[str, float]]:
    return [{"cpu": each, "rate": rate} for each in cpu]


def row(key: str, target: float | None, cpu: list[float]) -> dict[str, Any]:
    measured = {"current": samples(cpu), "baseline": samples([60, 120, 60], 400)}
    return {
        **{"key": key, "title": key, "target": target, "baseline_bytes": 20_000},
        "samples": measured,
    }


RESULTS: dict[str, Any] = {
    "date": "2026-01-02",
    "commit": "abc",
    "machine": {
        **{"processor": "CPU <1>", "cores": 2, "memory": 2**34, "system": "Linux"},
        "load_average": 0.1,
    },
    "versions": {"Python": "3.11"},
    **{
        "client": "wrk",
        "widgets": 10_000,
        "against": None,
        "rounds": 3,
        "connections": 8,
        "minutes": 9.0,
        "command": "python -m bench",
    },
    # The second turn is disturbed: it takes twice as long for every server.
    "rows": [
        row("cold", 0.5, [100, 240, 75]),
        row("hot", 0.75, [80, 200, 70]),
        row("page", None, [50, 100, 50]),
    ],
    "growth": [
        {
            **{"key": "cold", "title": "cold"},
            "sizes": {"10000": samples([800], 1000), "100000": samples([1600], 500)},
        },
        {
            **{"key": "everywhere", "title": "all"},
            "sizes": {"10000": samples([9000], 100), "100000": samples([90_000], 2)},
        },
    ],
    "compression": [
        {"widgets": 3000, "encoding": "identity", "bytes": 13_000_000, "samples": samples([9000])},
        {"widgets": 3000, "encoding": "gzip", "bytes": 1_700_000, "samples": samples([800])},
    ],
    "catalogs": [
        {
            **{"checkout": "current", "widgets": widgets, "versions": 5 * widgets},
            **{"import_seconds": 9.0, "database_bytes": 10**7, "memory": 10**8},
            **{"start_seconds": 0.5, "slowest_start_seconds": 1.0},
        }
        for widgets in (10_000, 100_000)
    ],
    "peers": [
        {"name": "Datasette", "samples": samples([30_000], 1), "target": 50, "memory": 5 * 10**7}
    ],
    "skipped": ["json-server is skipped: It is not installed."],
}


def test_the_report_shows_cpu_time_rate_and_missed_targets() -> None:
    page = report.page(RESULTS)
    assert "| constant response, 20 kB |     60 |        400 |" in page
    cold = (
        "| cold                     |    100 |        100 |      0.60 |       0.25 | ≥ 0.50 | yes |"
    )
    assert cold in page
    assert "| cold |  1.00 (0.80) |    2.00 (1.60) |   2.00 |" in page
    assert "| registry, 3,000 widgets       | 13,000 |  9,000 |        100 |" in page
    assert "| registry, 3,000 widgets, gzip |  1,700 |    800 |        100 |" in page
    assert "Not met: growth: “all”." in page
    assert "json-server is skipped" in page


def test_the_report_names_a_row_that_misses_its_target() -> None:
    missed = RESULTS | {"rows": [row("hot", 0.75, [90, 170, 80])]}
    page = report.page(missed | {"growth": [], "peers": []})
    assert "Not met: compared with a constant response: “hot”." in page


@pytest.mark.parametrize(("min_rate", "verdict"), [(100, "yes"), (101, "**no**")])
def test_the_target_of_a_row_can_be_a_rate(min_rate: float, verdict: str) -> None:
    updates = row("updates", None, [100, 240, 75]) | {"min_rate": min_rate}
    line = report.row_lines(RESULTS | {"rows": [updates]})[-1]
    assert line.cells()[-2:] == (f"≥ {min_rate}/s", verdict)


def test_a_search_for_compatible_widgets_is_compared_with_the_same_search_without_it() -> None:
    rows = [row for row in workload.rows(SIZE) if row.baseline_requests]
    assert [row.cold for row in rows] == [True, False]
    for each in rows:
        assert workload.only_compatible(each.baseline_requests) == each.requests
        assert "compatSdk=" in each.baseline_requests[0].path


def test_updates_are_of_twenty_widgets() -> None:
    (updates,) = [row for row in workload.rows(SIZE) if row.key == "updates"]
    for request in updates.requests:
        paths = [path.rpartition("%40")[0] for path in request.path.split("&installed=")[1:]]
        assert len(set(paths)) == 20


def test_a_row_that_is_compared_with_other_settings_is_no_constant_response() -> None:
    configured = row("hot", 0.75, [80, 200, 70]) | {"baseline_bytes": 0}
    lines = report.row_lines(RESULTS | {"rows": [row("cold", 0.5, [100, 240, 75]), configured]})
    assert [line.title for line in lines] == ["constant response, 20 kB", "cold", "hot"]


def test_a_page_has_a_maximum_of_its_cpu_time() -> None:
    fast, slow = (
        row(key, None, cpu) | {"max_milliseconds": 25}
        for key, cpu in (("fast", [24_000, 99_000, 23_000]), ("slow", [26_000, 1, 27_000]))
    )
    page = report.page(RESULTS | {"rows": [fast, slow], "growth": [], "peers": []})
    assert re.search(r"fast .* < 25 ms \| +yes \|", page)
    assert "Not met: compared with a constant response: “slow”." in page


def test_the_report_compares_two_commits() -> None:
    cold = row("cold", None, [100, 240, 75])
    cold["samples"]["2b3bc74"] = samples([150, 480, 90], 50)
    other = RESULTS["catalogs"][0] | {"checkout": "2b3bc74"}
    catalogs = [RESULTS["catalogs"][0], other]
    results = RESULTS | {"rows": [cold], "against": "2b3bc74", "catalogs": catalogs}
    summary = report.summary(results | {"growth": [], "peers": []})
    assert "## Compared with 2b3bc74" in summary
    assert "| cold |    100 |     150 |      1.50 |        100 |      50 |       2.00 |" in summary
    assert "| widgets                              |      10,000 | 10,000, 2b3bc74 |" in summary


def test_the_chart_is_well_formed_and_has_a_bar_for_each_row() -> None:
    drawing = ElementTree.fromstring(report.draw_chart(RESULTS))  # noqa: S314  (our own text)
    bars = [each.get("class") for each in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == ["page", "bar", "bar", "plain"]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in ("bench.processes", "bench.catalogs"):
        monkeypatch.setattr(f"{module}.WORK", tmp_path)
    monkeypatch.setattr("bench.processes.free_port", free_port)
    return tmp_path


def test_the_baseline_is_served_on_the_io_thread(work: Path) -> None:
    requests = [workload.Request("GET", workload.constant_path(workload.PAGE_BYTES))] * 50
    with processes.start_baseline() as server:
        threads = Path(f"/proc/{server.pid}/task")
        before = cpu_nanoseconds(threads)
        sample = Client(work, use_wrk=False).measure(server, requests, connections=1)
        after = cpu_nanoseconds(threads)
    used = {thread: after[thread] - before.get(thread, 0) for thread in after}
    assert used[server.pid] > 0.8 * sum(used.values())
    assert sample["cpu"] == pytest.approx(sum(used.values()) / 50 / 1000, rel=0.2)


def cpu_nanoseconds(threads: Path) -> dict[int, int]:
    return {
        int(each.name): int((each / "schedstat").read_text().split()[0])
        for each in threads.iterdir()
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="This is not a git checkout.")
def test_another_commit_is_served_with_its_own_code_and_database(work: Path) -> None:
    checkout = extract("HEAD")
    assert (checkout.directory / "app.py").read_bytes()
    catalog = build(checkout, 30, print)
    with catalog.serve() as server:
        status, _, body = processes.fetch(server.url, "GET", workload.SEARCH)
        running_in = Path(f"/proc/{server.pid}/cwd").resolve()
    assert (status, json.loads(body)["total"]) == (200, 30)
    assert running_in == work / "commit"


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((ROOT / "bench" / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_searches_of_earlier_use_are_not_measured() -> None:
    earlier = {request.path for request in workload.earlier_use()}
    assert len(earlier) == workload.EARLIER_QUERIES
    for row in workload.rows(1_000):
        assert earlier.isdisjoint({request.path for request in row.requests})
