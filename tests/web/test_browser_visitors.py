"""Twelve questions of a visitor, each answered in a real browser with at most three clicks."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from browser_tools import expect_text, expect_title, expect_url, is_too_wide
from conftest import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

MAX_CLICKS = 3
INSTALLED = "acme/weather@2.6.1\nacme/clock@2.2.0"


class Visitor:
    """A person who starts at the start page and counts clicks; a choice in a list is one too."""

    def __init__(self, page: "Page", url: str) -> None:
        self.page, self.url, self.clicks = page, url, 0
        page.goto(f"{url}/")

    def click(self, target: "Locator") -> None:
        self.clicks += 1
        target.click()

    def choose(self, label: str, value: str) -> None:
        self.clicks += 1
        self.page.get_by_label(label, exact=True).select_option(value)

    def open_widget(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name, exact=True).first)
        expect_text(self.page.locator("h1"), name)

    def open_filters(self) -> None:
        """On a phone the filters are behind a button."""
        summary = self.page.locator("#filters > summary")
        if summary.is_visible():
            self.click(summary)

    def card(self) -> str:
        """Return the name on the first card."""
        return self.page.locator(".card h2").first.inner_text()


def find_one_for_an_sdk(visitor: Visitor) -> None:
    visitor.open_filters()
    visitor.page.get_by_label("Your SDK version").fill("1.4")
    visitor.page.get_by_label("Your SDK version").press("Enter")
    expect_text(visitor.page.locator(".compatibility").first, "2.6.0 runs on SDK 1.4.0")
    visitor.open_widget("Weather")
    expect_text(visitor.page.locator("#install"), "Use 2.6.0, the newest for SDK 1.4.0")


def is_it_safe(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    permissions = visitor.page.locator(".permissions").first
    assert "talks to the internet" in permissions.inner_text()
    assert "notifications" in visitor.page.locator(".permissions .added").inner_text()
    assert permissions.is_visible()


def who_makes_it(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    visitor.click(visitor.page.locator(".by a"))
    expect_text(visitor.page.locator("h1"), "acme")
    totals = " ".join(visitor.page.locator(".totals").all_inner_texts())
    assert "7 widgets" in totals
    assert "official: maintained by the operator" in totals


def what_does_it_look_like(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    picture = visitor.page.get_by_alt_text("Screenshot of Weather")
    assert picture.is_visible()
    visitor.click(picture)
    visitor.page.wait_for_url("**/api/v1/widgets/acme/weather/picture?sha256=*")


def how_do_i_load_it(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    visitor.click(visitor.page.get_by_text("Dashboard", exact=True))
    code = visitor.page.locator("#tab-dashboard pre")
    assert code.is_visible()
    assert '"integrity": {' in code.inner_text()
    assert 'import("acme/weather")' in code.inner_text()


def what_changed(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    visitor.click(visitor.page.get_by_role("link", name="What changed since 3.0.0"))
    expect_text(visitor.page.locator("h1"), "Weather: 3.0.0 to 3.1.0")
    expect_text(visitor.page.locator(".changes .added dd"), "notifications")


def which_need_no_network(visitor: Visitor) -> None:
    visitor.open_filters()
    visitor.choose("Permissions", "-network")
    expect_text(visitor.page.locator("#heading"), "Widgets that do not use network")
    cards = visitor.page.locator(".card")
    assert cards.count() == cards.filter(has_text="No network access").count() > 0


def which_are_newest_and_most_popular(visitor: Visitor) -> None:
    assert visitor.card() == "Weather"
    visitor.choose("Sort by", "created")
    expect_url(visitor.page, f"{visitor.url}/?sort=created")
    expect_text(visitor.page.locator(".card h2").first, "Wall Message")


def is_it_maintained(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    alive = re.compile("^Last release .* ago, 10 versions since 2023$")
    expect_text(visitor.page.locator(".alive"), alive)


def what_replaces_a_withdrawn_version(visitor: Visitor) -> None:
    visitor.page.get_by_label("Search widgets").fill("thermostat")
    visitor.page.get_by_label("Search widgets").press("Enter")
    visitor.open_widget("Thermostat")
    banner = visitor.page.locator(".banner")
    expect_text(banner, re.compile(r"^2\.2\.0 was yanked: .*\s+.*install 2\.1\.0\.$"))
    visitor.click(banner.get_by_role("link"))
    expect_title(visitor.page, "\u2068Thermostat\u2069 2.1.0 - Widget Catalog")


def compare_two(visitor: Visitor) -> None:
    visitor.open_widget("Weather")
    visitor.click(visitor.page.get_by_role("link", name="Compare with Rain Radar"))
    expect_text(visitor.page.locator("h1"), "Weather and Rain Radar")
    rows = visitor.page.locator(".comparison tbody th").all_inner_texts()
    assert {"Installs", "Last release", "SDKs", "Permissions", "Licence", "Size"} <= {*rows}


def what_must_i_update(visitor: Visitor) -> None:
    visitor.click(visitor.page.get_by_role("link", name="Updates", exact=True))
    visitor.page.get_by_label("Installed versions").fill(INSTALLED)
    visitor.page.get_by_label("Your SDK version").fill("1.4")
    visitor.click(visitor.page.get_by_role("button", name="Check for updates"))
    expect_text(visitor.page.locator("#result"), re.compile("^2 installed versions: 1 yanked"))


TASKS: list[Callable[[Visitor], None]] = [
    *(find_one_for_an_sdk, is_it_safe, who_makes_it, what_does_it_look_like, how_do_i_load_it),
    *(what_changed, which_need_no_network, which_are_newest_and_most_popular, is_it_maintained),
    *(what_replaces_a_withdrawn_version, compare_two, what_must_i_update),
]


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_question_is_answered_in_three_clicks(
    page: "Page", server: Server, task: Callable[[Visitor], None], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    visitor = Visitor(page, server.url)
    task(visitor)
    assert visitor.clicks <= MAX_CLICKS
    assert not is_too_wide(page)
