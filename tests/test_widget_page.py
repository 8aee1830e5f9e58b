"""The page of a widget: the version to install with its hash and command, and all versions."""

import time
from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, element, elements

WEATHER = "/widgets/acme/weather"


def test_widget_page_shows_the_latest_compatible_version_with_hash_and_command(
    demo: FlaskClient,
) -> None:
    page = assert_page(demo.get(f"{WEATHER}?compatSdk=1.4.0"), 200)
    versions = demo.get("/api/v1/widgets/acme/weather").json["versions"]
    (compatible,) = (entry for entry in versions if entry["version"] == "2.6.0")
    assert element(page, "h2", id="install").text == "Newest for SDK 1.4.0: 2.6.0"
    assert element(page, id="selected-sha").text == compatible["sha256Hash"]
    assert element(page, id="selected-sri").text.startswith("sha256-")
    assert element(page, id="selected-fetch").text == (
        "curl -fgL -o weather-2.6.0.js http://localhost/api/v1/widgets/acme/weather/2.6.0/bundle.js"
    )
    assert compatible["sha256Hash"] in element(page, id="selected-check").text


def test_widget_page_without_an_sdk_shows_the_latest_version(demo: FlaskClient) -> None:
    page = demo.get(WEATHER).text
    assert element(page, "h2", id="install").text == "Latest version: 3.1.0"
    assert elements(page, class_="compatible") == []


def test_widget_that_does_not_run_on_the_sdk_has_no_command(demo: FlaskClient) -> None:
    page = assert_page(demo.get(f"{WEATHER}?compatSdk=0.1.0"), 200)
    assert element(page, "h2", id="install").text == "No version runs on SDK 0.1.0"
    assert elements(page, id="selected-fetch") == []
    assert "https://cdn.example.com/acme/weather/3.1.0.js" not in [
        link.attributes["href"] for link in elements(page, "a")
    ]


def test_invalid_sdk_is_reported_beside_its_field_and_the_widget_still_shown(
    demo: FlaskClient,
) -> None:
    page = assert_page(demo.get(f"{WEATHER}?compatSdk=two"), 400)
    assert element(page, id="compatSdk").attributes["value"] == "two"
    assert "such as 1.4.0" in element(page, id="compatSdk-error").text
    assert element(page, "h2", id="install").text == "Latest version: 3.1.0"


@pytest.mark.parametrize("path", ["acme/weather", "ops/metrics-graph", "hearth/lights"])
def test_table_has_every_version_newest_first(demo: FlaskClient, path: str) -> None:
    versions = demo.get(f"/api/v1/widgets/{path}").json["versions"]
    page = demo.get(f"/widgets/{path}").text
    headings = [heading.text.split()[0] for heading in elements(page, "th", scope="row")]
    assert headings == [entry["version"] for entry in versions]
    for index, entry in enumerate(versions, start=1):
        assert element(page, id=f"version-{index}-sha").text == entry["sha256Hash"]
    notes = [note.text for note in elements(page, class_="notes")]
    assert notes == [
        " ".join(entry["releaseNotes"].split()) for entry in versions if entry["releaseNotes"]
    ]


def test_table_has_badges_for_the_state_of_a_version(
    client_with: Callable[..., FlaskClient],
) -> None:
    day = "2025-01-0{}T00:00:00Z".format
    client = client_with(
        document(
            "acme/clock",
            version("2.0.0", publishedAt=day(5), yanked=True, yankedReason="Loses time."),
            version("2.0.0-rc.1", publishedAt=day(4), yanked=True),
            version("1.1.0", publishedAt=day(3)),
            version("1.0.0", publishedAt=day(2), deprecationMessage="Old."),
            version("0.1.0", publishedAt=day(1), sdkVersion="^0.1.0"),
        )
    )
    page = client.get("/widgets/acme/clock?compatSdk=1.0.0").text
    assert [heading.text for heading in elements(page, "th", scope="row")] == [
        "2.0.0 Yanked",
        "2.0.0-rc.1 Prerelease Yanked",
        "1.1.0 Latest Runs on SDK 1.0.0",
        "1.0.0 Runs on SDK 1.0.0 Deprecated",
        "0.1.0",
    ]
    reasons = [reason.text for reason in elements(page, class_="reason")]
    assert reasons == ["Loses time.", "Yanked without a stated reason.", "Old."]


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([], "Nothing to install yet. No version has been published."),
        ([version(yanked=True)], "Nothing to install. Every version has been yanked."),
        ([version(deprecationMessage="Use b.")], "Version 1.0.0 is deprecated. Use b."),
        ([version(deprecationMessage="")], "Version 1.0.0 is deprecated."),
    ],
    ids=["none", "yanked", "deprecated", "deprecated without a message"],
)
def test_banner_says_why_not_to_install(
    client_with: Callable[..., FlaskClient], versions: list[dict[str, object]], text: str
) -> None:
    page = client_with(document("acme/clock", *versions)).get("/widgets/acme/clock").text
    assert element(page, class_="banner").text == text


