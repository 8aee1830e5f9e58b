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


def compatible(client: FlaskClient, sdk: str) -> dict[str, str | None]:
    """Return the latest compatible version of each result."""
    return {
        widget["name"]: (widget["latestCompatibleVersion"] or {}).get("version")
        for widget in search(client, compatSdk=sdk)
    }


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


# Number, time, range of SDKs, whether it is yanked.
HISTORIES: dict[str, tuple[list[tuple[str, str, str, bool]], str | None]] = {
    "backport": ([("1.9.5", LATE, "*", False), ("2.0.0", EARLY, "*", False)], "1.9.5"),
    "newest is incompatible": (
        [("1.0.0", EARLY, "^1.0.0", False), ("2.0.0", LATE, "^2.0.0", False)],
        "1.0.0",
    ),
    "newest is yanked": ([("1.0.0", EARLY, "*", False), ("2.0.0", LATE, "*", True)], "1.0.0"),
    "only compatible one is yanked": (
        [("1.0.0", EARLY, "^1.0.0", True), ("2.0.0", LATE, "^2.0.0", False)],
        None,
    ),
    "only compatible one is yanked and the newest": (
        [("1.0.0", EARLY, "^2.0.0", False), ("2.0.0", LATE, "^1.0.0", True)],
        None,
    ),
    "newest has no valid range": (
        [("1.0.0", EARLY, "*", False), ("2.0.0", LATE, "not a range", False)],
        "1.0.0",
    ),
    "tie to precedence": ([("1.9.0", LATE, "*", False), ("1.10.0", LATE, "*", False)], "1.10.0"),
    "tie to the text": ([("1.0.0+b", LATE, "*", False), ("1.0.0+a", LATE, "*", False)], "1.0.0+b"),
}


@pytest.mark.parametrize(("versions", "expected"), HISTORIES.values(), ids=HISTORIES)
def test_latest_compatible_version_is_the_newest(
    client_with: ClientWith, versions: list[tuple[str, str, str, bool]], expected: str | None
) -> None:
    entries = [
        version(number, publishedAt=moment, sdkVersion=range_, yanked=yanked)
        for number, moment, range_, yanked in versions
    ]
    client = client_with(document("acme/clock", *entries))
    assert compatible(client, "1.4.0") == {"clock": expected}


# Ranges that admit an SDK and others; tests/store compares all of them with node-semver.
RANGES = {
    "1.4.0": (["^1.2.0", "", ">=1 <2", "3 || 1.4.0"], ["^1.4.1", "2 || 3", "banana", "1 || x y"]),
    "1.4.0+build.7": (["1.4.0", "1.4.0+other"], [">1.4.0"]),
    "1.4.0-rc.1": ([">=1.4.0-alpha", "^1.4.0-beta || ^3.0.0"], ["*", "", ">=1.3.0-rc.1"]),
    "9007199254740991.0.0": ([">=1.0.0"], ["9007199254740992.x"]),
}


@pytest.mark.parametrize("sdk", RANGES)
def test_ranges_are_those_of_npm(client_with: ClientWith, sdk: str) -> None:
    admitting, others = RANGES[sdk]
    ranges = [*admitting, *others]
    documents = [document(f"a/w{n}", version(sdkVersion=text)) for n, text in enumerate(ranges)]
    assert compatible(client_with(*documents), sdk) == {
        f"w{n}": "1.0.0" if n < len(admitting) else None for n in range(len(ranges))
    }


# tests/store compares all versions with node-semver.
INVALID = {
    **{"empty": "", "with v": "v1.0.0", "two numbers": "1.0", "NUL": "1.0.0\0"},
    **{"full width digit": "１.0.0", "257 characters": "1.0.0-" + "a" * 251},
}


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_invalid_semver_is_400(demo: FlaskClient, value: str) -> None:
    for path in (SEARCH, "/api/v1/widgets/acme/clock"):
        response = demo.get(path, query_string={"compatSdk": value, "page": 9, "q": "none"})
        assert response.status_code == 400
        message = response.get_json()["error"]
        assert message.startswith("compatSdk must be a valid semver string")
        assert json.dumps(value[:60], ensure_ascii=False)[1:-1] in message
        assert "%2B" in message


def test_plus_must_be_sent_encoded(client_with: ClientWith) -> None:
    client = client_with(document("acme/clock", version(sdkVersion="^1.0.0")))
    assert client.get(f"{SEARCH}?compatSdk=1.0.0+build").status_code == 400
    assert compatible(client, "1.0.0+build") == {"clock": "1.0.0"}
