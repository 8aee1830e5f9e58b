"""The pages below a path prefix, in a real browser through the reverse proxies of deploy/."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import reverse_proxies
from browser_tools import recorded
from builders import bundled, document
from conftest import Server, create_demo, hold, putting
from reverse_proxies import PREFIX

from app import create_app
from catalog.domain.documents import check_document

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

BUNDLE = b"document.title = 'a bundle ran'"
HELD = "/widgets/acme/held"
PATHS = ["/", "/?page=2", "/?q=nothing+such", "/?page=0", HELD, "/docs", "/widgets/acme/none"]
# Every URL in the page, as the browser resolves it.
URLS = """
() => [...document.querySelectorAll("[href], [src], [action]")].flatMap((element) =>
    ["href", "src", "action"].filter((name) => element.hasAttribute(name))
        .map((name) => new URL(element.getAttribute(name), document.baseURI).href))
"""
SKIP_LINK_POSITION = "getComputedStyle(document.querySelector('.skip')).position"


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def base_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL with prefix of the service behind a proxy: the demo catalog and a stored bundle."""
    directory = tmp_path_factory.mktemp(request.param)
    app = create_app({"DATABASE": create_demo(directory / "catalog.db")})
    widget = document("acme/held", bundled("1.0.0", BUNDLE), displayName="Held", downloadCount=1)
    app.extensions["database"].transact(putting([check_document(widget)]))
    hold(app, BUNDLE)
    app.extensions["database"].close()
    start: Callable[..., Any] = reverse_proxies.caddy
    if request.param == "nginx":
        # The name of the file is not the address that the browser uses.
        start = partial(reverse_proxies.nginx, host="$http_host")
    with (
        Server(app.config["DATABASE"], CATALOG_TRUSTED_PROXY="127.0.0.1") as server,
        start(directory, server.port) as proxy,
    ):
        yield f"https://127.0.0.1:{proxy.port}{PREFIX}"


MISSING = """
async (urls) => {
    const responses = await Promise.all(urls.map((url) => fetch(url)));
    return urls.filter((url, index) => !responses[index].ok);
}
"""


class Visits(NamedTuple):
    """The URLs in all pages, the requests that they made, and whether each has its style."""

    urls: set[str]
    requests: "list[Request]"
    has_style: list[bool]


@pytest.fixture(scope="module")
def visits(tab: "Page", base_url: str) -> Visits:
    urls: set[str] = set()
    has_style = []
    with recorded(tab, "request") as requests:
        for path in PATHS:
            tab.goto(base_url + path)
            urls |= {url.partition("#")[0] for url in tab.evaluate(URLS)}
            has_style.append(tab.evaluate(SKIP_LINK_POSITION) == "absolute")
    return Visits(urls, requests, has_style)


def test_every_url_in_a_page_is_below_the_prefix_and_exists(
    visits: Visits, page: "Page", base_url: str
) -> None:
    outside = {url for url in visits.urls if not url.startswith(f"{base_url}/")}
    assert {url for url in outside if not url.startswith("https://cdn.example.com/")} == set()
    assert f"{base_url}/api/v1/widgets/acme/held/1.0.0/bundle.js" in visits.urls
    # Error pages link to themselves.
    linked = visits.urls - {f"{base_url}{path}" for path in PATHS}
    page.goto(f"{base_url}/")
    urls = sorted(linked - outside)
    # At most 32 pages of one client may wait for the service.
    for start in range(0, len(urls), 10):
        assert page.evaluate(MISSING, urls[start : start + 10]) == []
    assert len(linked) > 40


def test_every_request_of_a_page_is_below_the_prefix_and_succeeds(
    visits: Visits, base_url: str
) -> None:
    urls = [request.url for request in visits.requests]
    assert [url for url in urls if not url.startswith(f"{base_url}/")] == []
    files = [request for request in visits.requests if request.resource_type != "document"]
    urls = [request.url.removeprefix(f"{base_url}/static/") for request in files]
    names = {re.sub(r"\.[0-9a-f]{16}\.", ".", url) for url in urls}
    assert {"catalog.css", "pages.js", "docs.js"} <= names
    statuses = {response.status for request in files if (response := request.response())}
    assert statuses <= {200, 304}


def test_every_page_has_its_style(visits: Visits) -> None:
    assert visits.has_style == [True] * len(PATHS)


def test_links_of_the_docs_and_the_form_of_updates_reach_the_service(
    page: "Page", base_url: str
) -> None:
    page.goto(f"{base_url}/docs")
    page.get_by_role("link", name="Response of this service: Check the service").click()
    assert json.loads(page.locator("pre").inner_text()) == {"status": "ok"}
    page.goto(f"{base_url}/updates?compatSdk=1.4.0")
    page.get_by_label("Installed versions").fill("acme/clock@1.0.0")
    page.get_by_role("button", name="Check for updates").click()
    page.locator("#result").wait_for()
    assert page.url.startswith(f"{base_url}/updates?")
