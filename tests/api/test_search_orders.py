"""Search with compatible=true, with sort, and its pages."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from builders import Json, document, version
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from properties import catalog_for_each_example

SEARCH = "/api/v1/widgets/search"
ClientWith = Callable[..., FlaskClient]


def search(client: FlaskClient, **parameters: Any) -> Json:
    response = client.get(SEARCH, query_string=parameters)
    assert response.status_code == 200, response.text
    body: Json = response.get_json()
    return body


def names(client: FlaskClient, **parameters: Any) -> list[str]:
    return [widget["name"] for widget in search(client, **parameters)["widgets"]]


def on(day: int) -> str:
    return f"2025-01-{day:02}T00:00:00.000Z"


def test_compatible_keeps_widgets_with_a_version_for_the_sdk(client_with: ClientWith) -> None:
    client = client_with(
        document("a/latest", version("1.0.0")),
        document("a/older", version("2.0.0", sdkVersion="^2.0.0"), version("1.0.0")),
        document("a/other", version("1.0.0", sdkVersion="^2.0.0")),
        document("a/yanked", version("1.0.0", yanked=True)),
        document("a/none"),
        document("a/hidden", version("1.0.0"), listed=False),
    )
    assert names(client, compatSdk="1.4.0", compatible="true") == ["latest", "older"]
    assert search(client, compatSdk="1.4.0", compatible="true")["total"] == 2


def test_compatible_false_keeps_all(client_with: ClientWith) -> None:
    client = client_with(document("a/a", version()), document("a/b"))
    assert search(client, compatSdk="1.0.0", compatible="FALSE") == search(
        client, compatSdk="1.0.0"
    )
    assert names(client, compatible="false") == ["a", "b"]


INVALID = [
    ("compatible=true", "compatible requires compatSdk, such as compatSdk=1.4.0."),
    ("compatible=yes", "compatible must be true or false, not 'yes'."),
    ("sort=size", "sort must be installs, updated, created or name, not 'size'."),
]


@pytest.mark.parametrize(("query", "message"), INVALID)
def test_invalid_value_is_400_and_named(demo: FlaskClient, query: str, message: str) -> None:
    response = demo.get(f"{SEARCH}?{query}")
    assert (response.status_code, response.get_json()) == (400, {"error": message})


RANGES = ["^1.0.0", "^2.0.0", ">=1.2.0", "1.x || 3.x", "*", "none", "^3.0.0-beta.1"]
some_widgets = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, 0, 5, 7]),
        st.lists(st.tuples(st.sampled_from(RANGES), st.booleans()), max_size=4),
    ),
    min_size=8,
    max_size=24,
)


@catalog_for_each_example(6)
@given(widgets=some_widgets)
def test_compatible_is_the_whole_result_filtered(client_with: ClientWith, widgets: Any) -> None:
    client = client_with(
        *(
            document(
                f"{scope}/{index}",
                *(
                    version(f"1.{minor}.0", sdkVersion=range_, yanked=yanked)
                    for minor, (range_, yanked) in enumerate(versions)
                ),
                displayName=f"Widget {index % 3}",
                isOfficial=official,
                downloadCount=count,
            )
            for index, (scope, official, count, versions) in enumerate(widgets)
        )
    )
    filters: list[dict[str, str]] = [
        *({}, {"scope": "a"}, {"official": "false"}, {"official": "true", "scope": "b"}),
        *({"q": "widget"}, {"q": "1"}, {"q": "wid 2", "scope": "b"}),
    ]
    sorts = [{}, {"sort": "installs"}, {"sort": "updated"}, {"sort": "name"}]
    for sdk, filter_, sort in product(["1.4.0", "2.0.0", "3.0.0-beta.2"], filters, sorts):
        query = {"compatSdk": sdk, "limit": "100", **filter_, **sort}
        found = search(client, **query)["widgets"]
        expected = [each for each in found if each["latestCompatibleVersion"]]
        body = search(client, **query, compatible="true")
        assert body["widgets"] == expected, query
        assert body["total"] == len(expected)
        page = search(client, **{**query, "limit": "3", "page": "2"}, compatible="true")
        assert (page["widgets"], page["total"]) == (expected[3:6], len(expected))


def test_compatible_widgets_are_counted_once_for_all_pages(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(*(document(f"a/w{number}", version()) for number in range(500)))
    client = app.test_client()
    connection = app.extensions["database"].reader()
    query = {"compatSdk": "1.0.0", "compatible": "true", "limit": 1}

    def steps_of(**parameters: Any) -> int:
        """Return the steps of SQLite's virtual machine for the search, in hundreds."""
        steps: list[None] = []
        connection.set_progress_handler(lambda: steps.append(None), 100)
        assert search(client, **query, **parameters)["total"] == 500
        return len(steps)

    counted = steps_of()
    client.post("/api/v1/widgets/a/w7")
    for others in ({"page": 2}, {"sort": "updated"}, {"limit": 2}):
        query |= others
        assert steps_of() < counted / 10


