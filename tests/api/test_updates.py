"""GET /api/v1/widgets/updates: what to install instead of installed versions."""

import json
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from properties import catalog_for_each_example
from semver import Version

from catalog.domain.semver_ranges import satisfies

UPDATES = "/api/v1/widgets/updates"
ClientWith = Callable[..., FlaskClient]
KEYS = [
    *("scope", "name", "installed", "status", "yanked", "yankedReason", "deprecationMessage"),
    *("compatible", "update", "reason"),
]


def dated(number: str, month: int, **fields: Any) -> Json:
    return version(number, publishedAt=f"2025-{month:02}-01T00:00:00.000Z", **fields)


def updates(client: FlaskClient, *installed: str, sdk: str = "1.4.0") -> list[Json]:
    query = {"compatSdk": sdk, "installed": list(installed)}
    response = client.get(UPDATES, query_string=query)
    assert response.status_code == 200, response.text
    items: list[Json] = response.get_json()["updates"]
    return items


def clock_update(client: FlaskClient, installed: str, sdk: str = "1.4.0") -> Json:
    (item,) = updates(client, f"acme/clock@{installed}", sdk=sdk)
    return item


def number(item: Json) -> str | None:
    return item["update"] and str(item["update"]["version"])


def test_update_is_the_whole_version_entry(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", dated("1.0.0", 1), dated("1.1.0", 2, permissions=["network"]))
    )
    item = clock_update(client, "1.0.0")
    assert list(item) == KEYS
    detail = client.get("/api/v1/widgets/acme/clock").get_json()
    assert json.dumps(item["update"]) == json.dumps(detail["versions"][0])
    del item["update"]
    assert item == {
        **{"scope": "acme", "name": "clock", "installed": "1.0.0", "status": "update"},
        **{"yanked": False, "yankedReason": None, "deprecationMessage": None, "compatible": True},
        "reason": "1.1.0 is the newest version above 1.0.0 that runs on SDK 1.4.0.",
    }


def test_incompatible_and_yanked_versions_are_skipped_with_a_reason(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document(
            "acme/clock",
            dated("1.4.0", 1),
            dated("1.4.1", 2, yanked=True),
            dated("1.4.2", 3, yanked=True),
            dated("2.0.0", 4, sdkVersion="^2.0.0"),
            dated("1.5.0-beta.1", 5),
        )
    )
    assert clock_update(client, "1.4.0")["reason"] == (
        "1.4.0 has no update for SDK 1.4.0; 1.5.0-beta.1 is a prerelease; "
        "2.0.0 needs SDK ^2.0.0; 1.4.2 was yanked; and 1 more."
    )


def test_reason_does_not_repeat_long_texts(client_with: ClientWith) -> None:
    ranges = " || ".join(f"^{major}.0.0" for major in range(2, 200))
    yanked = dated("1.1.0", 2, yanked=True, yankedReason="because " * 1000)
    versions = dated("1.0.0", 1), yanked, dated("1.2.0", 3, sdkVersion=ranges)
    item = clock_update(client_with(document("acme/clock", *versions)), "1.0.0")
    assert len(item["reason"]) < 400


CURRENT = {
    "highest": (False, "There is no version above 1.0.0."),
    "yanked": (True, "1.0.0 was yanked; no other version that could replace it runs on SDK 1.4.0."),
}


@pytest.mark.parametrize(("yanked", "reason"), CURRENT.values(), ids=CURRENT)
def test_only_version_is_current(client_with: ClientWith, yanked: bool, reason: str) -> None:
    client = client_with(document("acme/clock", version("1.0.0", yanked=yanked)))
    item = clock_update(client, "1.0.0")
    assert list(item) == KEYS
    assert (item["status"], item["yanked"], item["update"]) == ("current", yanked, None)
    assert item["reason"] == reason


