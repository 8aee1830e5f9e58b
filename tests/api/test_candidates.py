"""stable and before: which versions a response may choose as the latest one."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from builders import Json, document, version
from conftest import put
from flask import Flask
from flask.testing import FlaskClient

from catalog.store.read.widget_versions import find_newer_prerelease

V1 = "/api/v1/widgets/"
CLOCK = V1 + "acme/clock"
JANUARY, FEBRUARY, MARCH, APRIL = (f"2025-0{month}-10T12:00:00.000Z" for month in range(1, 5))
ClientWith = Callable[..., FlaskClient]


@pytest.fixture
def client(client_with: ClientWith) -> FlaskClient:
    return client_with(
        document(
            "acme/clock",
            version("3.0.0-beta.1", publishedAt=APRIL, sdkVersion="^2.0.0", license="GPL-3.0"),
            version("2.0.0", publishedAt=MARCH, sdkVersion="^2.0.0", permissions=["network"]),
            version("1.1.0-rc.1+build-7", publishedAt=FEBRUARY),
            version("1.0.0+build-7", publishedAt=JANUARY, license="MIT"),
            downloadCount=3,
        ),
        document("acme/preview", version("0.1.0-alpha", publishedAt=FEBRUARY), downloadCount=2),
        document("acme/empty", downloadCount=1),
    )


def get(client: FlaskClient, path: str, **parameters: Any) -> Any:
    response = client.get(path, query_string=parameters)
    assert response.status_code == 200, response.text
    return response.json


def number(entry: Json | None) -> str | None:
    return entry["version"] if entry else None


def found(client: FlaskClient, **parameters: Any) -> dict[str, str | None]:
    """Return the latest version of each result, by the name of the widget."""
    widgets = get(client, V1 + "search", **parameters)["widgets"]
    return {each["name"]: number(each["latestVersion"]) for each in widgets}


def test_stable_search_offers_no_prerelease_and_hides_no_widget(client: FlaskClient) -> None:
    assert found(client) == {"clock": "3.0.0-beta.1", "preview": "0.1.0-alpha", "empty": None}
    assert found(client, stable="true") == {"clock": "2.0.0", "preview": None, "empty": None}
    assert found(client, stable="false") == found(client, stable="") == found(client)
    (clock,) = get(client, V1 + "search", stable="True", q="clock", compatSdk="1.0.0")["widgets"]
    assert number(clock["latestVersion"]) == "2.0.0"
    assert number(clock["latestCompatibleVersion"]) == "1.0.0+build-7"
    versions = get(client, CLOCK)["versions"]
    assert [clock["latestVersion"], clock["latestCompatibleVersion"]] == versions[1::2]


def test_stable_and_compatible_search_has_only_widgets_with_such_a_version(
    client: FlaskClient,
) -> None:
    sdk = {"compatSdk": "1.0.0", "compatible": "true"}
    assert [*found(client, **sdk)] == ["clock", "preview"]
    assert [*found(client, **sdk, stable="true")] == ["clock"]
    assert found(client, **sdk, stable="true", before=JANUARY) == {}
    assert get(client, V1 + "search", **sdk, stable="true", limit=1)["total"] == 1


def test_before_search_offers_only_versions_published_before_it(client: FlaskClient) -> None:
    assert found(client, before=APRIL) == {
        "clock": "2.0.0",
        "preview": "0.1.0-alpha",
        "empty": None,
    }
    assert found(client, before=FEBRUARY) == {
        "clock": "1.0.0+build-7",
        "preview": None,
        "empty": None,
    }
    assert found(client, before="2025-01-10") == {"clock": None, "preview": None, "empty": None}
    sdk = {"compatSdk": "1.0.0", "compatible": "true"}
    assert [*found(client, **sdk, before=FEBRUARY)] == ["clock"]


def test_filters_look_at_the_version_that_is_offered(client: FlaskClient) -> None:
    assert [*found(client, permission="network")] == []
    assert [*found(client, permission="network", stable="true")] == ["clock"]
    assert [*found(client, permission="-network", stable="true")] == []
    assert [*found(client, permission="(none)", stable="true", before=MARCH)] == ["clock"]
    assert [*found(client, license="GPL-3.0")] == ["clock"]
    assert [*found(client, license="GPL-3.0", before=APRIL)] == []
    assert [*found(client, license="MIT", stable="true", before=MARCH)] == ["clock"]
    assert [*found(client, license="MIT", stable="true", compatSdk="1.0.0")] == []


@pytest.mark.parametrize("q", [{}, {"q": "e"}])
def test_results_are_sorted_by_the_version_that_is_offered(
    client_with: ClientWith, q: dict[str, str]
) -> None:
    client = client_with(
        document(
            "acme/one", version("2.0.0-rc.1", publishedAt=APRIL), version(publishedAt=JANUARY)
        ),
        document("acme/three", version(publishedAt=MARCH)),
        document("acme/eleven", version("1.0.0-rc.1", publishedAt=FEBRUARY)),
    )
    assert [*found(client, sort="updated", **q)] == ["one", "three", "eleven"]
    assert [*found(client, sort="updated", stable="true", **q)] == ["three", "one", "eleven"]
    assert [*found(client, sort="updated", before=APRIL, **q)] == ["three", "eleven", "one"]


def test_detail_names_the_chosen_version_and_has_all_versions(client: FlaskClient) -> None:
    plain, stable = get(client, CLOCK), get(client, CLOCK, stable="true")
    assert stable == {**plain, "latestVersion": "2.0.0"}
    assert len(stable["versions"]) == 4
    assert get(client, CLOCK, before=FEBRUARY)["latestVersion"] == "1.0.0+build-7"
    assert get(client, CLOCK, before=JANUARY)["latestVersion"] is None
    with_sdk = get(client, CLOCK, compatSdk="1.0.0", stable="true", before=MARCH)
    assert with_sdk["latestVersion"] == "1.0.0+build-7"
    assert with_sdk["latestCompatibleVersion"] == plain["versions"][3]
    assert get(client, CLOCK, compatSdk="1.0.0", before=JANUARY)["latestCompatibleVersion"] is None


def test_latest_is_the_chosen_version_or_404_with_the_reason(client: FlaskClient) -> None:
    latest = CLOCK + "/latest"
    assert number(get(client, latest, stable="true")) == "2.0.0"
    assert number(get(client, latest, before=MARCH)) == "1.1.0-rc.1+build-7"
    assert number(get(client, latest, before=MARCH, stable="true")) == "1.0.0+build-7"
    assert number(get(client, latest, compatSdk="1.0.0", stable="true")) == "1.0.0+build-7"
    response = client.get(V1 + "acme/preview/latest?stable=true")
    reason = "No stable version of 'acme/preview' is available."
    assert (response.status_code, response.json) == (404, {"error": reason})
    query = {"stable": "true", "compatSdk": "1.0.0", "before": "2025-01-10"}
    response = client.get(latest, query_string=query)
    reason = (
        "No stable version of 'acme/clock' runs on SDK 1.0.0 and was published before "
        "2025-01-10T00:00:00.000Z."
    )
    assert (response.status_code, response.json) == (404, {"error": reason})


def test_neither_hides_an_exact_version(client: FlaskClient) -> None:
    path = CLOCK + "/3.0.0-beta.1"
    assert get(client, path, stable="true", before="2000-01-01") == get(client, path)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        # The version was published on 2025-01-10 at 12:00 UTC.
        ("2025-01-10", None),
        ("2025-01-11", "1.0.0+build-7"),
        ("2025-01-10T12:00:00Z", None),
        ("2025-01-10T12:00:00.001Z", "1.0.0+build-7"),
        ("2025-01-10T12:00:00.0001Z", "1.0.0+build-7"),
        ("2025-01-10t12:00:01z", "1.0.0+build-7"),
        ("2025-01-10 12:01", "1.0.0+build-7"),
        ("2025-01-10T13:00+01:00", None),
        ("2025-01-10T13:01+0100", "1.0.0+build-7"),
        ("2025-01-10T07:01:00-05", "1.0.0+build-7"),
    ],
)
def test_before_is_a_date_or_a_time_in_utc_unless_it_has_an_offset(
    client: FlaskClient, text: str, chosen: str | None
) -> None:
    assert get(client, CLOCK, before=text, compatSdk="1.0.0", stable="true")["latestVersion"] == (
        chosen
    )


INVALID_TIMES = [
    *("", "yesterday", "2025", "2025-1-1", "2025-02-30", "20250110", "2025-W02-5", "7d"),
    *("2025-01-10T", "2025-01-10x12:00", "2025-01-10T25:00", "2025-01-10T12:00:00 01:00"),
    *("0001-01-01T00:00+14:00", "9999-12-31T23:59:59.9999Z", "２０２５-01-10", "2025-01-10\n"),
]


@pytest.mark.parametrize("path", ["search", "acme/clock", "acme/clock/latest", "acme/clock/2.0.0"])
def test_invalid_value_is_400_with_an_example(client: FlaskClient, path: str) -> None:
    for text in INVALID_TIMES:
        response = client.get(V1 + path, query_string={"before": text})
        assert response.status_code == 400, text
        assert response.json["error"].startswith(
            "before must be an ISO 8601 date or time such as 2026-11-30 or 2026-11-30T12:00:00Z, "
        )
    response = client.get(V1 + path, query_string={"stable": "yes"})
    message = "stable must be true or false, not 'yes'."
    assert (response.status_code, response.json) == (400, {"error": message})


def test_every_response_chooses_as_the_model_does(client: FlaskClient) -> None:
    entries = get(client, CLOCK)["versions"]
    sdks = {"1.0.0": {"^1.0.0"}, "2.0.0": {"^2.0.0"}, None: {"^1.0.0", "^2.0.0"}}
    times = [None, JANUARY, FEBRUARY, MARCH, APRIL, "2026-01-01T00:00:00.000Z"]
    for stable, before, sdk in product([False, True], times, sdks):
        chosen = [
            entry
            for entry in entries
            if (before is None or entry["publishedAt"] < before)
            and not (stable and "-" in entry["version"].partition("+")[0])
        ]
        latest = next(iter(chosen), None)
        compatible = next((each for each in chosen if each["sdkVersion"] in sdks[sdk]), None)
        query = {"stable": str(stable), "before": before, "compatSdk": sdk}
        query = {key: value for key, value in query.items() if value is not None}
        summary = get(client, V1 + "search", q="clock", **query)["widgets"][0]
        detail = get(client, CLOCK, **query)
        response = client.get(CLOCK + "/latest", query_string=query)
        assert (summary["latestVersion"], detail["latestVersion"]) == (latest, number(latest))
        if sdk:
            assert summary["latestCompatibleVersion"] == compatible
            assert detail["latestCompatibleVersion"] == compatible
        assert (response.json if response.status_code == 200 else None) == compatible


@pytest.mark.parametrize(
    ("stable", "sdk", "prerelease"),
    [
        ("2.0.0", None, "3.0.0-beta.1"),
        ("2.0.0", "2.0.0", "3.0.0-beta.1"),
        ("2.0.0", "1.0.0", None),
        ("1.0.0+build-7", "1.0.0", "1.1.0-rc.1+build-7"),
        ("1.0.0+build-7", None, "3.0.0-beta.1"),
    ],
)
def test_page_can_name_the_newest_prerelease_above_the_stable_version(
    client: FlaskClient, stable: str, sdk: str | None, prerelease: str | None
) -> None:
    connection = client.application.extensions["database"].reader()
    ((clock,),) = connection.execute("SELECT id FROM widget WHERE name = 'clock'")
    assert find_newer_prerelease(connection, clock, stable, sdk) == prerelease


def test_cached_response_ends_with_a_yank_of_the_chosen_version(
    app_with: Callable[..., Flask],
) -> None:
    versions = [
        version("3.0.0-beta.1", publishedAt=APRIL),
        version("2.0.0", publishedAt=MARCH),
        version("1.0.0", publishedAt=JANUARY),
    ]
    app = app_with(document("acme/clock", *versions))
    first = app.test_client().get(V1 + "search?stable=true")
    known = {"If-None-Match": first.headers["ETag"]}
    assert number(first.json["widgets"][0]["latestVersion"]) == "2.0.0"
    assert app.test_client().get(V1 + "search?stable=true", headers=known).status_code == 304
    versions[1]["yanked"] = True
    put(app, document("acme/clock", *versions))
    again = app.test_client().get(V1 + "search?stable=true", headers=known)
    assert number(again.json["widgets"][0]["latestVersion"]) == "1.0.0"


def test_license_with_stable_is_that_of_the_latest_stable_version(
    app_with: Callable[..., Flask],
) -> None:
    stable = version("1.0.0", publishedAt="2025-01-01T00:00:00Z", license="MIT")
    beta = version("2.0.0-beta.1", publishedAt="2025-02-01T00:00:00Z", license="GPL-3.0-only")
    client = app_with(document("acme/clock", stable, beta)).test_client()
    for query, total in (
        ("license=MIT&stable=true", 1),
        ("license=GPL-3.0-only&stable=true", 0),
        ("license=GPL-3.0-only", 1),
    ):
        assert client.get(f"/api/v1/widgets/search?{query}").get_json()["total"] == total
