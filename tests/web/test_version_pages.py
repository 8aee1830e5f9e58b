"""The page of one version of a widget, and the comparison of two versions."""

from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, element, elements

WEATHER = "/widgets/acme/weather"
CLOCK = "/widgets/acme/clock"
ClientWith = Callable[..., FlaskClient]
DAY = "2025-01-0{}T00:00:00.000Z".format


def links(page: str) -> dict[str, str]:
    return {link.text: link.attributes["href"] for link in elements(page, "a")}


def test_version_has_a_title_and_an_address_of_its_own(demo: FlaskClient) -> None:
    page = assert_page(demo.get(f"{WEATHER}/2.6.0?compatSdk=1.4.0"), 200)
    assert element(page, "title").text == "\u2068Weather\u2069 2.6.0 - Widget Catalog"
    assert element(page, "h1").text == "Weather 2.6.0"
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"http://localhost{WEATHER}/2.6.0"


def test_version_page_has_everything_about_the_version(client_with: ClientWith) -> None:
    entry = version(
        "1.0.0",
        permissions=["network"],
        releaseNotes="First *release*.",
        configVersion=2,
        license="MIT",
        displayName="Clock One",
    )
    page = client_with(document("acme/clock", entry)).get(f"{CLOCK}/1.0.0").text
    assert element(page, "h1").text == "Clock One 1.0.0"
    assert element(page, id="selected-fetch").text.startswith("curl -fgL -o clock-1.0.0.js https:")
    assert element(page, id="selected-sha").text == entry["sha256Hash"]
    assert element(page, "dl", class_="facts").text == (
        "Published 2 Jan 2025 SDK ^1.0.0 Bundle 1.2 kB Licence MIT Config version 2 "
        "Size 1 × 1 to 12 × 12"
    )
    assert element(page, "p", class_="permissions").text == "network"
    assert element(page, class_="notes").text == "First release."
    assert links(page)["This version as JSON"] == "/api/v1/widgets/acme/clock/1.0.0"


def test_version_links_to_its_neighbours(demo: FlaskClient) -> None:
    page = demo.get(f"{WEATHER}/2.6.0").text
    assert element(page, "nav", class_="neighbours").text == (
        "Before: 2.5.2 What changed since 2.5.2 After: 2.6.1 All versions"
    )
    assert links(page)["What changed since 2.5.2"] == f"{WEATHER}/compare?to=2.6.0&from=2.5.2"
    newest = element(demo.get(f"{WEATHER}/3.1.0").text, "nav", class_="neighbours").text
    assert newest == "Before: 3.0.0 What changed since 3.0.0 All versions"
    oldest = element(demo.get(f"{WEATHER}/1.0.0").text, "nav", class_="neighbours").text
    assert oldest == "After: 1.4.0 All versions"


@pytest.mark.parametrize("plus", ["+", "%2B", "%2b"])
def test_build_metadata_is_part_of_the_address(demo: FlaskClient, plus: str) -> None:
    path = "/widgets/community/currency-converter"
    page = assert_page(demo.get(f"{path}/1.4.0{plus}build.7"), 200)
    assert element(page, "h1").text == "Currency Converter 1.4.0+build.7"
    target = links(demo.get(path).text)["Page of 1.4.0+build.7"]
    assert element(demo.get(target).text, "h1").text == "Currency Converter 1.4.0+build.7"


@pytest.mark.parametrize("number", ["9.9.9", "latest", "1.0", "%00", "<b>", "v1.0.0"])
def test_unknown_version_is_a_404_page_that_links_to_the_widget(
    demo: FlaskClient, number: str
) -> None:
    response = demo.get(f"{WEATHER}/{number}")
    page = assert_page(response, 404)
    assert element(page, "h1").text == "Version not found"
    assert links(page)["All versions of Weather"] == f"{WEATHER}#versions"
    assert "ETag" not in response.headers


@pytest.mark.parametrize(
    "path", ["hidden/1.0.0", "hidden/compare?from=1.0.0&to=1.0.0", "none/1.0.0"]
)
def test_version_of_an_unlisted_or_missing_widget_is_404(
    client_with: ClientWith, path: str
) -> None:
    client = client_with(document("acme/hidden", version(), displayName="Secret", listed=False))
    page = assert_page(client.get(f"/widgets/acme/{path}"), 404)
    assert element(page, "h1").text == "Page not found"
    assert "Secret" not in page


YANKED = (
    "Version 2.6.1 was yanked. Shows Fahrenheit values labelled as Celsius when the locale changes "
    "at run time. Use 2.6.0. "
)


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("", "Use 2.6.0 instead (SDK >=1.4.0 <2.0.0)."),
        ("?compatSdk=2.1.0", "On SDK 2.1.0, use 3.1.0 instead."),
        ("?compatSdk=0.1", "There is no other version to use instead on SDK 0.1.0."),
    ],
    ids=["no SDK", "newer", "none"],
)
def test_yanked_version_links_to_the_one_to_use_instead(
    demo: FlaskClient, query: str, advice: str
) -> None:
    page = demo.get(f"{WEATHER}/2.6.1{query}").text
    assert element(page, class_="banner").text == YANKED + advice