SORTED_WIDGETS = [
    document("b/one", version(publishedAt=on(5)), displayName="Éclair", createdAt=on(3)),
    document("a/two", version(publishedAt=on(5)), displayName="dial", createdAt=on(1)),
    document(
        "a/three",
        version("1.0.0", publishedAt=on(7), yanked=True),
        version("0.9.0", publishedAt=on(2)),
        displayName="Zebra",
        createdAt=on(2),
        downloadCount=3,
    ),
    document("a/four", displayName="eclair", createdAt=on(9), downloadCount=9),
]
ORDERS = {
    "installs": ["four", "three", "two", "one"],
    "updated": ["two", "one", "three", "four"],
    "created": ["four", "one", "three", "two"],
    "name": ["two", "four", "one", "three"],
}


@pytest.mark.parametrize("sort", ORDERS)
def test_results_are_sorted_with_ties_by_scope_and_name(client_with: ClientWith, sort: str) -> None:
    client = client_with(*SORTED_WIDGETS)
    assert names(client, sort=sort) == ORDERS[sort]
    pages = [names(client, sort=sort, limit=1, page=page)[0] for page in range(1, 5)]
    assert pages == ORDERS[sort]


def test_sort_comes_before_the_rank_of_words(client_with: ClientWith) -> None:
    client = client_with(
        document("a/a", version(publishedAt=on(1)), displayName="Clock"),
        document("a/b", version(publishedAt=on(2)), displayName="X", description="A clock."),
        document("a/c", version(publishedAt=on(3)), displayName="Clocks"),
    )
    assert names(client, q="clock") == ["a", "c", "b"]
    assert names(client, q="clock", sort="updated") == ["c", "b", "a"]
    assert names(client, q="cl", sort="name") == ["a", "c", "b"]


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
    for limit in ("100", "101", str(2**53 - 1)):
        body = search(client, limit=limit)
        assert numbers(body) == list(range(100))
        assert (body["total"], body["page"], body["limit"]) == (102, 1, 100)
    assert numbers(search(client, limit="101", page="2")) == [100, 101]


@pytest.mark.parametrize(
    ("page", "limit", "expected"),
    [
        ("2", "1", [1]),
        ("2", "3", [3, 4]),
        ("2", "5", []),
        ("1", "100", [0, 1, 2, 3, 4]),
        ("02", "003", [3, 4]),
        ("0" * 5000 + "2", "1", [1]),
    ],
    ids=lambda value: str(value)[-9:],
)
def test_page_and_limit_select_the_widgets(
    client_with: ClientWith, page: str, limit: str, expected: list[int]
) -> None:
    body = search(client_with(*widgets(5)), page=page, limit=limit)
    assert numbers(body) == expected
    assert (body["total"], body["page"], body["limit"]) == (5, int(page[-9:]), int(limit))


@pytest.mark.parametrize("page", [2, 2**53 - 1])
def test_page_past_the_end_is_empty_with_the_right_total(
    client_with: ClientWith, page: int
) -> None:
    client = client_with(document("a/000"))
    expected = {"widgets": [], "total": 1, "page": page, "limit": 20}
    for filters in ({}, {"scope": "a"}, {"q": "0"}, {"q": "000"}):
        assert search(client, page=page, **filters) == expected


def test_empty_parameters_are_ignored(client_with: ClientWith) -> None:
    client = client_with(*widgets(3))
    query = "page=&limit&official=&scope=&q=&sort=&compatible="
    assert client.get(f"{SEARCH}?{query}").json == search(client)


@pytest.mark.parametrize("name", ["page", "limit"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1_000", " 5", "１", "9007199254740992"])
def test_invalid_page_or_limit_is_400(demo: FlaskClient, name: str, value: str) -> None:
    response = demo.get(SEARCH, query_string={name: value})
    message = f"{name} must be a whole number from 1 to 9007199254740991, not {value!r}."
    assert (response.status_code, response.get_json()) == (400, {"error": message})
