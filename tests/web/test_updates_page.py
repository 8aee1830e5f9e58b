"""/updates: what to do about installed versions, from a pasted list or a JSON lockfile."""

import json
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import assert_page, element, elements

from catalog.store.read.updates import MAX_INSTALLED

API = "/api/v1/widgets/updates"
WEATHER, CLOCK = "acme/weather@2.6.1", "acme/clock@1.0.0"


def get(client: FlaskClient, installed: str, sdk: str = "1.4.0", status: int = 200) -> str:
    query = urlencode({"installed": installed, "compatSdk": sdk})
    return assert_page(client.get(f"/updates?{query}"), status)


def rows(page: str) -> list[str]:
    """Return the widgets of the table, in their order."""
    return [row.text for row in elements(page, "th", role="rowheader")]


def error(page: str, field: str) -> str:
    return element(page, "p", id=f"{field}-error").text


def test_page_without_a_list_has_the_form_alone(demo: FlaskClient) -> None:
    page = assert_page(demo.get("/updates"), 200)
    element(page, "textarea", name="installed")
    assert rows(page) == []


def test_reasons_and_versions_are_those_of_the_api(demo: FlaskClient) -> None:
    page = get(demo, f"{WEATHER}\r\n{CLOCK}\r\n")
    response = demo.get(f"{API}?compatSdk=1.4.0&installed={WEATHER}&installed={CLOCK}").json
    assert response
    assert element(page, "h2", id="result").text == "2 updates for 2 installed versions"
    for item in response["updates"]:
        assert item["reason"] in [node.text for node in elements(page, "p")]
        versions = [node.text for node in elements(page, "span", class_="version")]
        assert item["update"]["version"] in versions


def test_address_has_the_parameters_of_the_api(demo: FlaskClient) -> None:
    page = get(demo, f"{WEATHER}\n{CLOCK}", sdk="1.4")
    (link,) = [node for node in elements(page, "a") if node.text == "Link to this result"]
    query = f"?compatSdk=1.4.0&installed={WEATHER}&installed={CLOCK}"
    assert link.attributes["href"] == f"/updates{query}"
    assert rows(demo.get(link.attributes["href"]).text) == rows(page)
    assert demo.get(f"{API}{query}").status_code == 200


def test_versions_that_need_an_action_come_first(demo: FlaskClient) -> None:
    page = get(demo, "acme/weather@2.6.0\nacme/none@1.0.0\nacme/clock@9.9.9\nacme/clock@1.0.0")
    assert rows(page) == ["acme/clock", "acme/none", "acme/clock", "acme/weather"]
    badges = ["Update", "Not in this catalog", "Unknown version", "Up to date"]
    shown = [node.text for node in elements(page, "span", class_="badge")]
    assert [text for text in shown if text in badges] == badges


@pytest.mark.parametrize(
    "lockfile",
    [
        ["acme/weather@2.6.1", "acme/clock@1.0.0"],
        {"acme/weather": "2.6.1", "acme/clock": "1.0.0"},
        {"acme/weather": {"version": "2.6.1", "hash": "a/b"}, "acme/clock": {"version": "1.0.0"}},
        {"lockfileVersion": 1, "widgets": {"acme/weather@2.6.1": {}, "acme/clock@1.0.0": {"a": 1}}},
        {"pages": [{"id": 7, "widget": {"scope": "acme", "name": "weather", "version": "2.6.1"}},
                   {"scope": "acme", "name": "clock", "installed": "1.0.0"}]},
    ],
    ids=["list", "versions", "objects", "keys", "nested"],
)  # fmt: skip
def test_json_lockfile_is_read(demo: FlaskClient, lockfile: object) -> None:
    page = get(demo, json.dumps(lockfile, indent=2))
    assert sorted(rows(page)) == ["acme/clock", "acme/weather"]
    assert elements(page, "p", class_="notice") == []


def test_ranges_in_json_are_ignored_with_a_notice(demo: FlaskClient) -> None:
    page = get(demo, '{"acme/weather": "^2.6.1", "acme/clock": "1.0.0"}')
    assert rows(page) == ["acme/clock"]
    notice = "Ignored 1 entry without an exact version, such as 'acme/weather@^2.6.1'."
    assert element(page, "p", class_="notice").text == notice


def test_comments_empty_lines_quotes_and_repetitions_are_ignored(demo: FlaskClient) -> None:
    page = get(demo, f'\ufeff# mine\n\n  "{CLOCK}",\n{CLOCK}\n')
    assert rows(page) == ["acme/clock"]


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ("acme/clock", "Line 1: 'acme/clock' is not scope/name@version, such as acme/clock@1.0.0."),
        ("# a\nx", "Line 2: 'x' is not scope/name@version, such as acme/clock@1.0.0."),
        ('{"a": ', "This is not valid JSON: is it complete?"),
        ("[" * 10_000, "This is not valid JSON: is it complete?"),
        ("{}", "This JSON names no version in a form like scope/name@version, such as "
               "acme/clock@1.0.0."),
        ("", "The list of installed versions is missing."),
    ],
)  # fmt: skip
def test_invalid_list_is_400_with_a_message(
    demo: FlaskClient, installed: str, message: str
) -> None:
    page = get(demo, installed, status=400)
    assert error(page, "installed") == message
    assert element(page, "textarea").attributes["aria-invalid"] == "true"
    assert rows(page) == []


def test_short_sdk_is_completed_and_the_page_says_so(demo: FlaskClient) -> None:
    page = get(demo, CLOCK, sdk="1.4")
    assert element(page, "p", class_="notice").text == "1.4 is read as 1.4.0."
    assert element(page, "input", name="compatSdk").attributes["value"] == "1.4"


@pytest.mark.parametrize(
    ("sdk", "message"),
    [
        ("", "The SDK version of your dashboard is missing, such as 1.4.0."),
        ("1.4.x", "An SDK version is three numbers, such as 1.4.0."),
    ],
)
def test_invalid_sdk_is_400_with_a_message(demo: FlaskClient, sdk: str, message: str) -> None:
    page = get(demo, CLOCK, sdk=sdk, status=400)
    assert error(page, "compatSdk") == message
    assert element(page, "textarea").text == CLOCK


def test_long_list_is_checked_in_parts(demo: FlaskClient) -> None:
    lines = [f"acme/none-{number}@1.0.0" for number in range(MAX_INSTALLED + 2)]
    page = get(demo, "\n".join(lines))
    assert len(rows(page)) == MAX_INSTALLED
    assert "These are the first 100 of 102 versions." in element(page, "main").text
    (link,) = [node for node in elements(page, "a") if node.text == "Check the other 2"]
    others = demo.get(link.attributes["href"]).text
    assert rows(others) == ["acme/none-100", "acme/none-101"]


def test_unlisted_widget_is_like_a_missing_one(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with(document("acme/secret", version(), listed=False))
    page = get(client, "acme/secret@1.0.0")
    assert page.replace("secret", "absent") == get(client, "acme/absent@1.0.0")


def test_text_of_the_list_is_escaped(demo: FlaskClient) -> None:
    page = get(demo, "<b>/\"'<i>@1.0.0")
    assert rows(page) == ["<b>/\"'<i>"]
    assert elements(page, "b") == elements(page, "i") == []
