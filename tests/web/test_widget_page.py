"""The page of a widget: the version to download, its notes and facts, and all versions."""

import json
from collections.abc import Callable

import pytest
from builders import Json, document, version
from calls import count_calls
from flask.testing import FlaskClient
from markup import assert_page, element, elements

from catalog.domain import semver_ranges

WEATHER = "/widgets/acme/weather"
CLOCK = "/widgets/acme/clock"
ClientWith = Callable[..., FlaskClient]
DAY = "2025-01-0{}T00:00:00Z".format


def links(page: str) -> dict[str, str]:
    return {link.text: link.attributes["href"] for link in elements(page, "a")}


def rows(page: str) -> list[str]:
    """Return the first column of the table of versions."""
    return [cell.text for cell in elements(page, class_="number")]


def test_page_shows_the_version_for_the_sdk_with_hash_and_commands(demo: FlaskClient) -> None:
    page = assert_page(demo.get(f"{WEATHER}?compatSdk=v1.4"), 200)
    versions = demo.get("/api/v1/widgets/acme/weather").json["versions"]
    (compatible,) = (entry for entry in versions if entry["version"] == "2.6.0")
    assert element(page, id="install").text == "Use 2.6.0, the newest for SDK 1.4.0"
    assert "The latest version, 3.1.0, does not run on SDK 1.4.0 (needs ^2.1.0)." in page_text(page)
    assert element(page, id="compatSdk-notice").text == "Using SDK 1.4.0."
    bundle = "http://localhost/api/v1/widgets/acme/weather/2.6.0/bundle.js"
    button = element(page, "a", class_="primary")
    assert (button.attributes["href"], button.attributes["download"]) == (
        bundle,
        "weather-2.6.0.js",
    )
    assert element(page, id="selected-fetch").text == f"curl -fgL -o weather-2.6.0.js {bundle}"
    assert element(page, id="selected-sha").text == compatible["sha256Hash"]
    assert element(page, id="selected-sri").text.startswith("sha256-")
    assert compatible["sha256Hash"] in element(page, id="selected-check").text


def page_text(page: str) -> str:
    return element(page, "main").text


def test_every_link_of_the_page_carries_the_sdk(demo: FlaskClient) -> None:
    page = demo.get(f"{WEATHER}?compatSdk=1.4").text
    targets = [
        link.attributes["href"]
        for link in elements(page, "a")
        if link.attributes["href"].startswith(("/widgets/", "/?", "/updates", "/docs", "/publish"))
    ]
    assert len(targets) > 20
    assert [target for target in targets if "compatSdk=1.4.0" not in target] == []
    assert element(page, "input", type="hidden").attributes["value"] == "1.4.0"
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"http://localhost{WEATHER}"


def test_page_without_an_sdk_shows_the_latest_version(demo: FlaskClient) -> None:
    page = demo.get(WEATHER).text
    assert element(page, id="install").text == "Use 3.1.0"
    assert elements(page, class_="compatible") == elements(page, class_="banner") == []


@pytest.mark.parametrize(
    ("sdk_range", "reason"),
    [
        ("^2.1.0", "needs ^2.1.0"),
        ("two", "its SDK range is not readable"),
    ],
)
def test_widget_that_does_not_run_on_the_sdk_says_why_and_has_no_button(
    client_with: ClientWith, sdk_range: str, reason: str
) -> None:
    client = client_with(document("acme/clock", version(sdkVersion=sdk_range)))
    page = assert_page(client.get(f"{CLOCK}?compatSdk=1.4.0"), 200)
    assert element(page, id="install").text == "No version runs on SDK 1.4.0"
    assert f"The latest version, 1.0.0, does not run on SDK 1.4.0 ({reason})." in page_text(page)
    assert elements(page, id="selected-fetch") == elements(page, class_="primary") == []
    # A text that is no range is not shown as one.
    assert " two " not in page_text(page)


