"""Search with compatible=true, and with sort."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from builders import Json, document, version
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

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


def test_compatible_false_and_empty_keep_all(client_with: ClientWith) -> None:
    client = client_with(document("a/a", version()), document("a/b"))
    plain = client.get(SEARCH, query_string={"compatSdk": "1.0.0"}).data
    for value in ("false", "FALSE", ""):
        query = {"compatSdk": "1.0.0", "compatible": value}
        assert client.get(SEARCH, query_string=query).data == plain
    assert names(client, compatible="false") == ["a", "b"]


def test_compatible_without_an_sdk_is_400(demo: FlaskClient) -> None:
    response = demo.get(SEARCH, query_string={"compatible": "true"})
    assert (response.status_code, response.get_json()) == (
        400,
        {"error": "compatible must be used with compatSdk, such as compatSdk=1.4.0."},
    )


INVALID = {
    "compatible": ("yes", "compatible must be true or false, not 'yes'."),
    "sort": ("size", "sort must be installs, updated, created or name, not 'size'."),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_value_is_400_and_named(demo: FlaskClient, name: str) -> None:
    value, message = INVALID[name]
    response = demo.get(SEARCH, query_string={"compatSdk": "1.4.0", name: value})
    assert (response.status_code, response.get_json()) == (400, {"error": message})


RANGES = ["^1.0.0", "^2.0.0", ">=1.2.0", "1.x || 3.x", "*", "none", "^3.0.0-beta.1"]
widgets = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, 0, 5, 7]),
        st.lists(st.tuples(st.sampled_from(RANGES), st.booleans()), max_size=4),
    ),
    min_size=8,
    max_size=24,
)
property_settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=6,
    # No shrinking: it would create catalogs for minutes.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@property_settings
@given(widgets=widgets)
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
    # The page of the website counts too, for its filters.
    client.get("/?compatSdk=1.2.0&compatible=true")
    query |= {"compatSdk": "1.2.0"}
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


def test_empty_sort_is_the_default_order(client_with: ClientWith) -> None:
    client = client_with(*SORTED_WIDGETS)
    for query in ({}, {"q": "e"}):
        plain = client.get(SEARCH, query_string=query).data
        assert client.get(SEARCH, query_string={**query, "sort": ""}).data == plain


def test_sort_comes_before_the_rank_of_words(client_with: ClientWith) -> None:
    client = client_with(
        document("a/a", version(publishedAt=on(1)), displayName="Clock"),
        document("a/b", version(publishedAt=on(2)), displayName="X", description="A clock."),
        document("a/c", version(publishedAt=on(3)), displayName="Clocks"),
    )
    assert names(client, q="clock") == ["a", "c", "b"]
    assert names(client, q="clock", sort="updated") == ["c", "b", "a"]
    assert names(client, q="cl", sort="name") == ["a", "c", "b"]


@pytest.mark.parametrize("sort", ["updated", "created", "name"])
def test_count_of_an_install_is_shown_in_every_order(client_with: ClientWith, sort: str) -> None:
    client = client_with(*SORTED_WIDGETS)
    before = search(client, sort=sort)
    client.post("/api/v1/widgets/a/two")
    after = search(client, sort=sort)
    assert [each["name"] for each in after["widgets"]] == [
        each["name"] for each in before["widgets"]
    ]
    counts = {each["name"]: each["downloadCount"] for each in after["widgets"]}
    assert counts["two"] == 1
