"""The page of a widget: the version to install with its hash and command, and all versions."""

import time
from collections.abc import Callable

import pytest
from builders import Json, document, version
from flask.testing import FlaskClient
from markup import assert_page, element, elements

WEATHER = "/widgets/acme/weather"
ClientWith = Callable[..., FlaskClient]


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


def rows(page: str) -> list[str]:
    """Return the first column of the table of versions."""
    return [cell.text for cell in elements(page, class_="number")]


@pytest.mark.parametrize("path", ["acme/weather", "ops/metrics-graph", "hearth/lights"])
def test_table_has_every_version_newest_first(demo: FlaskClient, path: str) -> None:
    versions = demo.get(f"/api/v1/widgets/{path}").json["versions"]
    page = demo.get(f"/widgets/{path}").text
    assert [row.split()[0] for row in rows(page)] == [entry["version"] for entry in versions]
    for index, entry in enumerate(versions, start=1):
        assert element(page, id=f"version-{index}-sha").text == entry["sha256Hash"]
    notes = [note.text for note in elements(page, class_="notes")]
    assert notes == [
        " ".join(entry["releaseNotes"].split()) for entry in versions if entry["releaseNotes"]
    ]


DAY = "2025-01-0{}T00:00:00Z".format
STATES = document(
    "acme/clock",
    version("2.0.0", publishedAt=DAY(5), yanked=True, yankedReason="Loses time."),
    version("2.0.0-rc.1", publishedAt=DAY(4), yanked=True),
    version("1.2.0-beta.1", publishedAt=DAY(3)),
    version("1.1.0", publishedAt=DAY(3)),
    version("1.0.0", publishedAt=DAY(2), deprecationMessage="Old."),
    version("0.1.0", publishedAt=DAY(1), sdkVersion="^0.1.0"),
)


def test_table_has_badges_for_the_state_of_a_version(client_with: ClientWith) -> None:
    page = client_with(STATES).get("/widgets/acme/clock?compatSdk=1.0.0").text
    assert rows(page) == [
        "2.0.0 Yanked",
        "2.0.0-rc.1 Prerelease Yanked",
        "1.2.0-beta.1 Latest Runs on SDK 1.0.0 Prerelease",
        "1.1.0 Runs on SDK 1.0.0",
        "1.0.0 Runs on SDK 1.0.0 Deprecated",
        "0.1.0",
    ]
    reasons = [reason.text for reason in elements(page, class_="reason")]
    assert reasons == ["Yanked: Loses time.", "Yanked without a stated reason.", "Deprecated: Old."]


@pytest.mark.parametrize(
    ("query", "numbers", "count"),
    [
        ("", ["2.0.0", "2.0.0-rc.1", "1.2.0-beta.1", "1.1.0", "1.0.0", "0.1.0"], "6 versions"),
        ("stable=true", ["1.1.0", "1.0.0", "0.1.0"], "3 of 6 versions"),
        (
            "compatSdk=1.0.0&compatible=true",
            ["1.2.0-beta.1", "1.1.0", "1.0.0"],
            "3 of 6 versions",
        ),
        ("compatSdk=0.1&compatible=true&stable=true", ["0.1.0"], "1 of 6 versions"),
        ("compatible=true&stable=false", None, "6 versions"),
        ("compatSdk=9.0.0&compatible=true", [], "0 of 6 versions"),
    ],
    ids=["all", "stable", "SDK", "both", "SDK not given", "none"],
)
def test_versions_are_filtered(
    client_with: ClientWith, query: str, numbers: list[str] | None, count: str
) -> None:
    page = assert_page(client_with(STATES).get(f"/widgets/acme/clock?{query}"), 200)
    assert len(rows(page)) == 6 if numbers is None else [*map(first_word, rows(page))] == numbers
    assert element(page, class_="count").text == count
    checked = [box.attributes["name"] for box in elements(page, "input", checked="")]
    assert checked == [name for name in ("compatible", "stable") if f"{name}=true" in query]


def first_word(text: str) -> str:
    return text.split()[0]


@pytest.mark.parametrize("query", ["page=0", "page=x", "stable=maybe", "compatible=1"])
def test_invalid_filter_is_400_and_the_widget_still_shown(
    client_with: ClientWith, query: str
) -> None:
    page = assert_page(client_with(STATES).get(f"/widgets/acme/clock?{query}"), 400)
    name = query.partition("=")[0]
    messages = [each.text for each in elements(page, class_="field-error") if each.text]
    assert messages[0].startswith(f"{name} must be ")
    assert rows(page)


@pytest.fixture(scope="module")
def long_history() -> Json:
    versions = [
        version(
            f"{n // 500}.{n % 500}.0",
            publishedAt=f"{2000 + n // 500:04}-{n // 40 % 12 + 1:02}-01T00:00:00.000Z",
            releaseNotes=f"Fixed **{n}**.",
            yanked=n == 7,
        )
        for n in range(2_000)
    ]
    return document("acme/old", *versions)


