"""Every kind of page in a real browser: accessible, not too wide, and allowed by its policy."""

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from browser_tools import is_too_wide, recorded
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATHS = {
    "browse": "/",
    "browse for an SDK": "/?q=weather&compatSdk=1.4.0",
    "second page": "/?page=2",
    "invalid fields": "/?q=weather&compatSdk=1.4&official=x&page=0",
    "no results": "/?q=wether&scope=acme&compatSdk=1.4.0&compatible=true&permission=network",
    "without an SDK": "/?q=weather&compatible=true",
    "widget": "/widgets/acme/weather?compatSdk=1.4.0",
    "version": "/widgets/acme/weather/2.6.1",
    "comparison": "/widgets/acme/weather/compare?from=2.6.0&to=3.1.0",
    "missing version": "/widgets/acme/weather/9.9.9",
    "two widgets": "/compare?with=acme/weather&with=community/meteo-marine",
    "scope": "/widgets/acme",
    "right to left": "/widgets/community/prayer-times",
    "all yanked": "/widgets/acme-labs/voice-memo",
    "newest yanked": "/widgets/hearth/thermostat",
    "no versions": "/widgets/acme-labs/gesture-pad",
    "missing": "/widgets/acme/none",
    "docs": "/docs",
    "publish": "/publish",
    "scope found": "/?q=acme",
    "keyword": "/?keyword=events",
    "close matches": "/?q=weather+forecast+banana",
    "same versions": "/widgets/acme/weather/compare?from=2.6.0&to=2.6.0",
    "updates": "/updates?compatSdk=1.4&installed=acme/weather@2.6.1&installed=acme/none@1.0.0",
    "invalid updates": "/updates?compatSdk=x&installed=none",
}
# Only rules about audio and video, which no page has, and experimental rules need preloaded files.
VIOLATIONS = """
(options) => axe.run(
    { resultTypes: ["violations"], preload: false, ...options }
).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`)))
"""
# The rules whose result depends on the colours and on the size of the screen.
LAYOUT_RULES = [
    "color-contrast",
    "link-in-text-block",
    "scrollable-region-focusable",
    "target-size",
]
WITHOUT_LAYOUT = {"rules": {rule: {"enabled": False} for rule in LAYOUT_RULES}}
ONLY_LAYOUT = {"runOnly": LAYOUT_RULES}
ONLY_CONTRAST = {"runOnly": ["color-contrast"]}
# Operations of the API look alike, and examining the layout of all of them takes seconds.
REMOVE_REPEATED = """
const repeated = document.querySelectorAll(".operation:has(.get) ~ .operation:has(.get)");
repeated.forEach((each) => each.remove());
"""


# One page of each template, whose layout is also examined dark on a narrow screen.
TEMPLATES = (
    "browse",
    "widget",
    "version",
    "comparison",
    "two widgets",
    "scope",
    "missing",
    "docs",
    "updates",
    "publish",
)


class Visit(NamedTuple):
    """An opened page, the requests that it made, and its messages on the console."""

    name: str
    page: "Page"
    requests: list[Any]
    messages: list[Any]


@pytest.fixture(scope="module")
def own_tab(tab: "Page") -> Iterator["Page"]:
    page = tab.context.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module", params=PATHS)
def visit(request: pytest.FixtureRequest, own_tab: "Page", server: Server) -> Visit:
    """One of the pages, opened once for all tests."""
    own_tab.set_viewport_size({"width": 1280, "height": 900})
    own_tab.emulate_media(color_scheme="light")
    with recorded(own_tab, "request") as requests, recorded(own_tab, "console") as messages:
        own_tab.goto(server.url + PATHS[request.param])
    return Visit(request.param, own_tab, requests, messages)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def test_every_request_is_to_the_service(visit: Visit, server: Server) -> None:
    assert len(visit.requests) > 2
    urls = [request.url for request in visit.requests]
    assert [url for url in urls if not url.startswith(f"{server.url}/")] == []


def test_page_does_not_violate_its_policy(visit: Visit) -> None:
    texts = [message.text for message in visit.messages]
    assert [text for text in texts if "Content Security Policy" in text] == []


def test_page_fits_a_narrow_screen(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 320, "height": 640})
    assert not is_too_wide(visit.page)
    visit.page.set_viewport_size({"width": 1280, "height": 900})


def test_page_is_accessible(visit: Visit, axe: str) -> None:
    visit.page.evaluate(axe)
    if visit.name == "docs":
        assert visit.page.evaluate(VIOLATIONS, WITHOUT_LAYOUT) == []
        visit.page.evaluate(REMOVE_REPEATED)
        assert visit.page.evaluate(VIOLATIONS, ONLY_LAYOUT) == []
    else:
        # One run takes three quarters of the CPU time of two.
        assert visit.page.evaluate(VIOLATIONS, {}) == []
    visit.page.emulate_media(color_scheme="dark")
    assert visit.page.evaluate(VIOLATIONS, ONLY_CONTRAST) == []
    if visit.name in TEMPLATES:
        visit.page.set_viewport_size({"width": 320, "height": 640})
        assert visit.page.evaluate(VIOLATIONS, ONLY_LAYOUT) == []


def test_docs_on_a_phone_have_a_closed_list_of_operations(own_tab: "Page", server: Server) -> None:
    operation = own_tab.locator(".contents ul ul a").first
    own_tab.goto(f"{server.url}/docs")
    own_tab.set_viewport_size({"width": 390, "height": 844})
    assert operation.is_hidden()
    own_tab.locator(".contents summary").click()
    assert operation.is_visible()
    own_tab.locator(".contents summary").click()
    own_tab.set_viewport_size({"width": 1280, "height": 900})
    assert operation.is_visible()
    assert own_tab.locator("#objects ~ article .fields").first.is_hidden()
