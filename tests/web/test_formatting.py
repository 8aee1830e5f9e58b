"""Formatting for the pages: numbers, dates and shell commands."""

import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from datetime import date
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
        *[(999_949, "999.9 kB"), (999_999, "1 MB"), (999_999_999, "1 GB")],
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
    ("timestamp", "text"),
    [
        ("2026-05-15T23:00:00.000Z", "today"),
        ("2026-05-14T00:00:00.000Z", "yesterday"),
        ("2026-05-11T12:00:00.000Z", "4 days ago"),
        ("2026-05-01T12:00:00.000Z", "2 weeks ago"),
        ("2026-04-10T12:00:00.000Z", "1 month ago"),
        ("2025-05-16T12:00:00.000Z", "11 months ago"),
        ("2025-05-15T12:00:00.000Z", "1 year ago"),
        ("2024-05-01T12:00:00.000Z", "2 years ago"),
        ("2026-05-16T00:00:00.000Z", "16 May 2026"),
    ],
)
def test_age_has_one_unit_and_is_a_date_in_the_future(timestamp: str, text: str) -> None:
    assert formatting.format_age(timestamp, date(2026, 5, 15)) == text


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
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{file}: OK\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [file]
