"""GET /api/v1/widgets/changes: each public change once, oldest first, and nothing unlisted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from conftest import hold, put, run
from flask import Flask
from flask.testing import FlaskClient

CHANGES = "/api/v1/widgets/changes"
AppWith = Callable[..., Flask]
ClientWith = Callable[..., FlaskClient]


def read(client: FlaskClient, since: str = "", limit: int = 100) -> dict[str, Any]:
    response = client.get(f"{CHANGES}?since={since}&limit={limit}")
    assert response.status_code == 200, response.text
    page: dict[str, Any] = response.get_json()
    return page


def names(page: dict[str, Any]) -> list[str]:
    """Return the changes of a page, such as "acme/clock changed"."""
    return [f"{each['scope']}/{each['name']} {each['kind']}" for each in page["changes"]]


def command(app: Flask, *arguments: object) -> None:
    result = run(app, *arguments)
    assert result.exit_code == 0, result.output


def test_without_since_every_listed_widget_is_returned_with_the_etag_of_its_detail(
    client_with: ClientWith,
) -> None:
    client = client_with(document("acme/clock", version()), document("odd 天/気"))
    page = read(client)
    expected = []
    for scope, name in (("acme", "clock"), ("odd 天", "気")):
        etag = client.get(f"/api/v1/widgets/{scope}/{name}").headers["ETag"]
        expected.append({"scope": scope, "name": name, "kind": "changed", "etag": etag})
    assert page["changes"] == expected
    assert list(page) == ["changes", "next", "more"]
    assert page["more"] is False


def test_etag_of_a_widget_with_a_held_bundle_depends_on_the_host(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", b"x")))
    hold(app, b"x")
    client = app.test_client()
    etags = set()
    for url in ("http://a.example", "http://b.example", "http://a.example"):
        (change,) = client.get(CHANGES, base_url=url).json["changes"]
        detail = client.get("/api/v1/widgets/acme/clock", base_url=url)
        assert change["etag"] == detail.headers["ETag"]
        etags.add(change["etag"])
    assert len(etags) == 2


NO_CHANGES = {
    "install": lambda app: app.test_client().post("/api/v1/widgets/acme/clock"),
    "the same import": lambda app: put(app, document("acme/clock", version())),
    "an import of a count": lambda app: put(
        app, document("acme/clock", version(), downloadCount=9)
    ),
    "an unlisted widget": lambda app: put(app, document("acme/secret", version(), listed=False)),
    "a version of an unlisted widget": lambda app: command(app, "yank", "acme/hidden@1.0.0"),
    "the end of an unlisted widget": lambda app: command(app, "delete", "acme/hidden", "--yes"),
    "a change of a removed widget": lambda app: command(app, "yank", "acme/gone@1.0.0"),
}


@pytest.mark.parametrize("action", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_is_not_public_is_no_change(
    app_with: AppWith, action: Callable[[Flask], object]
) -> None:
    app = app_with(
        document("acme/clock", version()),
        document("acme/hidden", version(), listed=False),
        document("acme/gone", version()),
    )
    command(app, "unlist", "acme/gone")
    before = read(app.test_client())
    assert names(before) == ["acme/clock changed", "acme/gone removed"]
    action(app)
    after = read(app.test_client())
    assert (names(after), after["next"]) == (names(before), before["next"])


def test_unlisted_widgets_leave_no_gap_in_the_tokens(app_with: AppWith) -> None:
    positions = []
    for is_mixed in (False, True):
        app = app_with(document("acme/clock", version()))
        if is_mixed:
            put(app, *(document(f"acme/h{n}", version(), listed=False) for n in range(3)))
            command(app, "delete", "acme/h1", "--yes")
        put(app, document("acme/notes", version()))
        page = read(app.test_client())
        positions.append((names(page), page["next"].split("-")[1]))
    assert positions[0] == positions[1]


def test_pages_follow_each_other_until_no_more(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{number}") for number in range(5)))
    pages = [read(client, limit=2)]
    while pages[-1]["more"]:
        pages.append(read(client, pages[-1]["next"], limit=2))
    assert [len(page["changes"]) for page in pages] == [2, 2, 1]
    assert [name for page in pages for name in names(page)] == [
        f"acme/w{number} changed" for number in range(5)
    ]


def test_limit_is_20_by_default_and_at_most_100(client_with: ClientWith) -> None:
    client = client_with(*(document(f"acme/w{number}") for number in range(101)))
    assert len(client.get(CHANGES).json["changes"]) == 20
    assert len(read(client, limit=500)["changes"]) == 100


def test_unchanged_response_is_304_until_a_change(app_with: AppWith) -> None:
    app = app_with(document("acme/clock"))
    client = app.test_client()
    path = f"{CHANGES}?since={read(client)['next']}"
    headers = {"If-None-Match": client.get(path).headers["ETag"]}
    client.post("/api/v1/widgets/acme/clock")
    assert client.get(path, headers=headers).status_code == 304
    command(app, "official", "acme/clock")
    assert client.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("since", ["x", "0123456789abcdef", "0123456789ABCDEF-1", "-1"])
def test_value_that_is_no_token_is_400(client_with: ClientWith, since: str) -> None:
    response = client_with().get(f"{CHANGES}?since={since}")
    assert response.status_code == 400
    message = f"since must be the value of next in an earlier response, not '{since}'."
    assert response.json == {"error": message}


def restore(app: Flask, folder: Path) -> None:
    command(app, "backup", folder / "backup.db")
    command(app, "restore", folder / "backup.db", "--yes")


def unpack(app: Flask, folder: Path) -> None:
    command(app, "pack", folder / "catalog.pack")
    command(app, "unpack", folder / "catalog.pack", "--yes")


@pytest.mark.parametrize("replace", [restore, unpack])
def test_token_is_410_after_the_catalog_was_replaced(
    app_with: AppWith, tmp_path: Path, replace: Callable[[Flask, Path], None]
) -> None:
    app = app_with(document("acme/clock"))
    client = app.test_client()
    since = read(client)["next"]
    replace(app, tmp_path)
    response = client.get(f"{CHANGES}?since={since}")
    assert response.status_code == 410
    assert names(read(client)) == ["acme/clock changed"]


def test_token_of_another_catalog_or_beyond_the_end_is_410(client_with: ClientWith) -> None:
    token = read(client_with(document("acme/clock")))["next"]
    client = client_with(document("acme/clock"))
    history = read(client)["next"].split("-")[0]
    for since in (token, f"{history}-99"):
        assert client.get(f"{CHANGES}?since={since}").status_code == 410