def test_yanked_version_without_update_gets_the_highest_version_below(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document(
            "acme/clock",
            dated("2.0.0", 1),
            dated("2.1.0", 2, yanked=True, yankedReason="It\nstops.", deprecationMessage="Bad."),
            dated("1.9.5", 3),
            dated("3.0.0", 4, sdkVersion="^2.0.0"),
        )
    )
    item = clock_update(client, "2.1.0")
    assert list(item) == [*KEYS[:-1], "downgrade", "reason"]
    assert (item["status"], number(item), item["downgrade"]) == ("update", "2.0.0", True)
    # The marks are those of the installed version.
    assert (item["yankedReason"], item["deprecationMessage"]) == ("It\nstops.", "Bad.")
    assert item["reason"] == (
        "2.1.0 was yanked: It stops; 3.0.0 needs SDK ^2.0.0; "
        "2.0.0 is the highest version below 2.1.0 that runs on SDK 1.4.0."
    )


def test_version_that_does_not_run_gets_the_highest_version_below_that_does(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document(
            "acme/clock",
            dated("1.9.5", 1),
            dated("2.0.0", 2),
            dated("2.1.0", 3, yanked=True),
            dated("2.2.0", 4, sdkVersion="^2.0.0"),
            dated("3.0.0", 5, sdkVersion="^3.0.0"),
        )
    )
    item = clock_update(client, "2.2.0")
    assert list(item) == [*KEYS[:-1], "downgrade", "reason"]
    assert (item["status"], number(item), item["downgrade"]) == ("update", "2.0.0", True)
    assert (item["compatible"], item["yanked"]) == (False, False)
    assert item["reason"] == (
        "2.2.0 needs SDK ^2.0.0; 3.0.0 needs SDK ^3.0.0; "
        "2.0.0 is the highest version below 2.2.0 that runs on SDK 1.4.0."
    )
    item = clock_update(client, "2.2.0", sdk="9.0.0")
    assert (item["status"], item["update"]) == ("current", None)
    assert item["reason"] == (
        "2.2.0 needs SDK ^2.0.0; 3.0.0 needs SDK ^3.0.0; "
        "no other version that could replace it runs on SDK 9.0.0."
    )


def test_version_that_does_not_run_still_prefers_an_update(client_with: ClientWith) -> None:
    client = client_with(
        document(
            "acme/clock",
            dated("1.0.0", 1),
            dated("2.0.0", 2, sdkVersion="^2.0.0"),
            dated("2.1.0", 3),
        )
    )
    item = clock_update(client, "2.0.0")
    assert (number(item), "downgrade" in item) == ("2.1.0", False)


@pytest.mark.parametrize(
    ("before", "update", "reason"),
    [
        (
            "2025-03-01",
            "1.1.0",
            "1.1.0 is the newest version above 1.0.0 that runs on SDK 1.4.0; "
            "2.0.0 needs SDK ^2.0.0; 1.2.0 is too new (published 2025-03-01T00:00:00.000Z).",
        ),
        (
            "2025-03-01T00:00:00.001Z",
            "1.2.0",
            "1.2.0 is the newest version above 1.0.0 that runs on SDK 1.4.0; "
            "2.0.0 needs SDK ^2.0.0.",
        ),
        (
            "2025-01-15",
            None,
            "1.0.0 has no update for SDK 1.4.0; 2.0.0 needs SDK ^2.0.0; "
            "1.2.0 is too new (published 2025-03-01T00:00:00.000Z); "
            "1.1.0 is too new (published 2025-02-01T00:00:00.000Z).",
        ),
    ],
)
def test_versions_that_are_too_new_are_skipped_with_a_reason(
    client_with: ClientWith, before: str, update: str | None, reason: str
) -> None:
    client = client_with(
        document(
            "acme/clock",
            dated("1.0.0", 1),
            dated("1.1.0", 2),
            dated("1.2.0", 3),
            dated("2.0.0", 4, sdkVersion="^2.0.0"),
        )
    )
    query = {"compatSdk": "1.4.0", "installed": "acme/clock@1.0.0", "before": before}
    (item,) = client.get(UPDATES, query_string=query).json["updates"]
    assert (number(item), item["reason"]) == (update, reason)


