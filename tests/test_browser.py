"""The pages in a real browser: found, searched, filtered and read, with a script and without."""

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from builders import document, version
from conftest import Server

from catalog.documents import check_document
from catalog.store import writes
from catalog.store.database import Database

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

WEATHER = "/widgets/acme/weather"
HASH = "71bd1816efd9647c1d20eb6d84275476e18696d92cb0ee5784226998465066d7"
FETCH = "curl -fgL -o weather-2.6.0.js https://cdn.example.com/acme/weather/2.6.0.js"
PATHS = {
    "browse": "/",
    "browse for an SDK": "/?q=weather&compatSdk=1.4.0",
    "second page": "/?page=2",
    "refused": "/?compatSdk=1.4&official=x&page=0",
    "nothing found": "/?q=nothing+such",
    "widget": f"{WEATHER}?compatSdk=1.4.0",
    "sixty versions": "/widgets/ops/metrics-graph",
    "right to left": "/widgets/community/prayer-times",
    "all yanked": "/widgets/acme-labs/voice-memo",
    "no versions": "/widgets/acme-labs/gesture-pad",
    "missing": "/widgets/acme/none",
    "docs": "/docs",
}
VIOLATIONS = """
axe.run().then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`)))
"""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def open_page(browser: "Browser", server: Server) -> Iterator[Callable[..., "Page"]]:
    """Opens a path of the demo catalog in a fresh profile; keyword arguments are its settings."""
    contexts = []

    def make(path: str, **settings: Any) -> "Page":
        settings = {"base_url": server.url, "viewport": {"width": 1280, "height": 900}, **settings}
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.goto(path)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def odd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A catalog of names and texts that try to break the page."""
    long = version("1.0.0-" + "alpha." * 30 + "1", sdkVersion="^1.0.0 || " * 24 + "2")
    hostile = version(releaseNotes=HOSTILE, license=HOSTILE, permissions=[HOSTILE])
    huge = version(minSize={"w": 0, "h": 0}, maxSize={"w": 1000, "h": 1})
    ages = [version(f"1.0.{n}", publishedAt=f"{1900 + n}-01-01T00:00:00Z") for n in range(99)]
    documents = [
        document("acme/" + "long-name" * 20, long, displayName="W" * 3000, description="m" * 10**6),
        document("acme/hostile", hostile, displayName=HOSTILE, description=HOSTILE),
        document("acme/override", huge, displayName="abc\u202edef", description="one \u202etwo"),
        document("acme/ages", *ages, downloadCount=2**53 - 1, displayName="ערוץ 2"),
        document("acme/marks", version(deprecationMessage="Old."), isOfficial=True),
    ]
    database = Database(tmp_path_factory.mktemp("odd") / "odd.db")
    database.create(writes.put_documents(map(check_document, documents)))
    running = Server(database.path)
    yield running
    running.stop()


def heading(page: "Page") -> "Locator":
    return page.get_by_role("heading", level=1)


def cards(page: "Page") -> "Locator":
    return page.locator(".card")


def expect_text(locator: "Locator", text: str) -> None:
    """Wait until the element says just this."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text, timeout=10_000)


def expect_title(page: "Page", title: str) -> None:
    """Wait until the page is called just this."""
    from playwright.sync_api import expect

    expect(page).to_have_title(title, timeout=10_000)


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without"])
def test_a_newcomer_finds_the_version_for_an_sdk_with_its_hash_and_command(
    open_page: Callable[..., "Page"], script: bool
) -> None:
    page = open_page("/", java_script_enabled=script)
    page.get_by_label("Search").fill("weather")
    page.get_by_label("Your SDK version").fill("1.4.0")
    page.get_by_role("button", name="Search").click()
    expect_text(page.get_by_role("status"), "4 widgets, with the newest version for SDK 1.4.0")
    assert cards(page).first.locator(".fit").inner_text() == "2.6.0 runs on SDK 1.4.0"
    page.get_by_role("link", name="Weather", exact=True).click()
    expect_text(page.locator("#get"), "Newest for SDK 1.4.0: 2.6.0")
    assert page.locator("#chosen-sha").inner_text() == HASH
    assert page.locator("#chosen-fetch").inner_text() == FETCH
    page.go_back()
    expect_text(page.get_by_role("status"), "4 widgets, with the newest version for SDK 1.4.0")
    assert page.get_by_label("Search").input_value() == "weather"