def test_deprecated_version_links_to_one_that_is_not(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "acme/clock",
            version("3.0.0", publishedAt=DAY(3), sdkVersion="^2.0.0"),
            version("2.0.0", publishedAt=DAY(2), deprecationMessage="Use 3."),
            version("1.0.0", publishedAt=DAY(1), deprecationMessage="Use 2."),
        )
    )
    page = client.get(f"{CLOCK}/1.0.0").text
    text = "Version 1.0.0 is deprecated. Use 2. Use 3.0.0 instead (SDK ^2.0.0)."
    assert element(page, class_="banner").text == text
    assert links(page)["3.0.0"] == f"{CLOCK}/3.0.0"
    page = client.get(f"{CLOCK}/1.0.0?compatSdk=1.2.0").text
    assert links(page)["2.0.0"] == f"{CLOCK}/2.0.0"


def test_deprecated_latest_version_has_no_version_to_use_instead(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(deprecationMessage="Gone.")))
    text = "Version 1.0.0 is deprecated. Gone. There is no newer version to use instead."
    assert element(client.get(f"{CLOCK}/1.0.0").text, class_="banner").text == text


def test_version_without_problems_has_no_banner(demo: FlaskClient) -> None:
    assert elements(demo.get(f"{WEATHER}/2.6.0").text, class_="banner") == []


def test_comparison_shows_what_changed(client_with: ClientWith) -> None:
    older = version(
        "1.0.0",
        publishedAt=DAY(1),
        permissions=["audio", "storage"],
        bundleSize=20_000,
        configVersion=1,
        minSize={"w": 1, "h": 1},
    )
    newer = version(
        "2.0.0",
        publishedAt=DAY(2),
        permissions=["storage", "network"],
        bundleSize=25_000,
        configVersion=None,
        minSize={"w": 2, "h": 1},
        sdkVersion="",
        yanked=True,
    )
    client = client_with(document("acme/clock", older, newer))
    page = assert_page(client.get(f"{CLOCK}/compare?from=1.0.0&to=2.0.0"), 200)
    assert element(page, "h1").text == "Clock: 1.0.0 to 2.0.0"
    assert element(page, "dl", class_="changes").text == (
        "Added network Removed audio Unchanged storage"
    )
    changed = [row.text for row in elements(page, "tr", class_="is-changed")]
    assert changed == [
        "SDK ^1.0.0 any",
        "Bundle 20 kB 25 kB +5 kB (+25 %)",
        "Minimum size 1 × 1 2 × 1",
        "Config version 1 none",
        "Published 1 Jan 2025 2 Jan 2025",
        "State available yanked",
    ]
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"http://localhost{CLOCK}/compare?to=2.0.0&from=1.0.0"
    reverse = client.get(f"{CLOCK}/compare?from=2.0.0&to=1.0.0").text
    assert "25 kB 20 kB −5 kB (−20 %)" in element(reverse, "table").text


def test_two_equal_versions_have_no_differences(demo: FlaskClient) -> None:
    page = demo.get(f"{WEATHER}/compare?from=2.6.0&to=2.6.0").text
    assert elements(page, "tr", class_="is-changed") == []


@pytest.mark.parametrize(
    ("query", "status", "messages"),
    [
        ("", 200, []),
        ("?from=2.6.0", 400, ["Choose one."]),
        ("?from=2.6.0&to=9.9.9", 400, ["There is no version '9.9.9'."]),
        ("?from=latest&to=x", 400, ["There is no version 'latest'.", "There is no version 'x'."]),
    ],
)
def test_form_names_the_versions_that_are_missing(
    demo: FlaskClient, query: str, status: int, messages: list[str]
) -> None:
    page = assert_page(demo.get(f"{WEATHER}/compare{query}"), status)
    assert [each.text for each in elements(page, class_="field-error")] == messages
    assert elements(page, "table") == []
    assert len(elements(page, "select")) == 2


def test_chosen_version_is_an_option_if_there_are_many(client_with: ClientWith) -> None:
    versions = [
        version(f"1.0.{n}", publishedAt=f"2025-01-01T00:00:{n % 60:02}Z") for n in range(150)
    ]
    client = client_with(document("acme/clock", *versions))
    page = client.get(f"{CLOCK}/compare?from=1.0.0&to=1.0.149").text
    chosen = [each.text for each in elements(page, "option") if "selected" in each.attributes]
    assert chosen == ["1.0.0", "1.0.149"]
    assert len(elements(page, "option")) == 201
