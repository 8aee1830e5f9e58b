"""The pages of widgets, versions and scopes in a real browser, with scripts and without."""

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_url, is_too_wide
from builders import document, version
from conftest import Server, create_catalog
from web.test_browser_pages import LAYOUT_RULES, VIOLATIONS

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, ViewportSize

WEATHER = "/widgets/acme/weather"
NARROW: "ViewportSize" = {"width": 360, "height": 740}
WIDE: "ViewportSize" = {"width": 1440, "height": 900}
PHONE: "ViewportSize" = {"width": 390, "height": 844}
MARKDOWN = """# {title}

{text} **{text}** `code`, [{text}](https://example.com/{path})

- {text}
  1. {text}

> {text}

```
{code}
```
"""


def rows(page: "Page") -> "Locator":
    return page.locator(".versions .version:visible")


def test_button_to_download_is_on_the_first_screen(any_page: "Page", server: Server) -> None:
    for size in (WIDE, NARROW):
        any_page.set_viewport_size(size)
        any_page.goto(f"{server.url}{WEATHER}?compatSdk=1.4.0")
        box = any_page.locator("a.primary").bounding_box()
        assert box
        assert box["y"] + box["height"] < size["height"]
    # Everything else about the bundle is in another tab.
    assert not any_page.locator("#selected-sha").is_visible()
    any_page.get_by_text("Command line", exact=True).click()
    assert any_page.locator("#selected-sha").is_visible()


@pytest.mark.parametrize("query", ["", "?compatSdk=1.4.0"])
def test_widget_of_ten_versions_and_a_picture_is_three_and_a_half_screens_on_a_phone(
    any_page: "Page", server: Server, query: str
) -> None:
    any_page.set_viewport_size(PHONE)
    any_page.goto(f"{server.url}{WEATHER}{query}")
    assert any_page.evaluate("document.documentElement.scrollHeight") <= 3.5 * PHONE["height"]
    unfolded = 5 if query else 4
    assert rows(any_page).count() == unfolded
    assert any_page.get_by_text("Yanked: Shows Fahrenheit").is_visible()
    # The one to install is not folded.
    assert any_page.get_by_text("For SDK 1.4.0", exact=True).nth(1).is_visible() is bool(query)
    any_page.get_by_text(f"{10 - unfolded} older versions").click()
    assert rows(any_page).count() == 10
    any_page.set_viewport_size(WIDE)
    gap = any_page.evaluate(
        """() => document.querySelector(".older .versions").getBoundingClientRect().top
            - document.querySelector(".versions").getBoundingClientRect().bottom"""
    )
    assert gap == 0


def test_versions_are_filtered_by_toggles(any_page: "Page", server: Server) -> None:
    any_page.goto(f"{server.url}{WEATHER}?compatSdk=1.4.0")
    for name in ("For SDK 1.4.0", "Stable only"):
        any_page.get_by_role("link", name=name).click()
    expect_text(any_page.locator(".count"), "4 of 10 versions")
    assert rows(any_page).all_inner_texts() == ["2.6.0", "2.5.2", "2.5.0", "2.0.0"]
    any_page.get_by_role("link", name="For SDK 1.4.0").click()
    expect_url(any_page, f"{server.url}{WEATHER}?compatSdk=1.4.0&stable=true#versions")


def test_readme_installs_and_older_versions_are_printed(page: "Page", server: Server) -> None:
    page.set_viewport_size(PHONE)
    page.goto(server.url + WEATHER)
    parts = [page.locator(each) for each in (".readme", ".installs", ".older .versions")]
    assert [part.is_visible() for part in parts] == [False] * 3
    page.emulate_media(media="print")
    try:
        assert [part.is_visible() for part in parts] == [True] * 3
    finally:
        page.emulate_media(media="null")


def test_label_of_an_sdk_range_is_one_line_and_the_whole_range_is_its_title(
    page: "Page", server: Server
) -> None:
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{server.url}/widgets/acme-labs/whiteboard")
        for label in page.locator(".versions .label:visible").all():
            box = label.bounding_box()
            assert box
            assert box["height"] < 30
    ranges = page.locator(".versions .range")
    assert ranges.first.get_attribute("title") == ranges.first.text_content()


def test_commands_scroll_instead_of_breaking_words(page: "Page", server: Server) -> None:
    page.set_viewport_size(PHONE)
    page.goto(f"{server.url}{WEATHER}/2.6.0")
    page.get_by_text("Command line", exact=True).click()
    command = page.locator("#selected-fetch")
    assert command.evaluate("(e) => e.scrollWidth > e.clientWidth")
    assert command.evaluate("(e) => e.clientHeight") < 40
    assert not is_too_wide(page)


def test_file_is_saved_under_the_name_that_its_command_verifies(
    page: "Page", server: Server
) -> None:
    page.goto(f"{server.url}{WEATHER}?compatSdk=1.4.0")
    with page.expect_download() as download:
        page.locator("a.primary").click()
    name = download.value.suggested_filename
    assert name == "weather-2.6.0.js"
    assert name in str(page.locator("#selected-check").text_content())


@pytest.fixture(scope="module")
def notes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog with Markdown in several scripts, and long words."""
    texts = {"hebrew": "ערוץ שתיים", "japanese": "天気予報を追加しました", "long": "m" * 80}
    documents = [
        document(
            f"acme/{name}",
            version(
                releaseNotes=MARKDOWN.format(title=text, text=text, path=name, code=text * 9),
                yanked=True,
                yankedReason=text,
            ),
            version(f"0.9.0+{name}", publishedAt="2019-01-02T00:00:00Z", permissions=[text]),
            description=f"*{text}*",
            displayName=text,
        )
        for name, text in texts.items()
    ]
    path = create_catalog(tmp_path_factory.mktemp("notes") / "notes.db", *documents)
    running = Server(path)
    yield running
    running.stop()


def violations(page: "Page") -> list[str]:
    """Return what is not accessible in either colour scheme."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    page.emulate_media(color_scheme="dark")
    found: list[str] = page.evaluate(VIOLATIONS, {})
    page.emulate_media(color_scheme="light")
    return found + page.evaluate(VIOLATIONS, {"runOnly": LAYOUT_RULES})


@pytest.mark.parametrize("name", ["hebrew", "japanese", "long"])
def test_markdown_of_any_script_is_accessible_and_not_too_wide(
    page: "Page", notes_server: Server, name: str
) -> None:
    page.goto(f"{notes_server.url}/widgets/acme/{name}/1.0.0")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert page.locator(".notes li").count() == 2
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        assert not is_too_wide(page)
    # The scripts differ only in the layout.
    assert name != "hebrew" or violations(page) == []
    direction = page.locator(".notes p").first.evaluate("(e) => getComputedStyle(e).direction")
    assert direction == ("rtl" if name == "hebrew" else "ltr")
    page.goto(f"{notes_server.url}/widgets/acme/{name}/compare?from=0.9.0%2B{name}&to=1.0.0")
    assert not is_too_wide(page)