def test_results_follow_the_typing_and_leave_focus_and_history_alone(
    open_page: Callable[..., "Page"], server: Server
) -> None:
    page = open_page("/")
    field = page.get_by_label("Search")
    field.press_sequentially("rain rada", delay=20)
    expect_text(page.get_by_role("status"), "1 widget")
    field.press_sequentially("r", delay=20)
    expect_title(page, "\u2068rain radar\u2069 - Widget Catalog")
    assert page.url == f"{server.url}/?q=rain+radar"
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.evaluate("document.activeElement.selectionStart") == len("rain radar")
    page.go_back()  # the whole word is one step
    expect_text(page.get_by_role("status"), "33 widgets, page 1 of 2")
    assert (page.url, field.input_value()) == (f"{server.url}/", "")
    page.go_forward()
    expect_text(page.get_by_role("status"), "1 widget")
    assert field.input_value() == "rain radar"


def test_choosing_from_a_list_shows_the_results_at_once(
    open_page: Callable[..., "Page"], server: Server
) -> None:
    page = open_page("/?page=2")
    page.get_by_label("Scope").select_option("acme")
    expect_text(page.get_by_role("status"), "7 widgets")
    page.get_by_label("Made by").select_option("Not official")
    expect_text(page.get_by_role("status"), "No widget found.")
    assert page.url == f"{server.url}/?scope=acme&official=false"
    page.get_by_role("link", name="Show all widgets").click()
    expect_text(page.get_by_role("status"), "33 widgets, page 1 of 2")


def test_half_an_sdk_version_is_no_mistake_until_it_is_sent(
    open_page: Callable[..., "Page"],
) -> None:
    page = open_page("/")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    field, message = page.get_by_label("Your SDK version"), page.locator("#compatSdk-error")
    field.press_sequentially("1.4", delay=200)  # slow enough to be asked for, if it were
    field.press("Enter")
    expect_text(message, "An SDK version is three numbers without a v, such as 1.4.0.")
    assert message.is_visible()
    assert (field.input_value(), field.get_attribute("aria-invalid")) == ("1.4", "true")
    field.press_sequentially(".0", delay=200)
    expect_text(cards(page).first.locator(".fit"), "2.6.0 runs on SDK 1.4.0")
    asked = [url.partition("?compatSdk=")[2] for url in requests if "?" in url]
    assert asked == ["1.4", "1.4.0"]
    assert message.is_hidden()
    assert field.get_attribute("aria-invalid") is None


def test_half_a_prerelease_is_no_mistake_either(open_page: Callable[..., "Page"]) -> None:
    page = open_page("/?q=weather")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_label("Your SDK version").press_sequentially("2.0.0-beta.1", delay=200)
    expect_text(
        page.get_by_role("status"), "4 widgets, with the newest version for SDK 2.0.0-beta.1"
    )
    asked = {url.partition("&compatSdk=")[2] for url in requests if "?" in url}
    assert {"2.0.0", "2.0.0-beta.1"} <= asked
    assert not {"2.0.0-", "2.0.0-beta."} & asked


def test_a_slash_goes_to_the_search_field(open_page: Callable[..., "Page"]) -> None:
    page = open_page("/?q=clock")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("a/b")
    assert page.get_by_label("Search").input_value() == "a/b"


def test_the_first_key_stop_skips_to_the_content(open_page: Callable[..., "Page"]) -> None:
    page = open_page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("script", [True, False], ids=["with script", "without"])
def test_pages_lead_through_all_widgets(open_page: Callable[..., "Page"], script: bool) -> None:
    page = open_page("/", java_script_enabled=script)
    seen = cards(page).locator("h2").all_inner_texts()
    page.get_by_role("link", name="Page 2").click()
    expect_text(page.get_by_role("status"), "33 widgets, page 2 of 2")
    seen += cards(page).locator("h2").all_inner_texts()
    assert len(set(seen)) == 33
    page.go_back()
    expect_text(page.get_by_role("status"), "33 widgets, page 1 of 2")


