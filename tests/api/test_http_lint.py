"""An HTTP linter, REDbot, finds nothing wrong with any kind of response.

It sends several requests for each URL: with and without gzip, conditional, and for a range.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_tools import create_catalog_with_bundles
from builders import bundled, document
from conftest import ROOT, Server
from markup import element, elements

PYTHON = Path(os.environ.get("REDBOT_PYTHON", ROOT / ".venv" / "tools" / "bin" / "python"))
BUNDLE = b"export default 1\n" * 100
V1 = "/api/v1/widgets"
PATHS = {
    200: [
        *("/", "/?q=clock&compatSdk=1.4.0", "/widgets/acme/clock", "/docs", "/updates"),
        "/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0",
        *("/publish", "/widgets/acme/clock/1.0.0", "/feed.atom"),
        *("/openapi.json", "/static/catalog.css"),
        *(f"{V1}/search", f"{V1}/search?q=none", f"{V1}/changes", f"{V1}/acme/clock"),
        *(f"{V1}/acme/clock/latest", f"{V1}/acme/clock/1.0.0/bundle.js"),
        f"{V1}/updates?compatSdk=1.4.0&installed=acme/clock@1.0.0",
        *("/api/widgets/acme/registry.json", "/api/health", "/api/version", "/api/stats"),
        *("/api/settings", "/api/widgets/cli-version"),
    ],
    400: ["/?page=0", "/updates?compatSdk=x", f"{V1}/search?page=0"],
    401: ["/api/internal"],
    404: ["/none", "/widgets/acme/none", f"{V1}/acme/none"],
}
# CONTRIBUTING.md gives the reason for each.
ACCEPTED = {
    "Cache-Control: public is probably not necessary.": [f"{V1}/acme/clock/1.0.0/bundle.js"],
    "This response allows caches to assign their own freshness lifetimes to it.": [
        *("/api/widgets/acme/registry.json", "/api/version", "/api/stats", "/api/settings"),
        "/api/widgets/cli-version",
    ],
    "The server didn't understand the request.": PATHS[400],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("lint") / "catalog.db"
    clock = document("acme/clock", bundled("1.0.0", BUNDLE))
    with Server(create_catalog_with_bundles(path, clock, BUNDLE)) as running:
        yield running


@pytest.fixture(scope="module")
def reports(server: Server) -> list[dict[str, Any]]:
    """What the linter says about each response."""
    if not PYTHON.exists():
        skip_or_fail = pytest.fail if os.environ.get("REQUIRE_REDBOT") else pytest.skip
        skip_or_fail("REDbot is not installed: make http-lint installs it.")
    _, body = server.request("GET", "/")
    page = body.decode()
    files = [node.attributes["src"] for node in elements(page, "script")]
    files += [element(page, "link", rel=rel).attributes["href"] for rel in ("stylesheet", "icon")]
    paths = [*(path for each in PATHS.values() for path in each), *files]
    result = subprocess.run(
        [PYTHON, ROOT / "tests" / "api" / "lint_http.py"],
        input="\n".join(f"{server.url}{path}" for path in paths),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == len(paths)
    return lines


def test_linter_gets_the_responses_that_it_should_examine(
    reports: list[dict[str, Any]], server: Server
) -> None:
    statuses = {each["url"].removeprefix(server.url): each["status"] for each in reports}
    for status, paths in PATHS.items():
        assert {statuses[path] for path in paths} == {status}


def test_linter_has_no_warning(reports: list[dict[str, Any]], server: Server) -> None:
    assert all(each["notes"] for each in reports)
    found: dict[str, list[str]] = {}
    for each in reports:
        for level, text in each["notes"]:
            if level in ("warning", "bad"):
                found.setdefault(text, []).append(each["url"].removeprefix(server.url))
    assert {text: sorted(paths) for text, paths in found.items()} == {
        text: sorted(paths) for text, paths in ACCEPTED.items()
    }
