"""compatSdk and latestCompatibleVersion: the newest version that runs on an SDK."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from flask.testing import FlaskClient

SEARCH = "/api/v1/widgets/search"
EARLY, LATE = "2025-01-01T00:00:00.000Z", "2025-02-01T00:00:00.000Z"
ClientWith = Callable[..., FlaskClient]


def search(client: FlaskClient, **parameters: Any) -> list[Json]:
    response = client.get(SEARCH, query_string=parameters)
    assert response.status_code == 200, response.text
    return response.get_json()["widgets"]


def compatible(client: FlaskClient, sdk: str, **parameters: Any) -> dict[str, str | None]:
    """Return the latest compatible version of each result."""
    return {
        widget["name"]: (widget["latestCompatibleVersion"] or {}).get("version")
        for widget in search(client, compatSdk=sdk, **parameters)
    }


def test_key_is_absent_without_compat_sdk(client_with: ClientWith) -> None:
    (summary,) = search(client_with(document("acme/clock", version())))
    assert "latestCompatibleVersion" not in summary


def test_key_is_the_last_and_has_a_whole_version_entry(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "acme/clock",
            version("2.0.0", publishedAt=LATE, sdkVersion="^2.0.0"),
            version("1.0.0", publishedAt=EARLY, sdkVersion="^1.0.0", permissions=["network"]),
            description="Shows the time.",
        )
    )
    (plain,) = search(client)
    (summary,) = search(client, compatSdk="1.0.0")
    assert list(summary) == [*plain, "latestCompatibleVersion"]
    assert plain == {key: summary[key] for key in plain}
    older = client.get("/api/v1/widgets/acme/clock").get_json()["versions"][1]
    assert json.dumps(summary["latestCompatibleVersion"]) == json.dumps(older)
    assert (older["version"], older["description"]) == ("1.0.0", "Shows the time.")


def test_compat_sdk_does_not_filter(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/compatible", version("1.2.0", sdkVersion="^3.0.0")),
        document("acme/incompatible", version("1.0.0", sdkVersion="^4.0.0")),
        document("acme/no-versions"),
    )
    assert compatible(client, "3.1.0") == {
        "compatible": "1.2.0",
        "incompatible": None,
        "no-versions": None,
    }


def test_every_page_and_every_search_is_annotated(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/{name}", version()) for name in ("ab", "bb", "cb")))
    for parameters in ({"page": 2, "limit": 2}, {"q": "cb"}, {"q": "c"}):
        assert compatible(client, "1.0.0", scope="acme", **parameters) == {"cb": "1.0.0"}


def test_each_widget_has_its_own_compatible_version(client_with: ClientWith) -> None:
    client = client_with(*(document(path, version()) for path in ("a/x", "a/y", "b/x")))
    entries = [widget["latestCompatibleVersion"] for widget in search(client, compatSdk="1.0.0")]
    assert [f"{entry['scope']}/{entry['name']}" for entry in entries] == ["a/x", "a/y", "b/x"]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(
            [("1.9.5", LATE, "*", False), ("2.0.0", EARLY, "*", False)], "1.9.5", id="backport"
        ),
        pytest.param(
            [("1.0.0", EARLY, "^1.0.0", False), ("2.0.0", LATE, "^2.0.0", False)],
            "1.0.0",
            id="newest is incompatible",
        ),
        pytest.param(
            [("1.0.0", EARLY, "*", False), ("2.0.0", LATE, "*", True)],
            "1.0.0",
            id="newest is yanked",
        ),
        pytest.param(
            [("1.0.0", EARLY, "^1.0.0", True), ("2.0.0", LATE, "^2.0.0", False)],
            None,
            id="only compatible one is yanked",
        ),
        pytest.param(
            [("1.9.0", LATE, "*", False), ("1.10.0", LATE, "*", False)],
            "1.10.0",
            id="tie to precedence",
        ),
        pytest.param(
            [("1.0.0-rc.10", LATE, "*", False), ("1.0.0-rc.9", LATE, "*", False)],
            "1.0.0-rc.10",
            id="tie between prereleases",
        ),
        pytest.param(
            [("1.0.0+b", LATE, "*", False), ("1.0.0+a", LATE, "*", False)],
            "1.0.0+b",
            id="tie to the text",
        ),
        pytest.param(
            [("1.10.0", LATE, "^9.0.0", False), ("1.9.0", LATE, "*", False)],
            "1.9.0",
            id="tie with one compatible",
        ),
    ],
)
def test_latest_compatible_version_is_the_newest(
    client_with: ClientWith, versions: list[tuple[str, str, str, bool]], expected: str | None
) -> None:
    entries = [
        version(number, publishedAt=moment, sdkVersion=range_, yanked=yanked)
        for number, moment, range_, yanked in versions
    ]
    client = client_with(document("acme/clock", *entries))
    assert compatible(client, "1.4.0") == {"clock": expected}


@pytest.mark.parametrize(
    ("sdk", "ranges"),
    [
        ("1.4.0", ["^1.2.0", "~1.4", "1.x", "1", "*", "", ">=1 <2", "1.0.0 - 1.4.0", "3 || 1.4.0"]),
        ("1.4.0+build.7", ["^1.2.0", "1.4.0", "1.4.0+other"]),
        ("1.4.0-rc.1", [">=1.4.0-alpha", "1.4.0-rc.1", "^1.4.0-beta || ^3.0.0"]),
        ("0.4.0", ["^0.4.0", "<1.0.0"]),
        ("9007199254740991.0.0", [">=1.0.0", "9007199254740991.0.0"]),
    ],
)
def test_range_admits(client_with: ClientWith, sdk: str, ranges: list[str]) -> None:
    documents = [document(f"a/w{n}", version(sdkVersion=text)) for n, text in enumerate(ranges)]
    assert compatible(client_with(*documents), sdk) == {
        f"w{n}": "1.0.0" for n in range(len(ranges))
    }


INVALID_RANGES = ["banana", ">=", "1.0.0 - ", "^1.4.0 banana", "1.4.0.0", "9007199254740992.x"]


@pytest.mark.parametrize(
    ("sdk", "ranges"),
    [
        pytest.param("1.4.0", ["^1.4.1", "~1.3", "<1.4.0", ">1.4.0", "2 || 3"], id="other numbers"),
        pytest.param("1.4.0-rc.1", ["*", "", "^1.2.0", ">=1.3.0-rc.1", "1.x"], id="prerelease"),
        pytest.param("1.4.0", [*INVALID_RANGES, "1.4.0 || banana"], id="invalid ranges"),
    ],
)
def test_range_does_not_admit(client_with: ClientWith, sdk: str, ranges: list[str]) -> None:
    documents = [document(f"a/w{n}", version(sdkVersion=text)) for n, text in enumerate(ranges)]
    assert compatible(client_with(*documents), sdk) == {f"w{n}": None for n in range(len(ranges))}


def test_version_with_an_invalid_range_is_skipped(
    client_with: ClientWith,
) -> None:
    broken = version("2.0.0", publishedAt=LATE, sdkVersion="not a range")
    client = client_with(document("acme/clock", broken, version("1.0.0", publishedAt=EARLY)))
    assert compatible(client, "1.0.0") == {"clock": "1.0.0"}
    assert search(client)[0]["latestVersion"]["version"] == "2.0.0"


INVALID = {
    "empty": "",
    "space": " ",
    "with v": "v1.0.0",
    "with =": "=1.0.0",
    "two numbers": "1.0",
    "four numbers": "1.0.0.0",
    "space after": "1.0.0 ",
    "space before": " 1.0.0",
    "line end": "1.0.0\n",
    "NUL": "1.0.0\0",
    "leading zero": "1.02.0",
    "leading zero in a prerelease": "1.0.0-01",
    "empty prerelease": "1.0.0-",
    "empty identifier": "1.0.0-a..b",
    "empty build": "1.0.0+",
    "underscore": "1.0.0-a_b",
    "Arabic digit": "1.0.٣",
    "full width digit": "１.0.0",
    "accent": "1.0.0-é",
    "major over 2^53-1": "9007199254740992.0.0",
    "patch over 2^53-1": "0.0.9007199254740992",
    "range": "^1.0.0",
    "star": "*",
    "word": "latest",
    "257 characters": "1.0.0-" + "a" * 251,
    "5000 digits": "1.0." + "9" * 5000,
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_invalid_semver_is_400(demo: FlaskClient, value: str) -> None:
    response = demo.get(SEARCH, query_string={"compatSdk": value})
    assert response.status_code == 400
    assert list(response.get_json()) == ["error"]
    message = response.get_json()["error"]
    assert message.startswith("compatSdk must be a valid semver string")
    assert json.dumps(value[:60], ensure_ascii=False)[1:-1] in message
    assert "%2B" in message
    assert len(message) < 250


VALID = {
    "least": "0.0.0",
    "numbers of 2^53-1": "9007199254740991.9007199254740991.9007199254740991",
    "256 characters": "1.0.0-" + "a" * 250,
    "number of 250 digits in a prerelease": "1.0.0-" + "9" * 250,
    "hyphens": "1.0.0-0a.-1.--",
    "leading zero in a build": "1.0.0-rc.1+001.a-b",
}


@pytest.mark.parametrize("value", VALID.values(), ids=VALID)
def test_valid_semver_is_accepted(client_with: ClientWith, value: str) -> None:
    client = client_with(document("acme/clock", version(sdkVersion=value)))
    assert compatible(client, value) == {"clock": "1.0.0"}


def test_plus_must_be_sent_encoded(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(sdkVersion="^1.0.0")))
    raw = client.get(f"{SEARCH}?compatSdk=1.0.0+build")
    assert raw.status_code == 400
    assert "1.0.0 build" in raw.get_json()["error"]
    encoded = client.get(f"{SEARCH}?compatSdk=1.0.0%2Bbuild")
    assert encoded.status_code == 200
    (summary,) = encoded.get_json()["widgets"]
    assert summary["latestCompatibleVersion"]["version"] == "1.0.0"


def test_invalid_compat_sdk_is_400_even_without_results(client_with: ClientWith) -> None:
    response = client_with().get(SEARCH, query_string={"compatSdk": "1", "q": "x", "page": 9})
    assert response.status_code == 400
