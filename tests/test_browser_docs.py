"""/docs in a real browser: calls that are tried there reach this server and show its answers."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import bundled, document
from conftest import Server, create_demo, hold

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

from app import create_app
from catalog.documents import check_document
from catalog.store import writes

WEATHER = "/api/v1/widgets/acme/weather"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own, since installs are counted on it."""
    running = Server(create_demo(tmp_path_factory.mktemp("docs") / "docs.db"))
    yield running
    running.stop()


@pytest.fixture
def open_docs(browser: "Browser", own_server: Server) -> Iterator[Callable[..., "Page"]]:
    """Opens the documentation in a fresh profile; keyword arguments are its settings."""
    contexts = []

    def make(**settings: Any) -> "Page":
        contexts.append(browser.new_context(**{"base_url": own_server.url, **settings}))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.goto("/docs")
        return page

    yield make
    for context in contexts:
        context.close()


def form(page: "Page", operation: str) -> "Locator":
    return page.locator(f'form[data-answer="{operation}-answer"]')


def send(page: "Page", operation: str, /, **values: str) -> tuple[str, Any]:
    """Fill in the form of an operation, send it, and read what the page then shows."""
    for name, value in values.items():
        form(page, operation).get_by_label(name, exact=True).fill(value)
    form(page, operation).get_by_role("button", name="Send").click()
    answer = page.locator(f"#{operation}-answer")
    answer.and_(page.locator("[data-ok]:not([aria-busy])")).wait_for()
    outcome = answer.get_by_role("status").inner_text()
    return outcome, json.loads(answer.locator("pre").inner_text())


def test_a_search_that_is_tried_shows_the_version_for_an_sdk(
    open_docs: Callable[..., "Page"],
) -> None:
    outcome, answer = send(open_docs(), "searchWidgets", q="weather", compatSdk="1.4.0", limit="9")
    assert outcome == "200 OK from /api/v1/widgets/search?q=weather&compatSdk=1.4.0&limit=9"
    assert answer["total"] == len(answer["widgets"]) == 4
    compatible = answer["widgets"][0]["latestCompatibleVersion"]
    assert (compatible["version"], compatible["sha256Hash"][:8]) == ("2.6.0", "71bd1816")


def test_an_error_is_shown_with_its_sentence(open_docs: Callable[..., "Page"]) -> None:
    outcome, answer = send(open_docs(), "searchWidgets", page="0")
    assert outcome.startswith("400 ")
    assert answer == {"error": "page must be a whole number from 1 to 9007199254740991, not '0'."}


def test_an_install_that_is_tried_is_counted(
    open_docs: Callable[..., "Page"], own_server: Server
) -> None:
    before = json.loads(own_server.request("GET", WEATHER)[1])["widget"]["downloadCount"]
    outcome, answer = send(open_docs(), "countInstall", scope="acme", name="weather")
    assert (outcome, answer) == (f"200 OK from {WEATHER}", {"success": True})
    after = json.loads(own_server.request("GET", WEATHER)[1])["widget"]["downloadCount"]
    assert after == before + 1


def test_the_command_follows_what_is_typed(
    open_docs: Callable[..., "Page"], own_server: Server
) -> None:
    page = open_docs()
    command = page.locator("#getWidget-command")
    assert command.inner_text() == f"curl -s {own_server.url}{WEATHER}"
    form(page, "getWidget").get_by_label("name").fill("天 o'clock/&")
    path = "/api/v1/widgets/acme/%E5%A4%A9%20o%27clock%2F%26"
    assert command.inner_text() == f"curl -s {own_server.url}{path}"
    form(page, "searchWidgets").get_by_label("official").select_option("true")
    address = "/api/v1/widgets/search?q=weather&compatSdk=1.4.0&official=true&limit=1"
    assert page.locator("#searchWidgets-command").inner_text() == (
        f"curl -s '{own_server.url}{address}'"
    )


