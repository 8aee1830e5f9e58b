"""/docs in a real browser: the forms send requests to this server and show its responses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser_tools import create_catalog_with_bundles, expect_text
from builders import bundled, document
from conftest import Server, create_demo

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WEATHER = "/api/v1/widgets/acme/weather"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for this module only, since its tests count installs."""
    running = Server(create_demo(tmp_path_factory.mktemp("docs") / "docs.db"))
    yield running
    running.stop()


@pytest.fixture
def docs(page: "Page", own_server: Server) -> "Page":
    page.goto(f"{own_server.url}/docs")
    return page


def form(page: "Page", operation: str) -> "Locator":
    return page.locator(f'form[data-response="{operation}-response"]')


def send(page: "Page", operation: str, /, **values: str) -> tuple[str, Any]:
    """Fill in the form of an operation, send it, and return the outcome and body that it shows."""
    for name, value in values.items():
        form(page, operation).get_by_label(name, exact=True).fill(value)
    form(page, operation).get_by_role("button", name="Send").click()
    response = page.locator(f"#{operation}-response")
    response.and_(page.locator("[data-ok]:not([aria-busy])")).wait_for()
    outcome = response.get_by_role("status").inner_text()
    return outcome, json.loads(response.locator("pre").inner_text())


def test_error_is_shown_with_its_message(docs: "Page") -> None:
    outcome, body = send(docs, "searchWidgets", page="0")
    assert outcome.startswith("400 ")
    assert body == {"error": "page must be a whole number from 1 to 9007199254740991, not '0'."}


def test_install_is_counted(docs: "Page", own_server: Server) -> None:
    before = json.loads(own_server.request("GET", WEATHER)[1])["widget"]["downloadCount"]
    outcome, body = send(docs, "countInstall", scope="acme", name="weather")
    assert (outcome, body) == (f"200 OK from {WEATHER}", {"success": True})
    after = json.loads(own_server.request("GET", WEATHER)[1])["widget"]["downloadCount"]
    assert after == before + 1


def test_command_has_the_values_of_the_form(docs: "Page", own_server: Server) -> None:
    command = docs.locator("#getWidget-command")
    assert command.inner_text() == f"curl -s {own_server.url}{WEATHER}"
    form(docs, "getWidget").get_by_label("name").fill("天 o'clock/&")
    path = "/api/v1/widgets/acme/%E5%A4%A9%20o%27clock%2F%26"
    assert command.inner_text() == f"curl -s {own_server.url}{path}"
    form(docs, "searchWidgets").get_by_label("official").select_option("true")
    target = "/api/v1/widgets/search?q=weather&compatSdk=1.4.0&official=true&limit=1"
    assert docs.locator("#searchWidgets-command").inner_text() == (
        f"curl -s '{own_server.url}{target}'"
    )


SHORT, LONG = b'"use strict"', "// 時計\n".encode() * 100_000


@pytest.fixture(scope="module")
def bundles_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog with one widget, whose bundles are held."""
    clock = document("acme/clock", bundled("1.0.0", SHORT), bundled("2.0.0", LONG))
    path = tmp_path_factory.mktemp("bundles") / "catalog.db"
    with Server(create_catalog_with_bundles(path, clock, SHORT, LONG)) as server:
        yield server


def test_start_of_a_held_bundle_is_shown(page: "Page", bundles_server: Server) -> None:
    page.goto(f"{bundles_server.url}/docs")
    path = "/api/v1/widgets/acme/clock/{}/bundle.js"
    shown = {}
    for number in ("1.0.0", "2.0.0"):
        form(page, "getBundle").get_by_label("version").fill(number)
        command = page.locator("#getBundle-command").inner_text()
        assert command == f"curl -s {bundles_server.url}{path.format(number)}"
        form(page, "getBundle").get_by_role("button", name="Send").click()
        page.get_by_text(f"200 OK from {path.format(number)}", exact=True).wait_for()
        shown[number] = page.locator("#getBundle-response pre").text_content()
    assert shown["1.0.0"] == '"use strict"'
    assert shown["2.0.0"] == "// 時計\n" * 10_000 + "\n… and more"


def test_stopped_server_is_reported(page: "Page", tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    page.goto(f"{server.url}/docs")
    server.stop()
    form(page, "getHealth").get_by_role("button", name="Send").click()
    outcome = page.locator("#getHealth-response").get_by_role("status")
    expect_text(outcome, "The server did not respond.")


def test_examples_are_links_without_scripts(
    tab_without_scripts: "Page", own_server: Server
) -> None:
    page = tab_without_scripts
    page.goto(f"{own_server.url}/docs")
    assert page.locator("form.try").count() == 15
    assert page.locator("form.try:visible").count() == 0
    page.get_by_role("link", name="Open this response").nth(3).click()
    assert page.url == f"{own_server.url}{WEATHER}"
    assert json.loads(page.locator("pre").inner_text())["latestVersion"] == "3.1.0"