def test_banner_reports_a_deprecated_latest_version_if_another_is_selected(
    client_with: Callable[..., FlaskClient],
) -> None:
    latest = version("2.0.0", sdkVersion="^2.0.0", deprecationMessage="Use b.")
    older = version("1.0.0", sdkVersion="^1.0.0", publishedAt="2024-01-01T00:00:00Z")
    client = client_with(document("acme/clock", latest, older))
    page = client.get("/widgets/acme/clock?compatSdk=1.4.0").text
    assert element(page, "h2", id="install").text == "Newest for SDK 1.4.0: 1.0.0"
    assert element(page, class_="banner").text == "Version 2.0.0 is deprecated. Use b."


def test_widget_without_problems_has_no_banner(demo: FlaskClient) -> None:
    assert elements(demo.get(WEATHER).text, class_="banner") == []


def test_facts_have_exact_values_in_titles(
    client_with: Callable[..., FlaskClient],
) -> None:
    latest = version(
        bundleSize=20_300,
        license="MIT",
        permissions=["network", "storage"],
        minSize={"w": 2, "h": 1},
        maxSize={"w": 8, "h": 6},
        publishedAt="2026-08-04T17:25:23.651Z",
        sdkVersion=">=1.4.0 <2.0.0",
    )
    client = client_with(document("acme/clock", latest, downloadCount=1234))
    page = client.get("/widgets/acme/clock").text
    facts = element(page, "dl", class_="facts").text
    assert facts == (
        "Installs 1,234 Created 4 Aug 2026 Published 4 Aug 2026 SDK >=1.4.0 <2.0.0 "
        "Bundle 20.3 kB Licence MIT Permissions network storage Size 2 × 1 to 8 × 6"
    )
    titles = {node.attributes["title"] for node in elements(page) if "title" in node.attributes}
    assert {"1234", "20,300 bytes", "2026-08-04T17:25:23.651Z"} <= titles
    assert element(page, "rect", class_="min").attributes["width"] == "20"
    assert element(page, "rect", class_="max").attributes["height"] == "60"
    assert elements(page, "a", href="/api/v1/widgets/acme/clock")[0].text == "This widget as JSON"


def test_drawings_have_different_fills_without_css(demo: FlaskClient) -> None:
    page = demo.get(WEATHER).text
    fills = {
        shape.attributes["class"]: shape.attributes.get("fill")
        for shape in elements(page)
        if shape.tag in ("rect", "path") and "class" in shape.attributes
    }
    assert fills["slot"] == fills["lines"] == "none"
    assert len({fills["min"], fills["max"]}) == len({fills["available"], fills["yanked"]}) == 2


@pytest.mark.parametrize("path", ["acme/none", "acme/hidden", "none/none", "acme/%00", "a%2Fb/c"])
def test_missing_or_unlisted_widget_is_a_404_page_with_a_search_form(
    client_with: Callable[..., FlaskClient], path: str
) -> None:
    client = client_with(document("acme/hidden", version(), displayName="Secret", listed=False))
    page = assert_page(client.get(f"/widgets/{path}"), 404)
    assert element(page, "h1").text == "Page not found"
    assert "Secret" not in page
    assert element(page, "form").attributes["action"] == "/"


def test_sdk_ranges_are_not_parsed_for_a_page(client_with: Callable[..., FlaskClient]) -> None:
    long_range = " || ".join(f"~{number}.0.{number}" for number in range(250))
    versions = [version(f"1.0.{n}", sdkVersion=f"{long_range} || {n}.7.0") for n in range(40)]
    client = client_with(document("acme/clock", *versions))
    page = "/widgets/acme/clock?compatSdk="
    client.get(page + "1.0.1")
    start = time.thread_time()
    text = client.get(page + "7.7.0").text
    assert text.count("Runs on SDK 7.7.0") == 1
    # Parsing 40 of these ranges takes about 0.4 seconds.
    assert time.thread_time() - start < 0.2
