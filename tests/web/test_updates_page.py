"""/updates: what to do about installed versions, from a pasted list of lines."""

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient
from markup import assert_page, element, elements
from werkzeug.test import TestResponse

from catalog.store.read.updates import MAX_INSTALLED

API = "/api/v1/widgets/updates"
WEATHER, CLOCK = "acme/weather@2.6.1", "acme/clock@1.0.0"
ClientWith = Callable[..., FlaskClient]


def get(client: FlaskClient, installed: str, sdk: str = "1.4.0", status: int = 200) -> str:
    query = urlencode({"installed": installed, "compatSdk": sdk})
    return assert_page(client.get(f"/updates?{query}"), status)


def rows(page: str) -> list[str]:
    """Return the widgets of the table, in their order."""
    return [row.text.split()[-1] for row in elements(page, "th", role="rowheader")]


def error(page: str, field: str) -> str:
    return element(page, "p", id=f"{field}-error").text


@pytest.mark.parametrize("query", ["", "?compatSdk=1.4.0"])
def test_page_without_a_list_has_the_form_alone(demo: FlaskClient, query: str) -> None:
    page = assert_page(demo.get(f"/updates{query}"), 200)
    assert element(page, "form", class_="updates-form").attributes["method"] == "post"
    assert element(page, "input", id="compatSdk").attributes["value"] == query.partition("=")[2]
    assert rows(page) == []


def test_reasons_and_versions_are_those_of_the_api(demo: FlaskClient) -> None:
    page = get(demo, f"{WEATHER}\r\n{CLOCK}\r\n")
    query = f"?compatSdk=1.4.0&installed={WEATHER}&installed={CLOCK}"
    response = demo.get(API + query).json
    assert response
    assert element(page, id="result").text == "2 installed versions: 1 yanked, 1 outdated"
    reasons = [node.text for node in elements(page, "li")]
    links = {link.text: link.attributes["href"] for link in elements(page, "a")}
    for item in response["updates"]:
        # One reason in each line.
        assert set(item["reason"].removesuffix(".").split("; ")) <= set(reasons)
        number = item["update"]["version"]
        path = f"/widgets/acme/{item['name']}"
        assert links[number] == f"{path}/{number}?compatSdk=1.4.0"
        changes = f"{path}/compare?to={number}&from={item['installed']}&compatSdk=1.4.0"
        assert elements(page, "a", href=changes)[0].text == "What changes"
    # The address has the parameters of the API.
    assert rows(demo.get(f"/updates{query}").text) == rows(page)


def post(client: FlaskClient, installed: str, sdk: str = "1.4.0") -> TestResponse:
    return client.post("/updates", data={"installed": installed, "compatSdk": sdk})


def test_form_redirects_to_an_address_that_can_be_shared(demo: FlaskClient) -> None:
    array = json.dumps([WEATHER, CLOCK], indent=9_000)
    for text in (f"{WEATHER}\r\n{CLOCK}\r\n{CLOCK}", array):
        response = post(demo, text, "1.4")
        query = "compatSdk=1.4&installed=acme/weather@2.6.1&installed=acme/clock@1.0.0"
        assert (response.status_code, response.headers["Location"]) == (303, f"/updates?{query}")
    page = assert_page(demo.get(response.headers["Location"]), 200)
    assert rows(page) == ["acme/weather", "acme/clock"]
    assert element(page, id="compatSdk-notice").text == "Using SDK 1.4.0."
    assert elements(page, "a", href="/widgets/acme/clock?compatSdk=1.4.0")
    assert element(page, "textarea").text.split() == [WEATHER, CLOCK]
    assert_page(demo.post("/updates", data={}), 200)


def test_list_of_which_something_is_ignored_is_shown_directly(demo: FlaskClient) -> None:
    text = '{"acme/weather": "^2.6.1", "acme/clock": "1.0.0"}'
    page = assert_page(post(demo, text), 200)
    assert rows(page) == ["acme/clock"]
    notice = "Ignored 1 entry without an exact version, such as 'acme/weather@^2.6.1'."
    assert elements(page, "p", class_="notice")[-1].text == notice
    assert element(page, "textarea").text == text


