"""Formatting for the pages: numbers, dates, shell commands, and the geometry of drawings."""

import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import version

from catalog.web import formatting

BUNDLE = b"export default () => 'tick'"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0"), (1, "1"), (999, "999"), (1000, "1k"), (1049, "1k"), (1050, "1.1k")],
        *[(9_949, "9.9k"), (9_950, "10k"), (301_482, "301k"), (999_499, "999k")],
        *[(999_500, "1M"), (2_164_216, "2.2M"), (1_000_000_000, "1bn"), (2**53, "9,007,199bn")],
    ],
)
def test_short_number_has_at_most_three_digits_up_to_billions(value: int, text: str) -> None:
    assert formatting.format_short_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1 kB"), (20_300, "20.3 kB")],
        *[(1_000_000, "1 MB"), (1_250_000_000, "1.2 GB"), (10**13, "10,000 GB")],
    ],
)
def test_byte_units_are_powers_of_a_thousand(value: int, text: str) -> None:
    assert formatting.format_bytes(value) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        ("2026-08-04T17:25:23.651Z", "4 Aug 2026"),
        ("2023-12-31T23:59:59.999Z", "31 Dec 2023"),
        ("0001-01-01T00:00:00.000Z", "1 Jan 0001"),
    ],
)
def test_day_has_the_name_of_its_month(timestamp: str, text: str) -> None:
    assert formatting.format_day(timestamp) == text


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("ten chars.", "ten chars."),
        ("one two three", "one two…"),
        ("天" * 20, "天" * 10 + "…"),
        (" " * 20, " " * 10 + "…"),
    ],
)
def test_long_text_is_cut_between_words_if_possible(text: str, cut: str) -> None:
    assert formatting.shorten(text, 10) == cut


@pytest.mark.parametrize(
    ("number", "expected"),
    [("1.0.0", False), ("1.0.0-rc.1", True), ("1.0.0+a-b", False), ("1.0.0-a+b", True)],
)
def test_prerelease_is_recognized_without_the_build_metadata(number: str, expected: bool) -> None:
    assert formatting.is_prerelease(number) is expected


def test_integrity_is_the_hash_in_base64() -> None:
    # The SHA-256 of no bytes.
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    expected = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    assert formatting.sri_hash(digest) == expected


@pytest.fixture(scope="module")
def bundles() -> Iterator[str]:
    """The URL of a server that returns the bundle for every path."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BUNDLE)))
            self.end_headers()
            self.wfile.write(BUNDLE)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "path", "file"),
    [
        ("weather", "/weather.js", "weather-2.6.0.js"),
        ("-rf $(id) `id`", "/a.js", "_rf_id_id_-2.6.0.js"),
        ("天気", "/a.js", "_-2.6.0.js"),
        (".hidden", "/a.js", "_hidden-2.6.0.js"),
        ("a'b\"c", "/it's$(touch%20bad)?a=1&b=2;touch bad", "a_b_c-2.6.0.js"),
        ("glob", "/{a,b}[1-3].js", "glob-2.6.0.js"),
        ("x" * 214, "/a.js", "x" * 80 + "-2.6.0.js"),
    ],
    ids=["plain", "shell", "CJK", "dot", "quotes", "glob", "long"],
)
def test_commands_download_the_bundle_and_verify_its_hash(
    tmp_path: Path, bundles: str, name: str, path: str, file: str
) -> None:
    digest = hashlib.sha256(BUNDLE).hexdigest()
    url = bundles + path.replace(" ", "%20")
    entry = {**version("2.6.0", bundleUrl=url, sha256Hash=digest), "name": name}
    script = f"{formatting.fetch_command(entry)} -s && {formatting.check_command(entry)}"
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=20
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{file}: OK\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("page", "last", "numbers"),
    [
        (1, 1, [1]),
        (1, 2, [1, 2]),
        (1, 5, [1, 2, None, 5]),
        (3, 5, [1, 2, 3, 4, 5]),
        (5, 9, [1, None, 4, 5, 6, None, 9]),
        (4, 7, [1, 2, 3, 4, 5, 6, 7]),
        (9, 9, [1, None, 8, 9]),
    ],
)
def test_pager_has_both_ends_and_the_neighbours(
    page: int, last: int, numbers: list[int | None]
) -> None:
    assert formatting.page_numbers(page, last) == numbers


def released(*days: str, yanked: bool = False) -> list[dict[str, Any]]:
    return [
        {**version(f"1.0.{n}", publishedAt=f"{day}T00:00:00.000Z"), "yanked": yanked}
        for n, day in enumerate(days)
    ]


def test_chart_of_a_short_history_has_a_bar_for_each_month() -> None:
    chart = formatting.releases_chart(
        released("2024-11-30", "2024-12-01", "2024-12-31")
        + released("2024-12-15", "2025-02-01", yanked=True)
    )
    assert chart is not None
    assert [(bar.available, bar.yanked) for bar in chart.bars] == [(1, 0), (2, 1), (0, 0), (0, 1)]
    assert chart.highest == 3
    assert chart.label == "5 releases from 30 Nov 2024 to 1 Feb 2025"
    assert chart.bars[1].label == "Dec 2024: 3 releases (1.0.1, 1.0.2, 1.0.0)"
    assert chart.bars[2].label == "Jan 2025: 0 releases"


@pytest.mark.parametrize(
    ("first", "last", "bars", "label"),
    [
        ("2022-01-01", "2025-03-01", 39, "Jan 2022: 1 release (1.0.0)"),
        ("2022-02-01", "2025-06-01", 14, "Jan 2022 to Mar 2022: 1 release (1.0.0)"),
        ("2000-05-01", "2025-06-01", 26, "Jan 2000 to Dec 2000: 1 release (1.0.0)"),
        ("0001-01-01", "9999-12-31", 10, "Jan 0 to Dec 999: 1 release (1.0.0)"),
    ],
)
def test_chart_of_a_long_history_has_bars_of_several_months(
    first: str, last: str, bars: int, label: str
) -> None:
    chart = formatting.releases_chart(released(first, last))
    assert chart is not None
    assert (len(chart.bars), chart.bars[0].label) == (bars, label)


@pytest.mark.parametrize("days", [[], ["2025-01-02"], ["2025-01-02", "2025-01-30"]])
def test_versions_of_a_single_month_have_no_chart(days: list[str]) -> None:
    assert formatting.releases_chart(released(*days)) is None


def test_sizes_are_drawn_up_to_24_cells() -> None:
    entry = {"minSize": {"w": 0, "h": 30}, "maxSize": {"w": 24, "h": 2**53}}
    assert formatting.size_drawing(entry) == (0, 24, 24, 24, True)
    entry = {"minSize": {"w": 1, "h": 2}, "maxSize": {"w": 3, "h": 24}}
    assert formatting.size_drawing(entry) == (1, 2, 3, 24, False)