def test_dashboard_of_the_operator_has_a_button(client_with: ClientWith) -> None:
    template = "https://dash.example/add?widget={scope}/{name}@{version}"
    client = client_with(document("acme/a b&c", version("1.0.0+x")), INSTALL_URL=template)
    for path in ("/widgets/acme/a%20b&c", "/widgets/acme/a%20b&c/1.0.0+x"):
        button = element(client.get(path).text, class_="primary")
        assert button.text == "Add to dashboard"
        assert button.attributes["href"] == (
            "https://dash.example/add?widget=acme/a%20b%26c@1.0.0%2Bx"
        )


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("INSTALL_URL", "https://d.example/{widget}", "other than {scope}, {name} and {version}"),
        ("INSTALL_URL", "javascript:alert(1)", "an absolute http or https URL"),
        ("CONTACT", "javascript:alert(1)", "an e-mail address, or an http or https URL"),
        ("CONTACT", "a b@c", "an e-mail address, or an http or https URL"),
    ],
)
def test_invalid_setting_of_a_page_prevents_the_start(
    client_with: ClientWith, setting: str, value: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        client_with(**{setting: value})


def test_page_says_whether_the_widget_is_maintained(client_with: ClientWith) -> None:
    dates = ("2023-05-01T00:00:00Z", "2024-02-01T00:00:00Z", "2025-01-02T00:00:00Z")
    versions = [version(f"{n}.0.0", publishedAt=day) for n, day in enumerate(dates)]
    withdrawn = version("3.0.0", publishedAt="2025-06-01T00:00:00Z", yanked=True)
    client = client_with(document("acme/clock", *versions, withdrawn))
    page = client.get(CLOCK).text
    text = element(page, class_="alive").text
    assert text.startswith("Last release ")
    assert text.endswith(" ago, 4 versions since 2023")
    # Not that of the yanked one, as on the card.
    for shown in (page, client.get("/").text):
        (age,) = (node for node in elements(shown, "time") if node.text.endswith(" ago"))
        assert age.attributes["title"] == "2 Jan 2025"


NEWEST_YANKED = [
    version("3.1.0", publishedAt=DAY(5), yanked=True, yankedReason="Loses *time*"),
    version("2.9.0", publishedAt=DAY(4)),
    version("3.0.0", publishedAt=DAY(3)),
    version("1.0.0", publishedAt=DAY(1), sdkVersion="^0.9.0"),
]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "3.1.0 was yanked: Loses *time*. If you have it, install 3.0.0."),
        ("?compatSdk=0.9.0", "3.1.0 was yanked: Loses *time*. If you have it, install 1.0.0."),
        (
            "?compatSdk=9.0.0",
            "3.1.0 was yanked: Loses *time*. There is no replacement on SDK 9.0.0.",
        ),
    ],
    ids=["highest below", "for the SDK", "none"],
)
def test_yanked_newest_version_is_named_above_the_download(
    client_with: ClientWith, query: str, text: str
) -> None:
    page = client_with(document("acme/clock", *NEWEST_YANKED)).get(CLOCK + query).text
    assert element(page, class_="banner").text == text
    assert page.index("was yanked:") < page.index('id="install"')
    older = client_with(document("acme/clock", *reversed(NEWEST_YANKED[1:]))).get(CLOCK).text
    assert elements(older, class_="banner") == []


def test_warning_of_a_deprecated_widget_stands_once(client_with: ClientWith) -> None:
    message = "Use b. " + "x" * 400
    states = [{"deprecationMessage": message}] * 3 + [{"deprecationMessage": "Older."}]
    versions = [
        version(f"{n}.0.0", publishedAt=DAY(n), **state)
        for n, state in zip((5, 4, 3, 2), states, strict=True)
    ]
    withdrawn = version("1.0.0", publishedAt=DAY(1), yanked=True)
    page = client_with(document("acme/clock", *versions, withdrawn)).get(CLOCK).text
    assert page_text(page).count("Use b.") == 1
    assert element(page, class_="banner").text == f"This widget is deprecated. {message}"
    reasons = [reason.text for reason in elements(page, class_="reason")]
    assert reasons == ["Deprecated: Older.", "Yanked without a stated reason."]


def test_list_is_unfolded_up_to_the_version_for_the_sdk(demo: FlaskClient) -> None:
    for query, unfolded in (("", 4), ("?compatSdk=1.4.0", 5), ("?compatSdk=1.0.0", 9)):
        page = demo.get(WEATHER + query).text
        folded = element(page, "details", class_="older")
        assert folded.text.startswith(f"{10 - unfolded} older version"), query
        assert len(rows(page)) == 10


@pytest.mark.parametrize("path", ["acme/weather", "ops/metrics-graph", "hearth/lights"])
def test_table_has_every_version_newest_first_with_comparisons(
    demo: FlaskClient, path: str
) -> None:
    numbers = [each["version"] for each in demo.get(f"/api/v1/widgets/{path}").json["versions"]]
    page = demo.get(f"/widgets/{path}").text
    assert [row.split()[0] for row in rows(page)] == numbers
    compared = [
        link.attributes["href"]
        for link in elements(page, "a")
        if link.attributes.get("aria-label", "").startswith("Changes from ")
    ]
    assert len(compared) == len(numbers) - 1
    assert compared[0] == f"/widgets/{path}/compare?to={numbers[0]}&from={numbers[1]}"
    assert links(page)[numbers[1]] == f"/widgets/{path}/{numbers[1]}"


