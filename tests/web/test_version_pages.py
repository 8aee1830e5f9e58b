"""The page of one version of a widget, and the comparison of two versions."""

import time
from collections.abc import Callable

import pytest
from builders import Json, document, version
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
        "Published 2 Jan 2025 SDK ^1.0.0 Licence MIT Bundle 1.2 kB Size 1 × 1 to 12 × 12 cells"
    )
    assert element(page, class_="permissions").text == "network talks to the internet"
    assert element(page, class_="notes").text == "First release."
    assert links(page)["JSON"] == "/api/v1/widgets/acme/clock/1.0.0"


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
    target = links(demo.get(path).text)["1.4.0+build.7"]
    assert element(demo.get(target).text, "h1").text == "Currency Converter 1.4.0+build.7"


@pytest.mark.parametrize("number", ["9.9.9", "1.0", "%00", "<b>", "v1.0", "Latest"])
def test_unknown_version_is_a_404_page_that_links_to_the_widget(
    demo: FlaskClient, number: str
) -> None:
    response = demo.get(f"{WEATHER}/{number}")
    page = assert_page(response, 404)
    assert element(page, "h1").text == "Version not found"
    assert links(page)["All versions of Weather"] == f"{WEATHER}#versions"
    assert "ETag" not in response.headers


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("acme/weather/v3.1.0", "acme/weather/3.1.0"),
        ("acme/weather/v9.9.9", "acme/weather/9.9.9"),
        ("acme/weather/latest", "acme/weather/3.1.0"),
        ("acme/weather/latest?compatSdk=1.4", "acme/weather/2.6.0?compatSdk=1.4.0"),
    ],
)
def test_other_writings_of_a_version_redirect_to_its_page(
    demo: FlaskClient, path: str, target: str
) -> None:
    response = demo.get(f"/widgets/{path}")
    assert (response.status_code, response.headers["Location"]) == (302, f"/widgets/{target}")


@pytest.mark.parametrize(
    ("versions", "query", "message"),
    [
        ([], "", "acme/clock has no version to install."),
        ([version()], "?compatSdk=0.1", "No version of acme/clock runs on SDK 0.1.0."),
        ([version(yanked=True)], "", "acme/clock has no version to install."),
    ],
)
def test_latest_of_a_widget_that_has_none_is_404_and_says_why(
    client_with: ClientWith, versions: list[Json], query: str, message: str
) -> None:
    client = client_with(document("acme/clock", *versions))
    page = assert_page(client.get(f"{CLOCK}/latest{query}"), 404)
    assert message in element(page, "main").text
    assert "has no version latest" not in page


@pytest.mark.parametrize(
    "path", ["hidden/1.0.0", "hidden/latest", "hidden/compare?from=1.0.0&to=1.0.0", "none/1.0.0"]
)
def test_version_of_an_unlisted_or_missing_widget_is_404(
    client_with: ClientWith, path: str
) -> None:
    client = client_with(document("acme/hidden", version(), displayName="Secret", listed=False))
    page = assert_page(client.get(f"/widgets/acme/{path}"), 404)
    assert element(page, "h1").text == "Page not found"
    assert "Secret" not in page


@pytest.mark.parametrize(
    ("sdk", "banners"),
    [
        ("1.4", ["Does not run on SDK 1.4.0 (needs ^2.1.0). Use 2.6.0."]),
        ("0.1.0", ["Does not run on SDK 0.1.0 (needs ^2.1.0). No version runs on it."]),
        ("2.1.0", []),
    ],
    ids=["another runs", "none runs", "runs"],
)
def test_version_says_whether_it_runs_on_the_sdk(
    demo: FlaskClient, sdk: str, banners: list[str]
) -> None:
    page = assert_page(demo.get(f"{WEATHER}/3.1.0?compatSdk={sdk}"), 200)
    assert [banner.text for banner in elements(page, class_="banner")] == banners
    runs = [badge.text for badge in elements(page, class_="compatible")]
    assert runs == ([] if banners else ["Runs on SDK 2.1.0"])
    assert bool(elements(page, class_="primary")) is not bool(banners)
    if sdk == "1.4":
        assert links(page)["2.6.0"] == f"{WEATHER}/2.6.0?compatSdk=1.4.0"


def test_unreadable_range_is_no_requirement(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(sdkVersion="soon")))
    page = client.get(f"{CLOCK}/1.0.0?compatSdk=1.4.0").text
    reason = "(its SDK range is not readable)"
    assert element(page, class_="banner").text == (
        f"Does not run on SDK 1.4.0 {reason}. No version runs on it."
    )
    assert "SDK unknown" in element(page, "dl", class_="facts").text


@pytest.mark.parametrize("path", ["3.1.0", "compare?from=2.6.0&to=3.1.0"])
def test_invalid_sdk_is_reported_as_on_every_page(demo: FlaskClient, path: str) -> None:
    mark = "&" if "?" in path else "?"
    page = assert_page(demo.get(f"{WEATHER}/{path}{mark}compatSdk=1.x"), 400)
    error = element(page, id="compatSdk-error").text
    assert error == "1.x: An SDK version is three numbers, such as 1.4.0."


