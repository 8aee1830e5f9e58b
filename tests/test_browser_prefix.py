"""The pages below a path prefix, in a real browser through real proxies as they are documented."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import reverse_proxies
from builders import bundled, document
from conftest import Server, create_demo, hold
from reverse_proxies import PREFIX

from app import create_app
from catalog.documents import check_document
from catalog.store import writes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request

BUNDLE = b"document.title = 'a bundle ran'"
HELD = "/widgets/acme/held"
PATHS = ["/", "/?page=2", "/?q=nothing+such", "/?page=0", HELD, "/docs", "/widgets/acme/none"]
# Every address in the page, as the browser resolves it.
ADDRESSES = """
() => [...document.querySelectorAll("[href], [src], [action]")].flatMap((element) =>
    ["href", "src", "action"].filter((name) => element.hasAttribute(name))
        .map((name) => new URL(element.getAttribute(name), document.baseURI).href))
"""


def create_catalog(path: Path) -> Path:
    """The demo catalog, and a widget whose bundle is held."""
    app = create_app({"DATABASE": create_demo(path)})
    widget = document("acme/held", bundled("1.0.0", BUNDLE), displayName="Held", downloadCount=1)
    app.extensions["database"].write(writes.put_documents([check_document(widget)]))
    hold(app, BUNDLE)
    app.extensions["database"].close()
    return path


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of the service behind a proxy, with its prefix."""
    directory = tmp_path_factory.mktemp(request.param)
    start: Callable[..., Any] = getattr(reverse_proxies, request.param)
    database = create_catalog(directory / "catalog.db")
    with (
        Server(database, CATALOG_TRUSTED_PROXY="127.0.0.1") as server,
        start(directory, server.port) as port,
    ):
        yield f"https://127.0.0.1:{port}{PREFIX}"


@pytest.fixture
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    with browser.new_context(ignore_https_errors=True) as context:
        context.set_default_timeout(10_000)
        yield context


def expect_text(locator: "Locator", text: str | re.Pattern[str]) -> None:
    """Wait until the element has just this text."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=10_000)


def expect_url(page: "Page", url: str) -> None:
    """Wait until the page is at this address."""
    from playwright.sync_api import expect

    expect(page).to_have_url(url, timeout=10_000)


def test_no_address_in_a_page_leaves_the_prefix_or_is_missing(
    context: "BrowserContext", address: str
) -> None:
    page = context.new_page()
    found: set[str] = set()
    for path in PATHS:
        page.goto(address + path)
        found |= {url.partition("#")[0] for url in page.evaluate(ADDRESSES)}
    outside = {url for url in found if not url.startswith(f"{address}/")}
    assert {url for url in outside if not url.startswith("https://cdn.example.com/")} == set()
    assert f"{address}/api/v1/widgets/acme/held/1.0.0/bundle.js" in found
    # The pages that are asked for above with an error in them link to themselves.
    found -= {f"{address}{path}" for path in PATHS}
    missing = [url for url in sorted(found - outside) if not context.request.get(url).ok]
    assert (missing, len(found) > 40) == ([], True)


def test_every_request_of_a_page_stays_below_the_prefix_and_is_answered(
    context: "BrowserContext", address: str
) -> None:
    requests: list[Request] = []
    context.on("request", lambda request: requests.append(request))
    page = context.new_page()
    for path in PATHS:
        page.goto(address + path)
    assert [each.url for each in requests if not each.url.startswith(f"{address}/")] == []
    files = [each for each in requests if each.resource_type != "document"]
    names = {each.url.removeprefix(f"{address}/static/") for each in files}
    assert {"catalog.css", "copy.js", "browse.js", "docs.js"} <= names
    statuses = {response.status for each in files if (response := each.response())}
    assert statuses <= {200, 304}


def test_the_style_of_a_page_is_applied(context: "BrowserContext", address: str) -> None:
    page = context.new_page()
    for path in PATHS:
        page.goto(address + path)
        assert page.evaluate("getComputedStyle(document.querySelector('.skip')).position") == (
            "absolute"
        )


def test_results_follow_the_typing(context: "BrowserContext", address: str) -> None:
    page = context.new_page()
    page.goto(f"{address}/")
    field = page.get_by_label("Search")
    field.press_sequentially("rain radar", delay=20)
    expect_url(page, f"{address}/?q=rain+radar")
    expect_text(page.get_by_role("status"), "1 widget")
    field.fill("")
    expect_text(page.get_by_role("status"), "34 widgets, page 1 of 2")
    assert page.url == f"{address}/"


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without"])
def test_a_visitor_goes_from_the_first_page_to_a_widget_and_back(
    browser: "Browser", address: str, script: bool
) -> None:
    with browser.new_context(ignore_https_errors=True, java_script_enabled=script) as context:
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.goto(f"{address}/none")
        page.get_by_label("Look for a widget").fill("weather")
        page.get_by_role("button", name="Search").click()
        page.get_by_role("link", name="Weather", exact=True).click()
        page.get_by_label("Your SDK version").fill("1.4.0")
        page.get_by_role("button", name="Find version").click()
        expect_text(page.locator("#get"), "Newest for SDK 1.4.0: 2.6.0")
        assert page.url == f"{address}/widgets/acme/weather?compatSdk=1.4.0"
        page.get_by_role("link", name="acme", exact=True).click()
        assert page.url == f"{address}/?scope=acme"
        page.get_by_role("link", name="Widget Catalog").click()
        page.get_by_role("link", name="Page 2").click()
        assert page.url == f"{address}/?page=2"


def test_a_call_that_is_tried_in_the_docs_reaches_the_service(
    context: "BrowserContext", address: str
) -> None:
    page = context.new_page()
    page.goto(f"{address}/docs")
    command = page.locator("#getWidget-command")
    assert command.inner_text() == f"curl -s {address}/api/v1/widgets/acme/weather"
    form = page.locator('form[data-answer="getWidget-answer"]')
    form.get_by_label("name").fill("held")
    assert command.inner_text() == f"curl -s {address}/api/v1/widgets/acme/held"
    form.get_by_role("button", name="Send").click()
    outcome = page.locator("#getWidget-answer").get_by_role("status")
    # HTTP/2 has no reason phrase.
    expect_text(outcome, re.compile(f"^200( OK)? from {PREFIX}/api/v1/widgets/acme/held$"))
    shown = json.loads(page.locator("#getWidget-answer pre").inner_text())
    bundle = shown["versions"][0]["bundleUrl"]
    assert bundle == f"{address}/api/v1/widgets/acme/held/1.0.0/bundle.js"
    assert context.request.get(bundle).body() == BUNDLE


def test_the_description_names_the_address(context: "BrowserContext", address: str) -> None:
    (server,) = context.request.get(f"{address}/openapi.json").json()["servers"]
    assert server["url"] == address
    assert context.request.get(f"{server['url']}/api/v1/widgets/search").ok


def test_the_prefix_without_its_slash_leads_to_the_first_page(
    context: "BrowserContext", address: str
) -> None:
    page = context.new_page()
    page.goto(address)
    assert page.url == f"{address}/"
    expect_text(page.get_by_role("status"), "34 widgets, page 1 of 2")