STATES = document(
    "acme/clock",
    version("2.0.0", publishedAt=DAY(5), yanked=True, yankedReason="Loses time."),
    version("2.0.0-rc.1", publishedAt=DAY(4), yanked=True),
    version("1.2.0-beta.1", publishedAt=DAY(3)),
    version("1.1.0", publishedAt=DAY(3)),
    version("1.0.0", publishedAt=DAY(2), deprecationMessage="Old."),
    version("0.1.0", publishedAt=DAY(1), sdkVersion="^0.1.0"),
)


def test_table_has_badges_and_reasons_for_the_state_of_a_version(client_with: ClientWith) -> None:
    page = client_with(STATES).get(f"{CLOCK}?compatSdk=1.0.0").text
    assert rows(page) == [
        "2.0.0 Yanked",
        "2.0.0-rc.1 Prerelease Yanked",
        "1.2.0-beta.1 Latest Runs on SDK 1.0.0 Prerelease",
        "1.1.0 For SDK 1.0.0",
        "1.0.0 Runs on SDK 1.0.0 Deprecated",
        "0.1.0",
    ]
    reasons = [reason.text for reason in elements(page, class_="reason")]
    assert reasons == ["Yanked: Loses time.", "Yanked without a stated reason.", "Deprecated: Old."]


@pytest.mark.parametrize(
    ("query", "numbers", "count", "toggles"),
    [
        ("", "2.0.0 2.0.0-rc.1 1.2.0-beta.1 1.1.0 1.0.0 0.1.0", "6 versions", {}),
        ("?stable=true", "1.1.0 1.0.0 0.1.0", "3 of 6 versions", {"Stable only": ""}),
        (
            "?compatSdk=1&compatible=true",
            "1.2.0-beta.1 1.1.0 1.0.0",
            "3 of 6 versions",
            {"For SDK 1.0.0": "?compatSdk=1.0.0"},
        ),
        (
            "?compatSdk=0.1.0&compatible=true&stable=true",
            "0.1.0",
            "1 of 6 versions",
            {
                "For SDK 0.1.0": "?compatSdk=0.1.0&stable=true",
                "Stable only": "?compatSdk=0.1.0&compatible=true",
            },
        ),
        (
            "?compatSdk=9.0.0&compatible=true",
            "",
            "0 of 6 versions",
            {"For SDK 9.0.0": "?compatSdk=9.0.0"},
        ),
    ],
    ids=["all", "stable", "SDK", "both", "none"],
)
def test_versions_are_filtered_by_toggles(
    client_with: ClientWith, query: str, numbers: str, count: str, toggles: dict[str, str]
) -> None:
    page = assert_page(client_with(STATES).get(CLOCK + query), 200)
    assert [row.split()[0] for row in rows(page)] == numbers.split()
    assert element(page, class_="count").text == count
    active = elements(page, "a", class_="toggle", **{"aria-current": "true"})
    assert {each.text: each.attributes["href"] for each in active} == {
        text: f"{CLOCK}{rest}#versions" for text, rest in toggles.items()
    }


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("page=0", "0: There is no such page."),
        ("stable=maybe", "maybe: Choose one of the options."),
        ("compatible=1", "1: Choose one of the options."),
        ("compatible=true", "true: Enter your SDK version to see only what runs on it."),
        ("compatSdk=two", "An SDK version is three numbers, such as 1.4.0."),
    ],
)
def test_invalid_parameter_is_400_and_the_widget_still_shown(
    client_with: ClientWith, query: str, message: str
) -> None:
    page = assert_page(client_with(STATES).get(f"{CLOCK}?{query}"), 400)
    messages = [each.text for each in elements(page, class_="field-error") if each.text]
    assert messages == [message]
    assert len(rows(page)) == 6
    assert element(page, id="compatSdk").attributes["value"] in query


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
    assert pager.text == "1 2 … 20 Next"
    assert links(page)["2"] == "/widgets/acme/old?page=2#versions"
    # The last version of a page is compared with the first of the next.
    assert page.count(">Changes<") == 100
    last = client.get("/widgets/acme/old?page=20&stable=true").text
    assert len(rows(last)) == 99
    assert links(last)["1"] == "/widgets/acme/old?stable=true&page=1#versions"
    beyond = client.get("/widgets/acme/old?page=21").text
    assert "There is no page 21" in element(beyond, class_="empty").text
    # The page is as small as that of any other widget.
    assert max(map(len, (page, last, beyond))) < 100_000
    # Only its versions are rendered: about 20,000 calls; 300,000 for all of them.
    assert count_calls(lambda: client.get("/widgets/acme/old?page=4")) < 60_000