YANKED = (
    "Version 2.6.1 was yanked. Shows Fahrenheit values labelled as Celsius when the locale changes "
    "at run time. Use 2.6.0. "
)


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        # The reason says already to use it.
        ("", "Go to 2.6.0 (SDK >=1.4.0 <2.0.0)."),
        ("?compatSdk=2.1.0", "On SDK 2.1.0, use 3.1.0 instead."),
        ("?compatSdk=0.1", "There is no other version to use instead on SDK 0.1.0."),
    ],
    ids=["no SDK", "newer", "none"],
)
def test_yanked_version_links_to_the_one_to_use_instead(
    demo: FlaskClient, query: str, advice: str
) -> None:
    page = demo.get(f"{WEATHER}/2.6.1{query}").text
    assert elements(page, class_="banner")[-1].text == YANKED + advice


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
    assert links(page)["2.0.0"] == f"{CLOCK}/2.0.0?compatSdk=1.2.0"


@pytest.mark.parametrize("path", [CLOCK, f"{CLOCK}/1.0.0"])
def test_deprecated_version_is_not_recommended(client_with: ClientWith, path: str) -> None:
    for message, is_recommended in (("Gone.", False), ("", False), (None, True)):
        client = client_with(document("acme/clock", version(deprecationMessage=message)))
        page = client.get(path).text
        button = element(page, "a", download="clock-1.0.0.js")
        assert ("primary" in button.attributes["class"].split()) is is_recommended


def test_deprecated_latest_version_has_no_version_to_use_instead(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(deprecationMessage="Gone.")))
    text = "Version 1.0.0 is deprecated. Gone. There is no newer version to use instead."
    assert element(client.get(f"{CLOCK}/1.0.0").text, class_="banner").text == text


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
    assert [row.text for row in elements(page, "tr")][1:] == [
        "SDK ^1.0.0 any",
        "Bundle 20 kB 25 kB +5 kB (+25%)",
        "Minimum size 1 × 1 cells 2 × 1 cells",
        "Settings format 1 not numbered",
        "Published 1 Jan 2025 2 Jan 2025",
        "State available yanked",
    ]
    assert element(page, "details", class_="unchanged").text == (
        "2 unchanged Maximum size 12 × 12 cells Licence not stated"
    )
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"http://localhost{CLOCK}/compare?to=2.0.0&from=1.0.0"
    reverse = client.get(f"{CLOCK}/compare?from=2.0.0&to=1.0.0").text
    assert "25 kB 20 kB −5 kB (−20%)" in element(reverse, "table").text


@pytest.mark.parametrize("query", ["from=1.0.0&to=4.0.0", "from=4.0.0&to=1.0.0"])
def test_comparison_has_the_notes_of_every_version_in_between(
    client_with: ClientWith, query: str
) -> None:
    notes = ["Oldest.", "*Two*.", None, "Four. " * 500, "Newest."]
    versions = [
        version(f"{n}.0.0", publishedAt=DAY(n), releaseNotes=text, yanked=n == 3)
        for n, text in enumerate(notes, start=1)
    ]
    client = client_with(document("acme/clock", *versions))
    page = client.get(f"{CLOCK}/compare?{query}&compatSdk=1.0.0").text
    shown = [article.text for article in elements(page, "article", class_="note")]
    assert [text[:30] for text in shown] == [
        "4.0.0 4 Jan 2025 Four. Four. F",
        "3.0.0 3 Jan 2025 Yanked No rel",
        "2.0.0 2 Jan 2025 Two.",
    ]
    # All of long notes is on the page of the version.
    assert len(shown[0]) < 550
    assert links(page)["4.0.0"] == f"{CLOCK}/4.0.0?compatSdk=1.0.0"


def test_comparison_of_many_versions_is_bounded(client_with: ClientWith) -> None:
    versions = [
        version(f"1.0.{n}", publishedAt=f"2025-01-01T00:{n // 60:02}:{n % 60:02}Z",
                releaseNotes="[" * 2000)
        for n in range(150)
    ]  # fmt: skip
    client = client_with(document("acme/clock", *versions))
    start = time.thread_time()
    page = client.get(f"{CLOCK}/compare?from=1.0.0&to=1.0.149").text
    # Without a limit for the page it takes 6 seconds.
    assert time.thread_time() - start < 4  # seconds
    assert len(elements(page, "article")) == 50
    assert "The notes of older versions are on their own pages." in element(page, "main").text
    chosen = [each.text for each in elements(page, "option") if "selected" in each.attributes]
    assert chosen == ["1.0.0", "1.0.149"]
    assert len(elements(page, "option")) == 201


def test_comparison_of_a_version_with_itself_says_so(demo: FlaskClient) -> None:
    page = assert_page(demo.get(f"{WEATHER}/compare?from=2.6.0&to=2.6.0"), 200)
    assert element(page, class_="banner").text == "Both are 2.6.0: choose two different versions."
    assert elements(page, "table") == elements(page, "article") == []


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
    kept = [each.attributes["value"] for each in elements(page, "option", selected="")]
    assert [value for value in kept if value and value not in query] == []
