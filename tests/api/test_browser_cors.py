"""CORS as a browser enforces it: pages of other origins can read only the widget API."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Server, create_demo

from catalog import V1_PREFIX

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Returns the status and body that a page can read, or 0 and the error if it cannot.
FETCH = """
([url, options]) => fetch(url, options).then(
    async (response) => [response.status, await response.text()],
    (error) => [0, error.name])
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for this module only, since its tests count installs."""
    running = Server(create_demo(tmp_path_factory.mktemp("cors") / "catalog.db"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    """The URL of an empty page on another port, which is another origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "15")
            self.end_headers()
            self.wfile.write(b"<!doctype html>")

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def other_page(page: "Page", dashboard: str) -> "Page":
    """A page of another origin."""
    page.goto(dashboard)
    return page


def fetch(page: "Page", url: str, **options: Any) -> tuple[int, str]:
    status, body = page.evaluate(FETCH, [url, options])
    return status, body


def installs(catalog: Server) -> int:
    _, body = catalog.request("GET", V1_PREFIX + "acme/clock")
    return int(json.loads(body)["widget"]["downloadCount"])


def test_another_origin_can_read_a_widget(other_page: "Page", catalog: Server) -> None:
    status, body = fetch(other_page, f"{catalog.url}{V1_PREFIX}acme/weather?compatSdk=1.4.0")
    assert (status, json.loads(body)["latestVersion"]) == (200, "3.1.0")


def test_another_origin_can_read_the_etag_and_no_other_special_header(
    other_page: "Page", catalog: Server
) -> None:
    url = f"{catalog.url}{V1_PREFIX}acme/weather"
    script = "(url) => fetch(url).then(({headers}) => [headers.get('ETag'), headers.get('Vary')])"
    response, _ = catalog.request("GET", V1_PREFIX + "acme/weather", Accept_Encoding="gzip")
    assert response.headers["Vary"] == "Accept-Encoding"
    assert other_page.evaluate(script, url) == [response.headers["ETag"], None]


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}])
def test_another_origin_can_count_an_install(
    other_page: "Page", catalog: Server, headers: dict[str, str]
) -> None:
    before = installs(catalog)
    # With a Content-Type of JSON, the browser sends a preflight request.
    url = f"{catalog.url}{V1_PREFIX}acme/clock"
    assert fetch(other_page, url, method="POST", headers=headers) == (200, '{"success":true}\n')
    assert installs(catalog) == before + 1


@pytest.mark.parametrize(("path", "status"), [("search?page=0", 400), ("no/such/path", 404)])
def test_another_origin_can_read_an_error(
    other_page: "Page", catalog: Server, path: str, status: int
) -> None:
    received, body = fetch(other_page, f"{catalog.url}{V1_PREFIX}{path}")
    assert (received, [*json.loads(body)]) == (status, ["error"])


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/widgets/acme/registry.json", 200), ("/api/me", 401), ("/openapi.json", 200)],
)
def test_another_origin_cannot_read_anything_else(
    other_page: "Page", catalog: Server, path: str, status: int
) -> None:
    assert catalog.request("GET", path)[0].status == status
    assert fetch(other_page, catalog.url + path) == (0, "TypeError")


def test_page_of_the_same_origin_can_read_them(page: "Page", catalog: Server) -> None:
    page.goto(catalog.url)
    for path in ("/api/widgets/acme/registry.json", "/api/stats", "/openapi.json"):
        assert fetch(page, path)[0] == 200


def test_pages_cannot_be_framed(other_page: "Page", catalog: Server) -> None:
    for path in ("/", "/widgets/acme/weather", "/docs"):
        other_page.evaluate(
            "(url) => new Promise((loaded) => { const frame = document.createElement('iframe');"
            "frame.src = url; frame.onload = loaded; document.body.append(frame); })",
            catalog.url + path,
        )
        assert other_page.frames[-1].url == "chrome-error://chromewebdata/"
