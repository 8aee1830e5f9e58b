"""CORS as a browser enforces it: a page of another origin reads the widget API and nothing else."""

import http.server
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Server, create_demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

V1 = "/api/v1/widgets/"
# What a page gets from an address: status and body, or that it was kept from it.
FETCH = """
([url, options]) => fetch(url, options).then(
    async (answer) => [answer.status, await answer.text()],
    (error) => [0, error.name])
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog of its own, since installs are counted in it."""
    running = Server(create_demo(tmp_path_factory.mktemp("cors") / "catalog.db"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    """The address of an empty page that is served from a second port."""

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


@pytest.fixture(scope="module")
def tab(browser: "Browser") -> Iterator["Page"]:
    with browser.new_context() as context:
        yield context.new_page()


@pytest.fixture
def page(tab: "Page", dashboard: str) -> "Page":
    """A tab that shows the page of the other origin."""
    tab.goto(dashboard)
    return tab


def fetch(page: "Page", url: str, **options: Any) -> tuple[int, str]:
    status, body = page.evaluate(FETCH, [url, options])
    return status, body


def installs(catalog: Server) -> int:
    _, body = catalog.request("GET", V1 + "acme/clock")
    return int(json.loads(body)["widget"]["downloadCount"])


def test_another_origin_can_search(page: "Page", catalog: Server) -> None:
    status, body = fetch(page, f"{catalog.url}{V1}search?q=weather&compatSdk=1.4.0")
    assert status == 200
    assert json.loads(body)["widgets"][0]["latestCompatibleVersion"]["version"] == "2.6.0"


def test_another_origin_can_read_a_widget(page: "Page", catalog: Server) -> None:
    status, body = fetch(page, f"{catalog.url}{V1}acme/weather")
    assert (status, json.loads(body)["latestVersion"]) == (200, "3.1.0")


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}])
def test_another_origin_can_count_an_install(
    page: "Page", catalog: Server, headers: dict[str, str]
) -> None:
    before = installs(catalog)
    url = f"{catalog.url}{V1}acme/clock"  # the second header makes a browser ask first
    assert fetch(page, url, method="POST", headers=headers) == (200, '{"success":true}\n')
    assert installs(catalog) == before + 1


@pytest.mark.parametrize("path", ["search?page=0", "acme/none", "no/such/path"])
def test_another_origin_can_read_a_refusal(page: "Page", catalog: Server, path: str) -> None:
    status, body = fetch(page, f"{catalog.url}{V1}{path}")
    assert status in (400, 404)
    assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize(
    "path",
    [
        *("/api/widgets/acme/registry.json", "/api/stats", "/api/health", "/api/me"),
        *("/", "/widgets/acme/weather", "/docs", "/openapi.json", "/static/catalog.css"),
    ],
)
def test_another_origin_is_kept_from_everything_else(
    page: "Page", catalog: Server, path: str
) -> None:
    assert catalog.request("GET", path)[0].status in (200, 401)
    assert fetch(page, catalog.url + path) == (0, "TypeError")


def test_a_page_of_the_service_itself_can_read_them(page: "Page", catalog: Server) -> None:
    page.goto(catalog.url)
    for path in ("/api/widgets/acme/registry.json", "/api/stats", "/openapi.json"):
        assert fetch(page, path)[0] == 200


def test_no_page_can_be_put_into_a_frame(page: "Page", catalog: Server) -> None:
    for path in ("/", "/widgets/acme/weather", "/docs"):
        page.evaluate(
            "(url) => new Promise((loaded) => { const frame = document.createElement('iframe');"
            "frame.src = url; frame.onload = loaded; document.body.append(frame); })",
            catalog.url + path,
        )
        assert page.frames[-1].url == "chrome-error://chromewebdata/"
