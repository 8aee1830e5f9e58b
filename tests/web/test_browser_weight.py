"""What a visit costs: bytes and requests of the start page, and how far a page shifts."""

from typing import TYPE_CHECKING

import pytest
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

WIDTHS = (1440, 390)
MAX_BYTES = 120 * 1024
MAX_REQUESTS = 20
MAX_SHIFT = 0.02
# The page itself, and every file that it loads.
TRANSFERRED = """
performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"))
    .map(({ transferSize }) => transferSize)
"""
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# The shifts so far, each with the elements that moved.
SHIFTS = """
new Promise((resolve) => {
    const shifts = [];
    const observer = new PerformanceObserver((list) => {
        for (const { value, sources } of list.getEntries()) {
            const moved = sources.map(({ node }) => node?.parentElement?.outerHTML.slice(0, 200));
            shifts.push([value, moved]);
        }
    });
    observer.observe({ type: "layout-shift", buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(shifts)));
})
"""


def open_anew(browser: "Browser", url: str, width: int) -> "Page":
    """Return the page in a context with an empty cache, when everything is loaded."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(url, wait_until="networkidle", timeout=60_000)
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_start_page_is_small_and_does_not_shift(
    browser: "Browser", server: Server, width: int
) -> None:
    page = open_anew(browser, f"{server.url}/", width)
    sizes, shifts = page.evaluate(TRANSFERRED), page.evaluate(SHIFTS)
    page.context.close()
    assert len(sizes) < MAX_REQUESTS
    assert min(sizes) > 0
    assert sum(sizes) < MAX_BYTES
    assert sum(value for value, _ in shifts) <= MAX_SHIFT, shifts


@pytest.mark.parametrize("width", WIDTHS)
def test_page_of_a_widget_does_not_shift(browser: "Browser", server: Server, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    pictures: list[Route] = []
    page.route("**/picture?*", lambda route: pictures.append(route))
    page.goto(f"{server.url}/widgets/acme/weather", wait_until="domcontentloaded")
    # The page is rendered before the picture arrives.
    page.evaluate(TWO_FRAMES)
    for picture in pictures:
        picture.continue_()
    page.wait_for_load_state("networkidle")
    shifts = page.evaluate(SHIFTS)
    context.close()
    assert len(pictures) == 1
    assert sum(value for value, _ in shifts) <= MAX_SHIFT, shifts