def test_notes_and_new_permissions_of_the_shown_version_are_above_the_versions(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document(
            "acme/clock",
            version(
                "2.0.0",
                publishedAt=DAY(3),
                permissions=["network", "storage"],
                releaseNotes="## Fixed\n- one\n- [two](https://b.example)",
            ),
            version("1.5.0", publishedAt=DAY(2), permissions=["network"], yanked=True),
            version("1.0.0", publishedAt=DAY(1), permissions=["audio", "storage"]),
            description="A *round* clock.",
        )
    )
    page = client.get(CLOCK).text
    assert page.index('id="notes"') < page.index('id="versions"')
    assert element(page, "em").text == "round"
    assert element(page, "h3").text == "Fixed"
    link = element(page, "a", href="https://b.example")
    assert link.attributes["rel"] == "nofollow noopener"
    assert element(page, "ul", class_="permissions").text == (
        "network talks to the internet new storage saves data locally"
    )
    assert "New permissions: network. Removed permissions: audio." in page_text(page)
    assert links(page)["What changed since 1.0.0"] == f"{CLOCK}/compare?to=2.0.0&from=1.0.0"


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([], "Nothing to install yet. No version has been published."),
        ([version(yanked=True)], "Nothing to install. Every version has been yanked."),
        ([version(deprecationMessage="Use b.")], "This widget is deprecated. Use b."),
        ([version(deprecationMessage="")], "This widget is deprecated."),
        (
            [
                version("2.0.0", sdkVersion="^2.0.0", deprecationMessage="Use b."),
                version("1.0.0", publishedAt="2024-01-01T00:00:00Z"),
            ],
            "Version 2.0.0 is deprecated. Use b.",
        ),
    ],
    ids=["none", "yanked", "deprecated", "without a message", "latest, another selected"],
)
def test_banner_says_why_not_to_install(
    client_with: ClientWith, versions: list[Json], text: str
) -> None:
    page = client_with(document("acme/clock", *versions)).get(f"{CLOCK}?compatSdk=1.4.0").text
    assert element(page, class_="banner").text == text


def test_facts_of_version_and_widget_are_apart_with_exact_values(client_with: ClientWith) -> None:
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
    page = client.get(CLOCK).text
    assert [facts.text for facts in elements(page, "dl", class_="facts")] == [
        "Published 4 Aug 2026 SDK >=1.4.0 <2.0.0 Licence MIT Bundle 20.3 kB "
        "Size 2 × 1 to 8 × 6 cells",
        "Created 4 Aug 2026",
    ]
    assert "1,234 installs, 0 in the last 7 days" in page
    titles = {node.attributes["title"] for node in elements(page) if "title" in node.attributes}
    assert {"20,300 bytes", "2026-08-04T17:25:23.651Z"} <= titles
    assert links(page)["JSON"] == "/api/v1/widgets/acme/clock"
    feeds = elements(page, "link", type="application/atom+xml")
    assert feeds[-1].attributes["href"] == links(page)["Feed"]
    assert client.get(links(page)["Feed"]).text.count("<entry>") == 1


@pytest.mark.parametrize("path", ["acme/none", "acme/hidden", "none/none", "acme/%00", "a%2Fb/c"])
def test_missing_or_unlisted_widget_is_a_404_page_with_a_search_form(
    client_with: ClientWith, path: str
) -> None:
    client = client_with(document("acme/hidden", version(), displayName="Secret", listed=False))
    page = assert_page(client.get(f"/widgets/{path}"), 404)
    assert element(page, "h1").text == "Page not found"
    assert "Secret" not in page
    assert element(page, "form").attributes["action"] == "/"


def test_sdk_ranges_are_not_parsed_again_for_a_page(client_with: ClientWith) -> None:
    long_range = " || ".join(f"~{number}.0.{number}" for number in range(250))
    versions = [version(f"1.0.{n}", sdkVersion=f"{long_range} || {n}.7.0") for n in range(40)]
    client = client_with(document("acme/clock", *versions))
    client.get(f"{CLOCK}?compatSdk=1.0.1")
    page = f"{CLOCK}?compatSdk=7.7.0"
    # To parse one of these ranges takes 1,500.
    assert count_calls(lambda: client.get(page), semver_ranges) < 100
    assert client.get(page).text.count(">For SDK 7.7.0</span>") == 1


