"""GET /api/widgets/{scope}/registry.json: a whole scope in one response that is cacheable."""

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest
from builders import document, version
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

Catalog = Callable[..., FlaskClient]

REGISTRY = "/api/widgets/acme/registry.json"
CREATED = "2025-01-01T00:00:00.000Z"


def names(response: TestResponse) -> list[str]:
    return [widget["name"] for widget in response.json["widgets"]]


def test_body_has_its_keys_in_order_and_no_counter(client_with: Catalog) -> None:
    text = {"displayName": "Météo", "description": "天気", "icon": "mdi:sun"}
    clock = document("acme/clock", version(), isOfficial=False, downloadCount=5, **text)
    bare = document("acme/notes", createdAt=CREATED)
    client = client_with(bare, clock)
    entry = client.get("/api/v1/widgets/acme/clock").json["versions"][0]
    no_text = {"displayName": "Notes", "description": None, "icon": None}
    expected = {
        "scope": "acme",
        "widgets": [
            {
                **{"scope": "acme", "name": "clock", **text, "isOfficial": False},
                **{"createdAt": entry["publishedAt"], "latestVersion": "1.0.0"},
                "versions": [entry],
            },
            {
                **{"scope": "acme", "name": "notes", **no_text, "isOfficial": None},
                **{"createdAt": CREATED, "latestVersion": None, "versions": []},
            },
        ],
    }
    response = client.get(REGISTRY)
    assert (response.status_code, response.mimetype) == (200, "application/json")
    # As text: == does not distinguish 0 from false, nor the order of keys.
    assert json.dumps(response.json, indent=1) == json.dumps(expected, indent=1)
    assert "天気" in response.data.decode("utf-8")


def test_widgets_are_ordered_by_name(client_with: Catalog) -> None:
    ordered = ["10", "9", "Zoo", "clock", "clock-2", "weather", "été"]
    client = client_with(
        *(document(f"acme/{name}", downloadCount=n) for n, name in enumerate(reversed(ordered)))
    )
    assert names(client.get(REGISTRY)) == ordered


def test_each_widget_has_all_its_versions_newest_first(client_with: Catalog) -> None:
    tie = "2025-06-01T00:00:00Z"
    client = client_with(
        document(
            "acme/clock",
            version("1.9.0", publishedAt=tie),
            version("1.10.0+a", publishedAt=tie),
            version("1.10.0+b", publishedAt=tie, yanked=True),
            version("0.1.0", publishedAt="2025-06-01T01:00:00+00:30", yanked=True),
            version("2.0.0", publishedAt="2025-05-01T00:00:00Z"),
        ),
        document("acme/bare", createdAt=CREATED),
        document("acme/gone", version("5.0.0", yanked=True)),
    )
    shown = {
        widget["name"]: ([v["version"] for v in widget["versions"]], widget["latestVersion"])
        for widget in client.get(REGISTRY).json["widgets"]
    }
    assert shown == {
        "bare": ([], None),
        "clock": (["0.1.0", "1.10.0+b", "1.10.0+a", "1.9.0", "2.0.0"], "1.10.0+a"),
        "gone": (["5.0.0"], None),
    }


@pytest.mark.parametrize("scope", ["other", "ACME", "acme%20", "hidden"])
def test_scope_without_a_listed_widget_is_404(client_with: Catalog, scope: str) -> None:
    client = client_with(document(), document("hidden/clock", listed=False))
    assert client.get(f"/api/widgets/{scope}/registry.json").status_code == 404


@pytest.mark.parametrize("scope", ["cli-version", "registry.json", "天 気", "a%2Fb"])
def test_scope_may_be_any_percent_encoded_text(client_with: Catalog, scope: str) -> None:
    client = client_with(document(f"{scope}/clock"))
    response = client.get(f"/api/widgets/{quote(scope)}/registry.json")
    assert response.json["scope"] == response.json["widgets"][0]["scope"] == scope


def test_install_does_not_change_the_bytes(client_with: Catalog) -> None:
    client = client_with(document("acme/clock", version()), document("acme/notes", version()))
    before = client.get(REGISTRY)
    client.post("/api/v1/widgets/acme/notes")
    after = client.get(REGISTRY)
    assert (after.data, after.headers["ETag"]) == (before.data, before.headers["ETag"])


def test_order_of_import_does_not_change_the_bytes(client_with: Catalog) -> None:
    versions = [
        version(f"1.{n}.0", publishedAt=f"2025-01-0{n % 3 + 1}T00:00:00Z") for n in range(9)
    ]
    paths = ["acme/clock", "acme/notes", "other/clock", "acme/alarm"]
    catalogs = [
        [document(path, *versions) for path in paths],
        [document(path, *versions[::-1], downloadCount=9) for path in paths[::-1]],
    ]
    one, other = (client_with(*documents).get(REGISTRY) for documents in catalogs)
    assert (one.status_code, one.data) == (200, other.data)
    assert one.headers["ETag"] == other.headers["ETag"]


def test_etag_differs_if_the_content_differs(client_with: Catalog) -> None:
    plain = client_with(document("acme/clock", version())).get(REGISTRY)
    changed = client_with(document("acme/clock", version(), isOfficial=False)).get(REGISTRY)
    assert plain.headers["ETag"] != changed.headers["ETag"]


def test_registry_of_several_pieces_has_all_widgets_in_order(client_with: Catalog) -> None:
    expected = sorted(f"w{number}" for number in range(501))
    client = client_with(*(document(f"acme/{name}") for name in expected))
    assert names(client.get(REGISTRY)) == expected
