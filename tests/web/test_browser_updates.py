"""The updates page and cached files in a real browser."""

import json
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_url, recorded
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WEATHER, CLOCK = "acme/weather@2.6.1", "acme/clock@1.0.0"
LONG = {f"acme/none-{n}": "1.0.0" for n in range(400)}


def check(page: "Page", server: Server, text: str) -> None:
    page.goto(f"{server.url}/updates?compatSdk=1.4.0")
    page.get_by_label("Installed versions").fill(text)
    page.get_by_role("button", name="Check for updates").click()


@pytest.mark.parametrize(
    "lockfile",
    [
        [WEATHER, CLOCK],
        {"acme/weather": "2.6.1", "acme/clock": "1.0.0"},
        {"acme/weather": {"version": "2.6.1", "hash": "a/b"}, "acme/clock": {"version": "1.0.0"}},
        {"lockfileVersion": 1, "widgets": {WEATHER: {}, CLOCK: {"a": 1}}},
        {"pages": [{"id": 7, "widget": {"scope": "acme", "name": "weather", "version": "2.6.1"}},
                   {"scope": "acme", "name": "clock", "installed": "1.0.0"}]},
    ],
    ids=["list", "versions", "objects", "keys", "nested"],
)  # fmt: skip
def test_only_the_versions_of_a_lockfile_are_sent(
    page: "Page", server: Server, lockfile: object
) -> None:
    check(page, server, json.dumps(lockfile, indent=2))
    expect_text(page.locator("#result"), "1 update, 1 downgrade for 2 installed versions")
    assert page.locator("#installed").input_value() == f"{WEATHER}\n{CLOCK}"
    query = "&".join(f"installed={each.replace('/', '%2F').replace('@', '%40')}"
                     for each in (WEATHER, CLOCK))  # fmt: skip
    expect_url(page, f"{server.url}/updates?compatSdk=1.4.0&{query}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ', "This is not valid JSON: is it complete?"),
        ("{}", "This JSON names no version in a form like scope/name@version."),
        (
            json.dumps(
                {"lockfileVersion": 3, "packages": {"node_modules/a": {"version": "1.0.0"}}}
            ),
            "This is a lockfile of npm: it names packages of npm, not widgets.",
        ),
        ("x", "Line 1: 'x' is not scope/name@version, such as acme/clock@1.0.0."),
        ("", "The list of installed versions is missing."),
    ],
)
def test_text_without_versions_is_reported(
    page: "Page", server: Server, text: str, message: str
) -> None:
    check(page, server, text)
    expect_text(page.locator("#installed-error"), message)
    assert page.locator("#installed").get_attribute("aria-invalid") == "true"
    assert page.locator("#installed").input_value() == text


def test_lockfile_that_is_too_long_is_checked_in_part(page: "Page", server: Server) -> None:
    check(page, server, json.dumps(LONG))
    banners = page.locator(".banner")
    banners.first.wait_for()
    assert "further versions did not fit into the address" in banners.last.inner_text()
    assert len(page.url) < 6_200


@pytest.mark.parametrize("path", ["/", "/widgets/acme/weather"])
def test_second_visit_is_one_request(browser: "Browser", server: Server, path: str) -> None:
    with browser.new_context(base_url=server.url) as context:
        page = context.new_page()
        page.goto(path)
        page.goto("about:blank")
        with recorded(context, "response") as responses:
            page.goto(path)
        # Chromium loads the icon later, perhaps only on the second visit.
        downloaded = page.evaluate(
            "performance.getEntriesByType('resource').map((e) => [e.name, e.transferSize])"
            ".filter(([name, size]) => size > 0 && !name.endsWith('.svg'))"
        )
    documents = [each for each in responses if each.request.resource_type == "document"]
    assert [each.status for each in documents] in ([200], [304])
    assert downloaded == []