def test_yanked_versions_and_other_problems_come_first(demo: FlaskClient) -> None:
    page = get(
        demo,
        "acme/weather@2.6.0\nacme/none@1.0.0\nacme/clock@9.9.9\nacme/weather@3.1.0\n"
        "acme/clock@1.0.0\nacme/weather@2.6.1\ncommunity/meteo-marine@1.3.0",
    )
    assert rows(page) == [
        *("acme/weather", "community/meteo-marine", "acme/weather", "acme/clock", "acme/none"),
        *("acme/clock", "acme/weather"),
    ]
    labels = ["Yanked", "Incompatible", "Unknown", "Not in this catalog", "Outdated", "Up to date"]
    shown = [node.text for node in elements(page, "span", class_="badge")]
    assert [text for text in shown if text in labels] == [labels[0], *labels]
    assert "3.1.0 does not run on SDK 1.4.0" in element(page, "table").text
    assert element(page, id="result").text == (
        "7 installed versions: 2 yanked, 1 incompatible, 1 unknown, 1 not in this catalog, "
        "1 outdated, 1 up to date"
    )


def test_deprecated_version_without_an_update_is_a_problem(client_with: ClientWith) -> None:
    page = get(client_with(document("acme/clock", version(deprecationMessage="Old."))), CLOCK)
    assert element(page, id="result").text == "1 installed version: 1 deprecated"
    assert [node.text for node in elements(page, "span", class_="badge")] == ["Deprecated"]
    # Nothing to change, so no other list.
    assert elements(page, id="new-list") == []


def test_widgets_have_names_and_icons_and_the_new_list_can_be_copied(demo: FlaskClient) -> None:
    page = get(demo, f"{CLOCK}\nacme/none@1.0.0\n{WEATHER}\nacme/weather@2.6.0")
    names = [row.text for row in elements(page, "th", role="rowheader")]
    assert names == [
        *("Weather acme/weather", "acme/none", "World Clock acme/clock", "Weather acme/weather"),
    ]
    assert len(elements(page, "svg", class_="icon")) == 3
    # In the order of the list that was sent.
    assert element(page, id="new-list").text.split() == [
        *("acme/clock@2.1.1", "acme/none@1.0.0", "acme/weather@2.6.0", "acme/weather@2.6.0"),
    ]
    assert element(page, id="unchanged").text == (
        "2 entries are unchanged: 1 not in this catalog, 1 up to date."
    )
    button = element(page, "button", class_="copy", **{"data-copy": "new-list"})
    assert button.text == "Copy the new list"


def test_entries_that_stay_in_the_new_list_are_counted_with_the_reason(
    client_with: ClientWith,
) -> None:
    client = client_with(
        document("a/yanked", version(yanked=True)),
        document("a/old", version(sdkVersion="^9.0.0")),
        document("a/fine", version("1.1.0"), version("1.0.0", publishedAt="2024-01-01T00:00:00Z")),
    )
    installed = "a/yanked@1.0.0\na/old@1.0.0\na/fine@2.0.0\na/none@1.0.0\na/fine@1.0.0"
    page = get(client, installed)
    assert element(page, id="unchanged").text == (
        "4 entries are unchanged: 1 yanked without a replacement, 1 incompatible without a "
        "replacement, 1 with an unknown version, 1 not in this catalog."
    )
    kept = {"a/yanked@1.0.0", "a/old@1.0.0", "a/fine@2.0.0", "a/none@1.0.0", "a/fine@1.1.0"}
    assert {*element(page, id="new-list").text.split()} == kept


def test_comments_empty_lines_quotes_and_repetitions_are_ignored(demo: FlaskClient) -> None:
    page = get(demo, f'\ufeff# mine\n\n  "{CLOCK}",\n{CLOCK}\n')
    assert rows(page) == ["acme/clock"]


