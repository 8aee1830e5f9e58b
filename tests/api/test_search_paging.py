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


@pytest.mark.parametrize("query", ["page=", "limit", "page=&limit=&official=&scope=&q=&sort="])
def test_empty_parameters_are_ignored(client_with: ClientWith, query: str) -> None:
    client = client_with(*widgets(3))
    assert client.get(f"{SEARCH}?{query}").json == search(client)


def test_leading_zeros_are_ignored(client_with: ClientWith) -> None:
    client = client_with(*widgets(3))
    body = search(client, page="0" * 5000 + "2", limit="0" * 5000 + "1")
    assert numbers(body) == [1]
    assert (body["page"], body["limit"]) == (2, 1)


INVALID = [
    *("0", "000", "-1", "+1", "1.5", "1e2", "0x10", "1_000", "1,000", " 5", "5 ", "5\n", "5\0"),
    *("１", "٣", "²", "two", '"5"', "1; DROP TABLE widget", "9007199254740992", "1" + "0" * 70),
]


@pytest.mark.parametrize("name", ["page", "limit"])
@pytest.mark.parametrize("value", INVALID, ids=ascii)
def test_invalid_page_or_limit_is_400(demo: FlaskClient, name: str, value: str) -> None:
    response = demo.get(SEARCH, query_string={name: value})
    assert response.status_code == 400
    message = response.get_json()["error"]
    assert message.startswith(f"{name} must be a whole number from 1 to 9007199254740991, not ")
    quoted = json.dumps(value, ensure_ascii=False)[1:-1]
    assert quoted in message or quoted.replace('\\"', '"') in message
