"""The page and limit of a search."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document
from flask.testing import FlaskClient

SEARCH = "/api/v1/widgets/search"
ClientWith = Callable[..., FlaskClient]


def search(client: FlaskClient, **parameters: Any) -> Json:
    response = client.get(SEARCH, query_string=parameters)
    assert response.status_code == 200, response.text
    return response.get_json()


def numbers(response: Json) -> list[int]:
    """Return the numbers that widgets() gave to the widgets of the page."""
    return [int(widget["name"]) for widget in response["widgets"]]


def widgets(count: int) -> list[Json]:
    """Return widgets that search orders by their numbers, and some that are unlisted."""
    listed = [document(f"a/{n:03}", downloadCount=1000 - n // 3) for n in range(count)]
    return listed + [document(f"a/hidden-{n}", listed=False) for n in range(3)]


def test_default_page_has_20_widgets(client_with: ClientWith) -> None:
    body = search(client_with(*widgets(21)))
    assert numbers(body) == list(range(20))
    assert (body["total"], body["page"], body["limit"]) == (21, 1, 20)


def test_limit_over_100_is_100(client_with: ClientWith) -> None:
    client = client_with(*widgets(102))
    for limit in ("100", "101", "1000", str(2**53 - 1)):
        body = search(client, limit=limit)
        assert numbers(body) == list(range(100))
        assert (body["total"], body["page"], body["limit"]) == (102, 1, 100)
    assert numbers(search(client, limit="101", page="2")) == [100, 101]


@pytest.mark.parametrize(
    ("page", "limit", "expected"),
    [
        ("1", "1", [0]),
        ("2", "1", [1]),
        ("1", "3", [0, 1, 2]),
        ("2", "3", [3, 4]),
        ("3", "3", []),
        ("1", "5", [0, 1, 2, 3, 4]),
        ("2", "5", []),
        ("1", "100", [0, 1, 2, 3, 4]),
        ("2", "100", []),
        ("02", "003", [3, 4]),
    ],
)
def test_page_and_limit_select_the_widgets(
    client_with: ClientWith, page: str, limit: str, expected: list[int]
) -> None:
    body = search(client_with(*widgets(5)), page=page, limit=limit)
    assert numbers(body) == expected
    assert (body["total"], body["page"], body["limit"]) == (5, int(page), int(limit))


@pytest.mark.parametrize(
    ("filters", "total"),
    [({}, 41), ({"scope": "a"}, 31), ({"q": "0"}, 41), ({"q": "widget"}, 41)],
    ids=repr,
)
def test_pages_together_contain_every_widget_once(
    client_with: ClientWith, filters: dict[str, str], total: int
) -> None:
    client = client_with(
        *(document(f"{'b' if n < 10 else 'a'}/{n:03}", displayName="0 Widget") for n in range(41))
    )
    whole = numbers(search(client, limit=100, **filters))
    assert len(set(whole)) == total
    for limit in (1, 7, 20):
        paged: list[int] = []
        for page in range(1, 50):
            body = search(client, page=page, limit=limit, **filters)
            assert (body["total"], body["page"], body["limit"]) == (total, page, limit)
            if not body["widgets"]:
                break
            paged += numbers(body)
        assert paged == whole


@pytest.mark.parametrize("page", [2, 2**31, 2**32 + 1, 2**53 - 1])
def test_page_past_the_end_is_empty_with_the_right_total(
    client_with: ClientWith, page: int
) -> None:
    client = client_with(document("a/000"))
    expected = {"widgets": [], "total": 1, "page": page, "limit": 20}
    for filters in ({}, {"scope": "a"}, {"q": "0"}, {"q": "000"}):
        assert search(client, page=page, **filters) == expected


def test_greatest_page_and_limit_give_an_empty_page(client_with: ClientWith) -> None:
    body = search(client_with(document()), page=2**53 - 1, limit=2**53 - 1)
    assert body == {"widgets": [], "total": 1, "page": 2**53 - 1, "limit": 100}


@pytest.mark.parametrize("query", ["page=", "page", "limit=", "limit", "page=&limit=&official="])
def test_empty_page_and_limit_are_ignored(client_with: ClientWith, query: str) -> None:
    client = client_with(*widgets(3))
    assert client.get(f"{SEARCH}?{query}").json == search(client)


def test_leading_zeros_are_ignored(client_with: ClientWith) -> None:
    client = client_with(*widgets(3))
    body = search(client, page="0" * 5000 + "2", limit="0" * 5000 + "1")
    assert numbers(body) == [1]
    assert (body["page"], body["limit"]) == (2, 1)


def test_page_past_the_end_of_an_empty_catalog_has_total_0(client_with: ClientWith) -> None:
    assert search(client_with(), page=3) == {"widgets": [], "total": 0, "page": 3, "limit": 20}


INVALID = {
    "zero": "0",
    "zeros": "000",
    "negative": "-1",
    "signed": "+1",
    "fraction": "1.5",
    "whole fraction": "1.0",
    "exponent": "1e2",
    "hexadecimal": "0x10",
    "underscore": "1_000",
    "thousands": "1,000",
    "space before": " 5",
    "space after": "5 ",
    "line end": "5\n",
    "NUL": "5\0",
    "full width digit": "１",
    "Arabic digit": "٣",
    "superscript": "²",
    "word": "two",
    "NaN": "NaN",
    "quotes": '"5"',
    "SQL": "1; DROP TABLE widget",
    "greater than 2^53-1": "9007199254740992",
    "greater than 2^63-1": "9223372036854775808",
    "70 zeros": "1" + "0" * 70,
}


@pytest.mark.parametrize("name", ["page", "limit"])
@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID)
def test_invalid_page_or_limit_is_400(demo: FlaskClient, name: str, value: str) -> None:
    response = demo.get(SEARCH, query_string={name: value})
    assert response.status_code == 400
    assert list(response.get_json()) == ["error"]
    message = response.get_json()["error"]
    assert message.startswith(f"{name} must be a whole number from 1 to 9007199254740991, not ")
    quoted = json.dumps(value, ensure_ascii=False)[1:-1]
    assert quoted in message or quoted.replace('\\"', '"') in message


def test_message_cuts_a_long_value(demo: FlaskClient) -> None:
    response = demo.get(SEARCH, query_string={"page": "x" * 5000})
    assert response.status_code == 400
    message = response.get_json()["error"]
    assert "xxxx" in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "query", ["page=0&limit=5", "page=1&limit=0", "q=x&page=0", "page=&limit=-1"]
)
def test_one_invalid_parameter_is_400(demo: FlaskClient, query: str) -> None:
    response = demo.get(f"{SEARCH}?{query}")
    assert (response.status_code, response.mimetype) == (400, "application/json")