def test_a_copy_button_copies_and_says_so(open_page: Callable[..., "Page"]) -> None:
    page = open_page(WEATHER, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the SHA-256 of 3.1.0").first.click()
    expect_text(page.locator("#copied"), "Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#chosen-sha").inner_text()


def test_without_a_script_no_button_promises_to_copy(open_page: Callable[..., "Page"]) -> None:
    page = open_page(WEATHER, java_script_enabled=False)
    assert page.locator("button.copy").count() > 10
    assert page.locator("button.copy:visible").count() == 0


def test_notes_and_hash_of_an_old_version_unfold(open_page: Callable[..., "Page"]) -> None:
    page = open_page(WEATHER, java_script_enabled=False)
    row = page.get_by_role("row").filter(has=page.get_by_text("2.6.0", exact=True))
    assert row.get_by_text(HASH, exact=True).is_hidden()
    row.locator("summary").click()
    assert row.get_by_text(HASH, exact=True).is_visible()


def test_a_missing_widget_leads_back_to_the_catalog(open_page: Callable[..., "Page"]) -> None:
    page = open_page("/widgets/acme/none")
    expect_text(heading(page), "There is nothing here")
    page.get_by_label("Look for a widget").fill("clock")
    page.get_by_role("button", name="Search").click()
    expect_text(page.get_by_role("status"), "1 widget")


def test_the_pages_are_dark_where_that_is_preferred(open_page: Callable[..., "Page"]) -> None:
    lightness = {}
    for scheme in ("light", "dark"):
        page = open_page("/", color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness[scheme] = sum(map(int, colour.strip("rgb()").split(",")))
    assert lightness["light"] > 600
    assert lightness["dark"] < 100


def too_wide(page: "Page") -> bool:
    return page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_no_page_is_wider_than_a_narrow_screen(open_page: Callable[..., "Page"]) -> None:
    page = open_page("/", viewport={"width": 320, "height": 640})
    wide = []
    for name, path in PATHS.items():
        page.goto(path)
        wide += [name] if too_wide(page) else []
    assert wide == []


def test_odd_texts_stay_in_their_place(
    open_page: Callable[..., "Page"], odd_server: Server
) -> None:
    for width in (320, 1280):
        page = open_page("/", base_url=odd_server.url, viewport={"width": width, "height": 640})
        page.on("dialog", lambda dialog: pytest.fail(f"a text ran: {dialog.message}"))
        links = [link.get_attribute("href") for link in cards(page).locator("h2 a").all()]
        assert len(links) == 5
        assert not too_wide(page)
        assert HOSTILE[:80] in page.locator("#results").inner_text()
        for link in links:
            page.goto(str(link))
            assert not too_wide(page)
    page.goto("/widgets/acme/override")
    # What stands after the name, in its own place from left to right, is not turned round.
    assert page.locator(".path").inner_text() == "acme/override"
    assert page.locator("h1 bdi").evaluate("(e) => getComputedStyle(e).unicodeBidi") == "isolate"


def test_a_name_from_right_to_left_stands_beside_its_icon(open_page: Callable[..., "Page"]) -> None:
    page = open_page(PATHS["right to left"])
    icon, name = (
        page.locator(f"header.widget {each}").bounding_box() for each in (".face", "h1 bdi")
    )
    assert icon
    assert name
    assert 0 <= name["x"] - (icon["x"] + icon["width"]) < 40


def test_marks_leave_room_for_the_name_on_a_narrow_screen(
    open_page: Callable[..., "Page"], odd_server: Server
) -> None:
    narrow = {"width": 320, "height": 640}
    page = open_page("/?q=marks", base_url=odd_server.url, viewport=narrow)
    card = cards(page).filter(has_text="Deprecated")
    assert card.locator(".badge").count() == 2
    box = card.locator(".names").bounding_box()
    assert box
    assert box["width"] > 160


def test_every_request_goes_to_the_service_and_no_policy_is_broken(
    browser: "Browser", server: Server
) -> None:
    with browser.new_context(base_url=server.url) as context:
        requests: list[str] = []
        refused: list[str] = []
        context.on("request", lambda request: requests.append(request.url))
        context.on("console", lambda message: refused.append(message.text))
        page = context.new_page()
        for path in PATHS.values():
            page.goto(path)
        page.goto("/")
        page.get_by_label("Search").press_sequentially("clock", delay=20)
        expect_text(page.get_by_role("status"), "1 widget")
    assert len(requests) > 2 * len(PATHS)
    assert [url for url in requests if not url.startswith(f"{server.url}/")] == []
    assert [text for text in refused if "Content Security Policy" in text] == []


def test_a_page_can_be_read_without_its_style(open_page: Callable[..., "Page"]) -> None:
    page = open_page("about:blank")
    page.route("**/*.css", lambda route: route.abort())
    page.goto(f"{WEATHER}?compatSdk=1.4.0")
    assert page.locator("#chosen-sha").is_visible()
    sizes = [page.locator("header svg").nth(n).bounding_box() for n in range(2)]
    assert all(box and box["width"] <= 48 for box in sizes)


@pytest.fixture(scope="session")
def axe(browser: "Browser") -> str:
    """The source of axe-core, as its package brings it."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


# Sixty versions are looked at no better than ten, in five times the time.
@pytest.mark.parametrize("name", sorted(PATHS.keys() - {"sixty versions"}))
def test_axe_finds_nothing(open_page: Callable[..., "Page"], axe: str, name: str) -> None:
    page = open_page(PATHS[name], color_scheme="light")
    page.evaluate(axe)
    found = page.evaluate(VIOLATIONS)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 320, "height": 640})
    assert found + page.evaluate(VIOLATIONS) == []
