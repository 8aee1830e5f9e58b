"""What people come for, done in a real browser: by mouse, by keyboard and without scripts."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest
from browser_tools import expect_text, expect_title, expect_url, is_too_wide
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WEATHER = "/widgets/acme/weather"
INSTALLED = """acme/weather@2.6.1
acme/clock@1.0.0
acme/weather@3.1.0
acme/notes@9.9.9
acme/none@1.0.0"""
HEADING = (
    "5 installed versions: 1 yanked, 1 incompatible, 1 unknown, 1 not in this catalog, 1 outdated"
)
# No page has so many tab stops.
MAX_STOPS = 150
IS_FOCUSED = "(element) => element === document.activeElement"


class Visitor(NamedTuple):
    """A person who uses a page of a certain width."""

    page: "Page"
    url: str
    has_mouse: bool
    is_narrow: bool

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def press(self, target: "Locator") -> None:
        """Activate a link, a button or a summary."""
        if self.has_mouse:
            target.click()
        else:
            self._reach(target)
            self.page.keyboard.press("Enter")

    def write(self, label: str, text: str) -> None:
        field = self.page.get_by_label(label)
        if self.has_mouse:
            field.fill(text)
        else:
            self._reach(field)
            self.page.keyboard.type(text)

    def link(self, name: str) -> "Locator":
        return self.page.get_by_role("link", name=name, exact=True).first

    def _reach(self, target: "Locator") -> None:
        """Press Tab until the element has the focus."""
        # Found once: by its role, that is a search through the whole page.
        element = target.element_handle()
        for _ in range(MAX_STOPS):
            if element.evaluate(IS_FOCUSED):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{target} cannot be reached with Tab")


def find_the_weather_for_an_sdk(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/")
    visitor.write("Search widgets", "weather")
    if visitor.is_narrow:
        visitor.press(page.get_by_text("SDK, filters"))
    visitor.write("Your SDK version", "v1.4")
    # Enter submits a form; the button is before the field.
    page.get_by_label("Your SDK version").press("Enter")
    expect_text(page.locator("#status"), "4 widgets, with the newest version for SDK 1.4.0")
    expect_text(page.locator(".compatibility").first, "2.6.0 runs on SDK 1.4.0")
    visitor.press(visitor.link("Weather"))
    expect_text(page.locator("#install"), "Use 2.6.0, the newest for SDK 1.4.0")
    button = page.locator("a.primary")
    assert str(button.get_attribute("href")).endswith("/acme/weather/2.6.0/bundle.js")
    assert button.is_visible()


def see_why_the_newest_does_not_run(visitor: Visitor) -> None:
    visitor.open(f"{WEATHER}?compatSdk=1.4.0")
    visitor.press(visitor.page.locator(".panel").get_by_role("link", name="3.1.0"))
    banner = visitor.page.locator(".banner")
    expect_text(banner, "Does not run on SDK 1.4.0 (needs ^2.1.0). Use 2.6.0.")
    visitor.press(banner.get_by_role("link"))
    expect_title(visitor.page, "\u2068Weather\u2069 2.6.0 - Widget Catalog")
    expect_url(visitor.page, f"{visitor.url}{WEATHER}/2.6.0?compatSdk=1.4.0")


def check_five_widgets_for_updates(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/")
    visitor.press(visitor.link("Updates"))
    visitor.write("Installed versions", INSTALLED)
    visitor.write("Your SDK version", "1.4.0")
    visitor.press(page.get_by_role("button", name="Check for updates"))
    expect_text(page.locator("#result"), HEADING)
    assert page.locator("#installed").input_value() == INSTALLED
    row = page.get_by_role("row").filter(has_text="Incompatible")
    assert "3.1.0 does not run on SDK 1.4.0" in row.inner_text()
    # The yanked version is the first.
    visitor.press(page.get_by_role("link", name="What changes").first)
    expect_text(page.locator("h1"), "Weather: 2.6.1 to 2.6.0")


def see_what_changed_between_two_versions(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open(WEATHER)
    visitor.press(page.get_by_role("link", name="Changes from 3.0.0 to 3.1.0"))
    expect_text(page.locator("h1"), "Weather: 3.0.0 to 3.1.0")
    if visitor.has_mouse:
        page.get_by_label("From version").select_option("2.6.0")
    else:
        visitor.write("From version", "2.6.0")
    visitor.press(page.get_by_role("button", name="Compare"))
    expect_url(page, f"{visitor.url}{WEATHER}/compare?from=2.6.0&to=3.1.0")
    expect_text(page.locator(".changes .added dd"), "notifications")
    numbers = page.locator(".note .version").all_inner_texts()
    assert numbers == ["3.1.0", "3.0.0", "3.0.0-beta.1", "2.6.1"]


def see_all_widgets_of_a_scope(visitor: Visitor) -> None:
    visitor.open("/updates")
    visitor.write("Search widgets", "acme")
    visitor.press(visitor.page.get_by_role("button", name="Search"))
    visitor.press(visitor.link("Scope acme"))
    expect_text(visitor.page.locator("h1"), "acme")
    assert visitor.page.locator(".card").count() == 7


def try_a_request(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/")
    visitor.press(visitor.link("API docs"))
    target = "/api/v1/widgets/search?q=weather&compatSdk=1.4.0&limit=1"
    visitor.press(page.get_by_role("link", name="Response of this service: Search the catalog"))
    expect_url(page, visitor.url + target)


def see_whether_it_is_popular_and_maintained(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/")
    visitor.press(visitor.link("Weather"))
    expect_title(page, "\u2068Weather\u2069 - Widget Catalog")
    alive = page.locator(".alive").inner_text()
    assert alive.startswith("Last release ")
    assert alive.endswith("10 versions since 2023")
    if visitor.is_narrow:
        visitor.press(page.get_by_text("More about this widget"))
    expect_text(page.locator(".installs > p"), re.compile("^301,482 installs, "))


def see_that_the_newest_version_is_not_safe(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("/?q=thermostat")
    visitor.press(visitor.link("Thermostat"))
    banner = page.locator(".banner")
    expect_text(banner, re.compile(r"^2\.2\.0 was yanked: .*\s+If you have it, install 2\.1\.0\.$"))
    assert page.locator(".reason").first.is_visible()
    visitor.press(banner.get_by_role("link"))
    expect_title(page, "\u2068Thermostat\u2069 2.1.0 - Widget Catalog")


def learn_how_to_publish(visitor: Visitor) -> None:
    visitor.open(WEATHER)
    visitor.press(visitor.link("Publish"))
    command = f"widget-catalog --server {visitor.url} publish clock.json clock.js"
    expect_text(visitor.page.locator("#publish"), command)


TASKS: list[Callable[[Visitor], None]] = [
    find_the_weather_for_an_sdk,
    see_why_the_newest_does_not_run,
    check_five_widgets_for_updates,
    see_what_changed_between_two_versions,
    see_all_widgets_of_a_scope,
    try_a_request,
    see_whether_it_is_popular_and_maintained,
    see_that_the_newest_version_is_not_safe,
    learn_how_to_publish,
]


# Each way of use has one width: other tests examine every page on a narrow screen, and with scripts
# and without.
@pytest.mark.parametrize(("means", "width"), [("keyboard", 390), ("no scripts", 1280)])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_task_is_done(
    request: pytest.FixtureRequest,
    server: Server,
    task: Callable[[Visitor], None],
    means: str,
    width: int,
) -> None:
    has_scripts = means != "no scripts"
    page: Page = request.getfixturevalue("page" if has_scripts else "tab_without_scripts")
    page.set_viewport_size({"width": width, "height": 844})
    task(Visitor(page, server.url, means != "keyboard", width < 600))
    assert not is_too_wide(page)
    page.set_viewport_size({"width": 1280, "height": 900})