JSON_FORM = (
    'This JSON is not an array like ["acme/clock@1.0.0"] or an object like {"acme/clock": "1.0.0"}.'
)


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ("acme/clock", "Line 1: 'acme/clock' is not scope/name@version, such as acme/clock@1.0.0."),
        ("# a\nx", "Line 2: 'x' is not scope/name@version, such as acme/clock@1.0.0."),
        ("", "The list of installed versions is missing."),
        ('{"a": ', "This is not valid JSON: is it complete?"),
        ('{"packages": {"node_modules/a": {"version": "1.0.0"}}}', JSON_FORM),
        ('["acme/clock@^1.0.0"]', JSON_FORM),
        ('["acme/clock@1.0.0", 1]', JSON_FORM),
    ],
)
def test_invalid_list_is_400_with_a_message(
    demo: FlaskClient, installed: str, message: str
) -> None:
    page = get(demo, installed, status=400)
    assert error(page, "installed") == message
    assert element(page, "textarea").attributes["aria-invalid"] == "true"
    assert rows(page) == []


@pytest.mark.parametrize(
    ("sdk", "message"),
    [
        ("", "Enter the SDK version of your dashboard, such as 1.4.0."),
        ("1.4.x", "An SDK version is three numbers, such as 1.4.0."),
    ],
)
def test_invalid_sdk_is_400_with_a_message(demo: FlaskClient, sdk: str, message: str) -> None:
    page = get(demo, CLOCK, sdk=sdk, status=400)
    assert error(page, "compatSdk") == message
    assert element(page, "textarea").text == CLOCK


def test_long_list_is_checked_in_parts(demo: FlaskClient) -> None:
    lines = [f"acme/none-{number}@1.0.0" for number in range(1_000)]
    page = assert_page(post(demo, "\n".join(lines)), 200)
    assert len(rows(page)) == MAX_INSTALLED
    assert "These are the first 100 of 1,000 versions." in element(page, "main").text
    form = element(page, "form", class_="banner")
    assert form.text.endswith("Check the other 900")
    fields = {
        node.attributes["name"]: node.attributes["value"]
        for node in elements(page, "input", type="hidden")
    }
    assert fields == {"compatSdk": "1.4.0", "installed": "\n".join(lines[MAX_INSTALLED:])}
    others = assert_page(demo.post("/updates", data=fields), 200)
    assert rows(others)[0] == "acme/none-100"


def test_long_list_is_received_up_to_its_limit(server: Server) -> None:
    lines = [f"acme/none-{number}@1.0.0" for number in range(9_000)]
    for comment, status, text in (
        ("", 200, "These are the first 100 of 9,000 versions."),
        ("#" + "x" * 100_000, 400, "The list is too long: it must not exceed 256 kB."),
    ):
        fields = {"installed": "\n".join([*lines, comment]), "compatSdk": "1.4.0"}
        body = urlencode(fields, safe="/@").encode()
        assert (len(body) > 256 * 1024) == (status == 400)
        response, page = server.request(
            "POST", "/updates", body, Content_Type="application/x-www-form-urlencoded"
        )
        assert (response.status, text in page.decode()) == (status, True)
    # Other pages take no body.
    response, _ = server.request("POST", "/publish", body)
    assert response.status == 413


LONG_LIST = (
    "POST /updates HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n"
)


def test_one_long_list_of_a_client_and_two_in_all_are_received_at_the_same_time(
    server: Server,
) -> None:
    with ExitStack() as stack:

        def begin(client: str) -> bytes:
            connection = socket.create_connection(("127.0.0.1", server.port), 10, (client, 0))
            stack.enter_context(connection)
            connection.sendall(LONG_LIST.encode())
            return connection.recv(65536)

        clients = ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3")
        responses = [begin(client) for client in clients]
        assert [response.split()[1] for response in responses] == [b"100", b"503", b"100", b"503"]
        for response in (responses[1], responses[3]):
            assert b"\r\nRetry-After: 5\r\n" in response
            assert b"Too many long lists are being checked." in response
        # Short lists have no such limit.
        short, _ = server.request("POST", "/updates", b"compatSdk=1.4.0")
        assert short.status == 200


def test_unlisted_widget_is_like_a_missing_one(client_with: ClientWith) -> None:
    client = client_with(document("acme/secret", version(), listed=False))
    page = get(client, "acme/secret@1.0.0")
    assert page.replace("secret", "absent") == get(client, "acme/absent@1.0.0")


def test_text_of_the_list_is_escaped(demo: FlaskClient) -> None:
    page = get(demo, "<b>/\"'<i>@1.0.0")
    assert rows(page) == ["<b>/\"'<i>"]
    assert elements(page, "b") == elements(page, "i") == []