def test_every_call_that_needs_nothing_typed_answers(open_docs: Callable[..., "Page"]) -> None:
    page = open_docs()
    for operation in ("getRegistry", "getHealth", "getVersion", "getCliVersion", "getStats"):
        outcome, _ = send(page, operation)
        assert outcome.startswith("200 OK from /api/"), operation


def test_a_long_answer_is_cut_and_says_by_how_much(open_docs: Callable[..., "Page"]) -> None:
    page = open_docs()
    form(page, "getRegistry").get_by_label("scope").fill("ops")
    form(page, "getRegistry").get_by_role("button", name="Send").click()
    page.locator('#getRegistry-answer[data-ok="true"]').wait_for()
    shown = page.locator("#getRegistry-answer pre").inner_text()
    assert re.search(r"\n… and [0-9]+ characters more$", shown)
    assert len(shown) < 61_000


SHORT, LONG = b'"use strict"', "// 時計\n".encode() * 100_000


@pytest.fixture(scope="module")
def bundles_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog with one widget, whose bundles are held."""
    app = create_app({"DATABASE": tmp_path_factory.mktemp("bundles") / "catalog.db"})
    clock = document("acme/clock", bundled("1.0.0", SHORT), bundled("2.0.0", LONG))
    app.extensions["database"].create(writes.put_documents([check_document(clock)]))
    hold(app, SHORT, LONG)
    app.extensions["database"].close()
    with Server(app.config["DATABASE"]) as server:
        yield server


def test_a_bundle_that_is_not_held_is_an_error_with_its_sentence(
    open_docs: Callable[..., "Page"], bundles_server: Server
) -> None:
    page = open_docs(base_url=bundles_server.url)
    outcome, answer = send(page, "getBundle", version="2.6.0")
    assert outcome.startswith("404 ")
    assert outcome.endswith(" from /api/v1/widgets/acme/clock/2.6.0/bundle.js")
    assert answer == {"error": "No bundle of 'acme/clock@2.6.0' is held here."}


def test_a_bundle_that_is_tried_is_shown_as_it_is_as_far_as_it_is_short(
    open_docs: Callable[..., "Page"], bundles_server: Server
) -> None:
    page = open_docs(base_url=bundles_server.url)
    path = "/api/v1/widgets/acme/clock/{}/bundle.js"
    shown = {}
    for number in ("1.0.0", "2.0.0"):
        form(page, "getBundle").get_by_label("version").fill(number)
        command = page.locator("#getBundle-command").inner_text()
        assert command == f"curl -s {bundles_server.url}{path.format(number)}"
        form(page, "getBundle").get_by_role("button", name="Send").click()
        outcome = f"200 OK from {path.format(number)}"
        page.get_by_text(outcome, exact=True).wait_for(timeout=10_000)
        shown[number] = page.locator("#getBundle-answer pre").text_content()
    assert shown["1.0.0"] == '"use strict"'
    assert shown["2.0.0"] == "// 時計\n" * 10_000 + "\n… and more"


def test_a_server_that_is_gone_is_no_riddle(browser: "Browser", tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    with browser.new_context(base_url=server.url) as context:
        page = context.new_page()
        page.goto("/docs")
        server.stop()
        form(page, "getHealth").get_by_role("button", name="Send").click()
        page.locator('#getHealth-answer[data-ok="false"]').wait_for(timeout=10_000)
        outcome = page.locator("#getHealth-answer").get_by_role("status").inner_text()
    assert outcome == "The server did not answer."


def test_without_a_script_an_example_opens_as_a_link(
    open_docs: Callable[..., "Page"], own_server: Server
) -> None:
    page = open_docs(java_script_enabled=False)
    assert page.locator("form.try").count() == 9
    assert page.locator("form.try:visible").count() == 0
    page.get_by_role("link", name="Open this response").nth(1).click()
    assert page.url == f"{own_server.url}{WEATHER}"
    assert json.loads(page.locator("pre").inner_text())["latestVersion"] == "3.1.0"