def test_stable_version_is_offered_and_a_newer_prerelease_is_one_line(
    client_with: ClientWith,
) -> None:
    client = client_with(STATES)
    page = client.get(f"{CLOCK}?compatSdk=1.0.0").text
    assert element(page, id="install").text == "Use 1.1.0, the newest for SDK 1.0.0"
    assert "Newer prerelease: 1.2.0-beta.1" in page_text(page)
    beta = document("acme/clock", version("1.0.0"), version("2.0.0-beta.1", publishedAt=DAY(9)))
    assert element(client_with(beta).get(CLOCK).text, id="install").text == "Use 1.0.0"
    only = client_with(document("acme/clock", version("1.0.0-rc.1"))).get(CLOCK).text
    assert element(only, id="install").text == "Use 1.0.0-rc.1"
    assert "Newer prerelease" not in only


def test_import_map_has_the_integrity_of_the_bundle(client_with: ClientWith) -> None:
    url = "https://cdn.example.com/</script>.js"
    entry = version(bundleUrl=url, sha256Hash="00" * 32)
    text = element(client_with(document("acme/clock", entry)).get(CLOCK).text, id="import-map").text
    head, _, rest = text.removeprefix('<script type="importmap"> ').partition(" </script> ")
    # A "<" in the JSON could end the script element.
    assert "<" not in head
    assert json.loads(head) == {
        "imports": {"acme/clock": url},
        "integrity": {url: "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
    }
    module = 'const widget = await import("acme/clock");'
    assert rest == f'<script type="module"> {module} </script>'


def test_name_for_the_list_of_installed_versions_can_be_copied(demo: FlaskClient) -> None:
    page = demo.get(f"{WEATHER}?compatSdk=1.4.0").text
    assert element(page, id="selected-name").text == "acme/weather@2.6.0"


def test_page_says_who_makes_the_widget(demo: FlaskClient) -> None:
    page = demo.get(WEATHER).text
    assert element(page, class_="by").text == "by acme Official"
    assert links(page)["acme"] == "/widgets/acme"


def test_strip_shows_which_sdks_each_version_runs_on(demo: FlaskClient) -> None:
    page = demo.get(WEATHER).text
    rows = [row.text for row in elements(page, "tr") if row.text.endswith(("yes", "no"))]
    assert rows[:3] == [
        "3.1.0" + "no" * 6 + "yes",
        "3.0.0" + "no" * 5 + "yes" * 2,
        "3.0.0-beta.1" + "no" * 4 + "yes" * 3,
    ]
    assert (
        "SDK 1.0SDK 1.1SDK 1.2SDK 1.3SDK 1.4SDK 2.0SDK 2.1"
        in element(page, "table", class_="support").text
    )


def test_strip_joins_versions_and_leaves_out_yanked_ones(client_with: ClientWith) -> None:
    ranges = {"1.3.0": "^2.0.0", "1.2.0": "^1.4.0", "1.1.0": "1.4 - 1", "1.0.0": "soon"}
    versions = [
        version(number, sdkVersion=text, publishedAt=DAY(9 - n))
        for n, (number, text) in enumerate(ranges.items())
    ]
    yanked = version("0.9.0", sdkVersion="^7.0.0", yanked=True, publishedAt=DAY(1))
    page = client_with(document("acme/clock", *versions, yanked)).get(CLOCK).text
    rows = [row.text for row in elements(page, "tr") if "yes" in row.text]
    assert rows == ["1.3.0noyes", "1.2.0 to 1.1.0yesno"]


def test_page_links_to_other_widgets_of_the_scope_and_to_similar_ones(
    client_with: ClientWith,
) -> None:
    both = version(permissions=["network", "storage"])
    client = client_with(
        {**document("acme/clock", both), "about": {"keywords": ["time"]}},
        *(document(f"acme/w{n}", version(permissions=[]), downloadCount=n) for n in range(4)),
        document("b/same", both, downloadCount=1),
        document("b/half", version(permissions=["network"]), downloadCount=9),
        document("b/other", version(permissions=["camera", "audio"]), downloadCount=99),
        {**document("b/word", version(permissions=[])), "about": {"keywords": ["Time", "moon"]}},
        {**document("acme/own", version(permissions=[])), "about": {"keywords": ["time"]}},
        document("b/hidden", both, listed=False),
    )
    page = client.get(CLOCK).text
    more, similar = elements(page, "ul", class_="others")
    assert [word for word in more.text.split() if "/" in word] == ["acme/w3", "acme/w2", "acme/w1"]
    assert [word for word in similar.text.split() if "/" in word] == ["b/word", "b/same"]
    compared = [link for link in elements(page, "a") if link.text == "Compare"]
    assert compared[0].attributes["href"] == "/compare?with=acme/clock&with=b/word"
    assert elements(client.get("/widgets/b/other").text, id="similar") == []