def test_table_of_a_widget_with_many_versions_is_paged(
    client_with: ClientWith, long_history: Json
) -> None:
    client = client_with(long_history)
    page = client.get("/widgets/acme/old").text
    assert len(rows(page)) == 100
    assert element(page, class_="count").text == "2,000 versions, page 1 of 20"
    pager = element(page, "nav", **{"aria-label": "Pages of versions"})
    assert pager.text == "1 2 … 20"
    (link,) = elements(page, "a", **{"aria-label": "Page 2"})
    assert link.attributes["href"] == "/widgets/acme/old?page=2#versions"
    last = client.get("/widgets/acme/old?page=20&stable=true").text
    assert len(rows(last)) == 99
    (link,) = elements(last, "a", **{"aria-label": "Page 1"})
    assert link.attributes["href"] == "/widgets/acme/old?stable=true&page=1#versions"
    beyond = client.get("/widgets/acme/old?page=21").text
    assert "after the last one" in element(beyond, class_="empty").text
    # The page, its chart and its form are as small as those of any other widget.
    assert max(map(len, (page, last, beyond))) < 250_000
    client.get("/widgets/acme/old?page=3")
    start = time.thread_time()
    client.get("/widgets/acme/old?page=4")
    # About 0.02 seconds on an idle machine; with all versions it takes more than half a second.
    assert time.thread_time() - start < 0.4  # seconds


def test_chart_has_axes_marks_majors_and_is_also_a_table(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "acme/clock",
            version("1.0.0", publishedAt="2024-01-01T00:00:00Z"),
            version("2.0.0-rc.1", publishedAt="2024-02-01T00:00:00Z"),
            version("2.0.0", publishedAt="2024-03-01T00:00:00Z", yanked=True),
            version("2.0.1", publishedAt="2024-03-02T00:00:00Z"),
        )
    )
    page = client.get("/widgets/acme/clock").text
    figure = element(page, "figure", class_="releases").text
    assert figure.startswith("Releases per month 2 0")
    drawing = element(page, "svg", role="img")
    assert drawing.attributes["aria-label"] == "4 releases from Jan 2024 to Mar 2024, per month"
    assert [cell.text for cell in elements(page, "p", class_="majors")] == ["1 2"]
    table = element(page, "table", class_="data").text
    assert table == "Time Releases Yanked New major Jan 2024 1 1 Feb 2024 1 Mar 2024 2 1 2"


def test_permissions_are_compared_with_the_version_before(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "acme/clock",
            version("2.0.0", publishedAt=DAY(2), permissions=["network", "storage"]),
            version("1.0.0", publishedAt=DAY(1), permissions=["audio", "storage"]),
        )
    )
    page = client.get("/widgets/acme/clock").text
    assert element(page, "p", class_="permissions").text == "network storage"
    assert "Since 1.0.0: added network; removed audio." in element(page, "main").text


def test_description_and_notes_are_markdown(client_with: ClientWith) -> None:
    notes = "## Fixed\n- one\n- [two](https://b.example)"
    widget = document("acme/clock", version(releaseNotes=notes), description="A *round* clock.")
    client = client_with(widget)
    page = client.get("/widgets/acme/clock").text
    assert element(page, "em").text == "round"
    for text in (page, client.get("/widgets/acme/clock/1.0.0").text):
        assert element(text, "h3").text == "Fixed"
        link = element(text, "a", href="https://b.example")
        assert link.attributes["rel"] == "nofollow noopener"


def test_long_notes_are_only_on_the_page_of_the_version(client_with: ClientWith) -> None:
    notes = "*word* " * 1000
    client = client_with(document("acme/clock", version(releaseNotes=notes)))
    page = client.get("/widgets/acme/clock").text
    assert len(element(page, class_="notes").text) <= 501
    links = [link.text for link in elements(page, "a", href="/widgets/acme/clock/1.0.0")]
    assert "Page of 1.0.0: install, verify, all release notes" in links
    assert len(elements(client.get("/widgets/acme/clock/1.0.0").text, "em")) == 1000


def test_hostile_notes_of_a_whole_page_take_a_bounded_time(client_with: ClientWith) -> None:
    versions = [version(f"1.0.{n}", releaseNotes="[" * 2000) for n in range(100)]
    client = client_with(document("acme/clock", *versions))
    start = time.thread_time()
    assert_page(client.get("/widgets/acme/clock"), 200)
    # Without a limit for the page it took 6 seconds.
    assert time.thread_time() - start < 4  # seconds


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
    client_with: ClientWith, versions: list[dict[str, object]], text: str
) -> None:
    page = client_with(document("acme/clock", *versions)).get("/widgets/acme/clock").text
    assert element(page, class_="banner").text == text


def test_banner_reports_a_deprecated_latest_version_if_another_is_selected(
    client_with: ClientWith,
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
    client_with: ClientWith,
) -> None:
    latest = version(
        bundleSize=20_300,
        license="MIT",
        configVersion=3,
        minSize={"w": 2, "h": 1},
        maxSize={"w": 8, "h": 6},
        publishedAt="2026-08-04T17:25:23.651Z",
        sdkVersion=">=1.4.0 <2.0.0",
    )
    client = client_with(document("acme/clock", latest, downloadCount=1234))
    page = client.get("/widgets/acme/clock").text
    facts = elements(page, "dl", class_="facts")[0].text
    assert facts == (
        "Installs 1,234 Created 4 Aug 2026 Published 4 Aug 2026 SDK >=1.4.0 <2.0.0 "
        "Bundle 20.3 kB Licence MIT Config version 3 Size 2 × 1 to 8 × 6"
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
    client_with: ClientWith, path: str
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
    assert time.thread_time() - start < 0.35  # seconds
