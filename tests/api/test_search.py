"""GET /api/v1/widgets/search: the response, the filters and the order of the results."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from flask import Flask
from flask.testing import FlaskClient

from catalog.store.read.facets import find_facets
from catalog.store.read.search_params import parse_search

SEARCH = "/api/v1/widgets/search"
ClientWith = Callable[..., FlaskClient]


def search(client: FlaskClient, **parameters: Any) -> Json:
    response = client.get(SEARCH, query_string=parameters)
    assert response.status_code == 200, response.text
    return response.get_json()


def found_widgets(client: FlaskClient, **parameters: Any) -> list[str]:
    body = search(client, **parameters)
    assert body["total"] == len(body["widgets"])
    return [f"{widget['scope']}/{widget['name']}" for widget in body["widgets"]]


def json_text(value: Any) -> str:
    """Return the JSON text: unlike ==, it distinguishes true from 1, and the order of keys."""
    return json.dumps(value, ensure_ascii=False)


SUMMARY = {
    "scope": "acme",
    "name": "clock",
    "displayName": "Clock",
    "description": "Shows the time.",
    "icon": "mdi:clock",
    "isOfficial": True,
    "downloadCount": 12,
}


def test_response_has_every_field_in_the_order_of_the_specification(
    client_with: ClientWith,
) -> None:
    client = client_with({"widget": SUMMARY, "versions": [version(permissions=["network"])]})
    (entry,) = client.get("/api/v1/widgets/acme/clock").get_json()["versions"]
    widgets = [{**SUMMARY, "latestVersion": entry}]
    expected = {"widgets": widgets, "total": 1, "page": 1, "limit": 20}
    assert json_text(search(client)) == json_text(expected)


def test_false_zero_and_empty_text_are_not_null(client_with: ClientWith) -> None:
    fields = {"description": "", "icon": "", "isOfficial": False, "downloadCount": 0}
    (summary,) = search(client_with(document(**fields)))["widgets"]
    assert json_text({key: summary[key] for key in fields}) == json_text(fields)


def test_empty_catalog_gives_an_empty_page(client_with: ClientWith) -> None:
    assert search(client_with()) == {"widgets": [], "total": 0, "page": 1, "limit": 20}


FILTERED = (
    document("acme/yes", isOfficial=True),
    document("acme/no", isOfficial=False),
    document("acme/unset", isOfficial=None),
    document("beta/yes", isOfficial=True),
    document("acme/hidden", isOfficial=True, listed=False),
    document("secret/hidden", isOfficial=False, listed=False),
)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["acme/no", "acme/unset", "acme/yes", "beta/yes"]),
        ({"q": "hidden"}, []),
        ({"scope": "secret"}, []),
        ({"scope": "acme"}, ["acme/no", "acme/unset", "acme/yes"]),
        ({"scope": "ACME"}, []),
        ({"scope": "acme\0"}, []),
        ({"official": "true"}, ["acme/yes", "beta/yes"]),
        ({"official": "false"}, ["acme/no", "acme/unset"]),
        ({"official": "True"}, ["acme/yes", "beta/yes"]),
        ({"official": "FALSE"}, ["acme/no", "acme/unset"]),
        ({"q": "yes", "scope": "beta"}, ["beta/yes"]),
        ({"q": "s", "scope": "acme", "official": "false"}, ["acme/unset"]),
    ],
    ids=repr,
)
def test_filters_restrict_the_results(
    client_with: ClientWith, parameters: dict[str, str], expected: list[str]
) -> None:
    assert found_widgets(client_with(*FILTERED), **parameters) == expected


@pytest.mark.parametrize("value", ["1", "yes", " true", "true\0", "falſe"])
def test_invalid_official_is_400(demo: FlaskClient, value: str) -> None:
    response = demo.get(SEARCH, query_string={"official": value})
    assert response.status_code == 400
    message = response.get_json()["error"]
    assert message.startswith("official must be true or false")
    assert json.dumps(value, ensure_ascii=False)[1:-1] in message


ORDERED = ["b/many", "b/some", "c/a", "c/b", "d/a", "a/zero", "a/unset", "b/unset"]


@pytest.mark.parametrize("parameters", [{}, {"official": "false"}, {"q": "widget"}], ids=repr)
def test_order_is_by_downloads_then_scope_then_name(
    client_with: ClientWith, parameters: dict[str, str]
) -> None:
    counts = [10, 9, 2, 2, 2, 0, None, None]
    documents = [
        document(path, downloadCount=count, displayName="A widget")
        for path, count in zip(ORDERED, counts, strict=True)
    ]
    assert found_widgets(client_with(*reversed(documents)), **parameters) == ORDERED


def test_unknown_parameters_are_ignored(client_with: ClientWith) -> None:
    client = client_with(document())
    others = {"Q": "nothing", "PAGE": "0", "compatsdk": "x", "order": "x", "": "x"}
    assert search(client, **others) == search(client)


# The latest version of each runs on SDK 2 only, and the others on SDK 1 only.
PERMITTED = [
    document(
        f"acme/{name}",
        version(
            "0.9.0",
            **{"sdkVersion": "^1.0.0", "permissions": ["camera"], "license": "ISC"},
            publishedAt="2024-12-01T00:00:00.000Z",
        ),
        version(
            "1.0.0",
            **{"sdkVersion": "^1.0.0", "permissions": older, "license": "ISC"},
            publishedAt="2025-01-01T00:00:00.000Z",
        ),
        version(
            "2.0.0",
            **{"sdkVersion": "^2.0.0", "permissions": latest, "license": name and "MIT"},
            publishedAt="2025-02-01T00:00:00.000Z",
        ),
    )
    for name, older, latest in [
        ("a", ["network", "storage"], []),
        ("b", [], ["network"]),
        ("c", ["storage"], ["storage"]),
    ]
] + [document("acme/d")]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("permission=", "abcd"),
        ("permission=network", "b"),
        ("permission=-network", "ac"),
        ("permission=(none)", "a"),
        ("permission=-(none)", "bc"),
        ("permission=-(none)&compatSdk=1.4.0", "ac"),
        ("permission=Network", ""),
        ("permission=network&compatSdk=1.4.0", "a"),
        ("permission=camera&compatSdk=1.4.0", ""),
        ("permission=-network&compatSdk=1.4.0", "bc"),
        ("permission=(none)&compatSdk=1.4.0", "b"),
        ("permission=-storage&compatSdk=1.4.0&compatible=true&q=widget", ""),
        ("permission=-storage&compatSdk=1.4.0&compatible=true", "b"),
        ("permission=-storage&compatSdk=3.0.0", ""),
        ("license=MIT", "abc"),
        ("license=(none)", "d"),
        ("license=ISC&compatSdk=1.4.0", ""),
        ("license=MIT&permission=storage&official=false&scope=acme", "c"),
    ],
)
def test_permission_and_license_restrict_the_results(
    client_with: ClientWith, query: str, found: str
) -> None:
    response = client_with(*PERMITTED).get(f"{SEARCH}?{query}").json
    names = [widget["name"] for widget in response["widgets"]]
    assert (names, response["total"]) == ([*found], len(found))


# Texts that mean something else in a filter; only imports can bring them.
ODD_TEXTS = [
    document(f"acme/{name}", version(permissions=permissions, license=license_))
    for name, permissions, license_ in [
        ("a", ["(none)"], "(none)"),
        ("b", ["-network"], "-MIT"),
        ("c", ["\\x"], "\\x"),
        ("d", [], None),
        ("e", ["network"], "MIT"),
    ]
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (r"permission=\(none)", "a"),
        (r"permission=-\(none)", "bcde"),
        (r"permission=\-network", "b"),
        (r"permission=--network", "acde"),
        (r"permission=\\x", "c"),
        ("permission=(none)", "d"),
        ("permission=-network", "abcd"),
        (r"license=\(none)", "a"),
        (r"license=\-MIT", "b"),
        ("license=-MIT", "b"),
        (r"license=\\x", "c"),
        ("license=(none)", "d"),
        ("license=MIT", "e"),
    ],
)
def test_a_backslash_before_a_permission_or_licence_makes_it_literal(
    client_with: ClientWith, query: str, found: str
) -> None:
    response = client_with(*ODD_TEXTS).get(f"{SEARCH}?{query}").json
    assert [widget["name"] for widget in response["widgets"]] == [*found]


def test_every_facet_of_odd_texts_has_as_many_results_as_it_says(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(*ODD_TEXTS)
    facets = find_facets(app.extensions["database"].reader(), parse_search({}))
    counts = {("permission", value): count for value, count in facets.permissions}
    counts |= {("permission", f"-{value}"): count for value, count in facets.lacking}
    counts |= {("license", value): count for value, count in facets.licenses}
    # Five permissions or lists without any, four permissions that others lack, five licences.
    assert len(counts) == 14
    found = {key: search(app.test_client(), **{key[0]: key[1]})["total"] for key in counts}
    assert found == counts


def test_few_totals_of_searches_for_an_sdk_are_kept_in_memory(app_with: Callable[..., Any]) -> None:
    app = app_with(*PERMITTED)
    for number in range(120):
        query = f"compatSdk=1.0.{number}&compatible=true"
        assert app.test_client().get(f"{SEARCH}?{query}").json["total"] == 3
    assert len(app.extensions["database"].reader().counts) <= 100


def test_installs_leave_the_results_of_a_permission_in_order(client_with: ClientWith) -> None:
    client = client_with(*PERMITTED)
    query = f"{SEARCH}?permission=-network&compatSdk=1.4.0"
    for name, order in {"c": "cb", "a": "cb", "b": "bc"}.items():
        assert client.get(query).status_code == 200
        assert client.post(f"/api/v1/widgets/acme/{name}").status_code == 200
        assert [each["name"] for each in client.get(query).json["widgets"]] == [*order]