def test_downgrade_is_never_to_a_version_that_is_too_new(client_with: ClientWith) -> None:
    client = client_with(
        document("acme/clock", dated("2.0.0", 1, yanked=True), dated("1.5.0", 4), dated("1.4.0", 2))
    )
    query = {"compatSdk": "1.4.0", "installed": "acme/clock@2.0.0", "before": "2025-03-01"}
    (item,) = client.get(UPDATES, query_string=query).json["updates"]
    assert (number(item), item["downgrade"]) == ("1.4.0", True)


def test_invalid_time_is_400(client_with: ClientWith) -> None:
    query = {"compatSdk": "1.4.0", "installed": "acme/clock@1.0.0", "before": "soon"}
    response = client_with().get(UPDATES, query_string=query)
    assert response.status_code == 400
    assert response.json["error"].startswith("before must be an ISO 8601 date or time such as ")


UNLISTED = document("acme/clock", version("1.0.0"), listed=False)
NO_WIDGET = "There is no widget 'acme/clock'."
NOT_INSTALLABLE = {
    "no such version": (
        *([document("acme/clock", version("1.1.0"))], "unknown"),
        "There is no version 'acme/clock@1.0.0'.",
    ),
    "unlisted": ([UNLISTED], "unavailable", NO_WIDGET),
    "no such widget": ([], "unavailable", NO_WIDGET),
}


@pytest.mark.parametrize(
    ("documents", "status", "reason"), NOT_INSTALLABLE.values(), ids=NOT_INSTALLABLE
)
def test_unlisted_and_missing_widgets_are_unavailable_alike(
    client_with: ClientWith, documents: list[Json], status: str, reason: str
) -> None:
    assert clock_update(client_with(*documents), "1.0.0") == {
        **{"scope": "acme", "name": "clock", "installed": "1.0.0", "status": status},
        **dict.fromkeys(KEYS[4:-1]),
        "reason": reason,
    }


def test_names_may_contain_at_signs_and_any_script(client_with: ClientWith) -> None:
    client = client_with(document("@acme/天気@home", version("1.0.0+a"), version("1.1.0")))
    (item,) = updates(client, "@acme/天気@home@1.0.0+a")
    assert (item["name"], number(item)) == ("天気@home", "1.1.0")


MANY = [f"acme/clock@1.{minor}.0" for minor in range(101)]
INVALID: dict[str, tuple[str | None, list[str], str]] = {
    "no SDK": (None, MANY[:1], "compatSdk is missing"),
    "invalid SDK": ("1.4", MANY[:1], "compatSdk must be a valid semver"),
    "nothing": ("1.4.0", [], "installed must be given 1 to 100 times, not 0."),
    "too many": ("1.4.0", MANY, "installed must be given 1 to 100 times, not 101."),
    "twice": ("1.4.0", MANY[:1] * 2, "installed contains 'acme/clock@1.0.0' more than once."),
    **{
        text: ("1.4.0", [text], "installed must be scope/name@version")
        for text in (
            "",
            "acme/clock",
            "clock@1.0.0",
            "acme/clock@1.0",
            "acme/@1.0.0",
            "a/b/x@1.0.0",
        )
    },
}


@pytest.mark.parametrize(("sdk", "installed", "message"), INVALID.values(), ids=INVALID)
def test_invalid_parameters_are_400_and_named(
    demo: FlaskClient, sdk: str | None, installed: list[str], message: str
) -> None:
    query = {"compatSdk": sdk, "installed": installed}
    response = demo.get(UPDATES, query_string={k: v for k, v in query.items() if v is not None})
    assert response.status_code == 400
    assert response.get_json()["error"].startswith(message)


