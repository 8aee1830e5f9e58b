"""The example dashboard in a real browser, with a catalog on another origin."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_tools import expect_text
from conftest import ROOT, Server

from pytest_widget_catalog.catalog import Catalogs, WidgetCatalog

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLE = ROOT / "examples" / "dashboard"
MODULE = "export function mount(element) {{ element.textContent = 'Clock {version} runs'; }}\n"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    """The URL of the example, on a port of its own, which is another origin."""
    handler = functools.partial(QuietHandler, directory=EXAMPLE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogs]:
    running = Catalogs(tmp_path_factory.mktemp("dashboard"))
    yield running
    running.close()


@pytest.fixture
def catalog(catalogs: Catalogs) -> Iterator[WidgetCatalog]:
    """A catalog with one version of one widget."""
    with catalogs.serve(start="empty") as served:
        publish(served, "1.0.0")
        yield served


def publish(catalog: WidgetCatalog, version: str, sdk: str = "^1.0.0") -> None:
    bundle = MODULE.format(version=version)
    catalog.publish("acme/clock", version, sdk=sdk, bundle=bundle, displayName="Clock")


def open_dashboard(page: "Page", dashboard: str, catalog: WidgetCatalog | Server) -> None:
    """Open the example with an empty list of installed widgets."""
    page.goto(f"{dashboard}?catalog={catalog.url}&sdk=1.4.0")
    page.evaluate("localStorage.clear()")
    page.reload()


def add_clock(page: "Page") -> None:
    page.get_by_role("button", name="Add Clock").click()


def expect_clock(page: "Page", version: str) -> None:
    expect_text(page.locator("#grid section div"), f"Clock {version} runs")


def test_added_widget_runs_and_its_install_is_counted_once(
    page: "Page", dashboard: str, catalog: WidgetCatalog
) -> None:
    open_dashboard(page, dashboard, catalog)
    with page.expect_response(lambda response: response.request.method == "POST") as counted:
        add_clock(page)
    assert counted.value.status == 200
    expect_clock(page, "1.0.0")
    page.reload()
    expect_clock(page, "1.0.0")
    assert catalog.installs("acme/clock") == 1


def test_removed_widget_is_gone_after_a_reload(
    page: "Page", dashboard: str, catalog: WidgetCatalog
) -> None:
    open_dashboard(page, dashboard, catalog)
    add_clock(page)
    page.get_by_role("button", name="Remove").click()
    page.reload()
    page.get_by_role("button", name="Add Clock").wait_for()
    assert page.locator("#grid section").count() == 0


def test_damaged_bundle_is_refused(page: "Page", dashboard: str, catalog: WidgetCatalog) -> None:
    # The browser has no copy of this version from another test.
    publish(catalog, "1.5.0")
    catalog.damage(path="/api/v1/widgets/acme/clock/1.5.0/bundle.js")
    open_dashboard(page, dashboard, catalog)
    add_clock(page)
    status = page.locator("#status")
    status.filter(has_text="Clock cannot be added").wait_for()
    assert page.locator("#grid section").count() == 0
    assert catalog.installs("acme/clock") == 0


def test_update_is_explained_and_runs_after_a_reload(
    page: "Page", dashboard: str, catalog: WidgetCatalog
) -> None:
    open_dashboard(page, dashboard, catalog)
    add_clock(page)
    expect_clock(page, "1.0.0")
    publish(catalog, "1.1.0")
    page.reload()
    reason = "1.1.0 is the newest version above 1.0.0 that runs on SDK 1.4.0."
    page.get_by_text(reason).wait_for()
    page.get_by_role("button", name="Update to 1.1.0").click()
    expect_clock(page, "1.1.0")
    assert page.locator("#updates li").count() == 0


def test_yanked_version_still_runs_and_a_lower_one_is_offered(
    page: "Page", dashboard: str, catalog: WidgetCatalog
) -> None:
    publish(catalog, "1.1.0")
    open_dashboard(page, dashboard, catalog)
    add_clock(page)
    expect_clock(page, "1.1.0")
    catalog.yank("acme/clock@1.1.0", "Stops at midnight.")
    page.reload()
    expect_clock(page, "1.1.0")
    page.get_by_text("1.1.0 was yanked: Stops at midnight").wait_for()
    page.get_by_role("button", name="Go back to 1.0.0").click()
    expect_clock(page, "1.0.0")


def test_prerelease_is_not_offered(page: "Page", dashboard: str, catalog: WidgetCatalog) -> None:
    publish(catalog, "2.0.0-beta.1")
    open_dashboard(page, dashboard, catalog)
    expect_text(page.locator("#cards strong"), "Clock 1.0.0")


def test_busy_catalog_is_asked_again_after_the_time_that_it_states(
    page: "Page", dashboard: str, catalog: WidgetCatalog
) -> None:
    search = "/api/v1/widgets/search"
    open_dashboard(page, dashboard, catalog)
    page.get_by_role("button", name="Add Clock").wait_for()
    catalog.clear_requests()
    catalog.fail_next(2, status=503, retry_after=0, path=search)
    page.reload()
    page.get_by_role("button", name="Add Clock").wait_for()
    statuses = [each.status for each in catalog.requests if each.path == search]
    assert statuses == [503, 503, 200]


def test_real_widgets_of_the_demo_catalog_run(page: "Page", dashboard: str, server: Server) -> None:
    open_dashboard(page, dashboard, server)
    expected = {
        "World Clock": "Nairobi",
        "Calendar": "Stand-up",
        "Sticky Notes": "",
        "Tasks": "Water the plants",
        "Weather": "Sample Bay",
        "Headlines": "Library lends telescopes",
        "🍅 Focus Timer": "🍅 25:00",
        "🌙 Moon Phase": "Full moon",
        "Metrics Graph": "57 requests a second",
        "System Load": "Memory 67 %",
    }
    for name, text in expected.items():
        page.get_by_role("button", name=f"Add {name}", exact=True).click()
        cell = page.get_by_role("region", name=name, exact=True)
        cell.locator(":scope > div > *").first.wait_for()
        assert text in cell.inner_text(), name
    assert page.locator("#status").inner_text() == ""


def test_example_is_small_and_has_no_dependencies() -> None:
    files = [path for path in EXAMPLE.iterdir() if path.suffix != ".md"]
    assert sum(len(lines(path)) for path in files) < 200
    assert "import(" in (EXAMPLE / "dashboard.js").read_text("utf-8")
    assert "import {" not in (EXAMPLE / "dashboard.js").read_text("utf-8")


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()