def expected_update(installed: str, versions: dict[str, Json], sdk: str) -> str | None:
    """Return the number of the update by the rule of the documentation; versions by number."""
    own = Version.parse(installed)

    def is_eligible(text: str) -> bool:
        other, fields = Version.parse(text), versions[text]
        is_same = (other.major, other.minor, other.patch) == (own.major, own.minor, own.patch)
        allowed = not other.prerelease or (bool(own.prerelease) and is_same)
        return allowed and not fields["yanked"] and satisfies(sdk, fields["sdkVersion"])

    def age(text: str) -> tuple[str, Version, str]:
        return versions[text]["publishedAt"], Version.parse(text), text

    eligible = [text for text in versions if is_eligible(text)]
    above = [text for text in eligible if Version.parse(text).compare(own) > 0]
    if above:
        return max(above, key=age)
    below = [text for text in eligible if Version.parse(text).compare(own) < 0]
    runs = satisfies(sdk, versions[installed]["sdkVersion"])
    if not below or (runs and not versions[installed]["yanked"]):
        return None
    highest = max(map(Version.parse, below))
    return max((text for text in below if Version.parse(text).compare(highest) == 0), key=age)


cores = st.sampled_from(["0.9.0", "1.0.0", "1.9.5", "1.10.0", "2.0.0", "2.0.1"])
suffixes = st.sampled_from(["", "", "", "-rc.1", "-rc.2", "-rc.10", "-beta", "+a", "+b", "-rc.1+a"])
numbers = st.builds(str.__add__, cores, suffixes)
ranges = st.sampled_from(
    ["^1.0.0", "^2.0.0", ">=1.2.0", "1.4.0 || ^3.0.0-beta.1", "*", "none", "~1.4"]
)
histories = st.dictionaries(
    numbers, st.tuples(st.integers(1, 6), st.booleans(), ranges), min_size=1, max_size=9
)
SDKS = ["1.4.0", "2.0.0", "3.0.0-beta.2", "0.1.0"]


@catalog_for_each_example(12)
@given(histories=st.lists(histories, min_size=10, max_size=10))
def test_updates_are_those_of_the_rule_for_any_history(
    client_with: ClientWith, histories: list[dict[str, tuple[int, bool, str]]]
) -> None:
    widgets = {
        f"acme/{index}": {
            number: dated(number, month, yanked=yanked, sdkVersion=range_)
            for number, (month, yanked, range_) in history.items()
        }
        for index, history in enumerate(histories)
    }
    client = client_with(*(document(path, *each.values()) for path, each in widgets.items()))
    for sdk in SDKS:
        installed = [(path, number) for path, each in widgets.items() for number in each]
        items = updates(client, *(f"{path}@{number}" for path, number in installed), sdk=sdk)
        for (path, own), item in zip(installed, items, strict=True):
            update = expected_update(own, widgets[path], sdk)
            assert number(item) == update, (own, sdk, widgets[path])
            assert item["status"] == ("update" if update else "current")
            assert item["compatible"] == satisfies(sdk, widgets[path][own]["sdkVersion"])
            is_downgrade = update is not None and Version.parse(update) < Version.parse(own)
            assert item.get("downgrade", False) == is_downgrade


# Results of node-semver; the key "format" in the file describes it.
NODE = json.loads((Path(__file__).parent.parent / "data" / "updates.json").read_text("utf-8"))


def test_updates_of_every_history_are_those_of_node(client_with: ClientWith) -> None:
    cases: defaultdict[str, list[tuple[str, Any]]] = defaultdict(list)
    for index, widget in enumerate(NODE["widgets"]):
        for sdk, results in widget["results"]:
            cases[sdk] += [(f"acme/{index}@{result[0]}", result[1:]) for result in results]
    client = client_with(
        *(
            document(f"acme/{index}", *(judged_version(*each) for each in widget["versions"]))
            for index, widget in enumerate(NODE["widgets"])
        )
    )
    for sdk, judged in cases.items():
        expected = iter(judged)
        while batch := dict(islice(expected, 100)):
            for path, item in zip(batch, updates(client, *batch, sdk=sdk), strict=True):
                result = [item["status"], item["compatible"], number(item), "downgrade" in item]
                assert result == batch[path], (path, sdk)


def judged_version(number: str, day: int, yanked: bool, range_: str) -> Json:
    published_at = f"2025-01-{day:02}T00:00:00.000Z"
    return version(number, publishedAt=published_at, yanked=yanked, sdkVersion=range_)
