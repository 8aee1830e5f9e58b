"""GET about and picture of a widget, and what publishers send of them."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from builders import described, document, png, version
from conftest import Server, create_catalog, error_message, exported, hold, put, run
from flask import Flask
from flask.testing import FlaskClient
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from werkzeug import Response

from app import create_app

ABOUT = "/api/v1/widgets/acme/clock/about"
PICTURE = "/api/v1/widgets/acme/clock/picture"
LINKS = {key: f"https://acme.example/{key}" for key in ("homepage", "repository", "issues")}
NOTHING: dict[str, Any] = {"readme": None, **dict.fromkeys(LINKS), "keywords": [], "picture": None}
KEYWORDS = ["zeit", "clock face"]
README = "# Clock\n\nShows the *time*.\n"
AppWith = Callable[..., Flask]


def about_clock(**about: Any) -> dict[str, Any]:
    return {**document("acme/clock", version()), "about": about}


def fetch(client: FlaskClient, path: str, **headers: str) -> Response:
    """Return the response, whose file is closed."""
    with client.get(path, headers=headers) as response:
        response.get_data()
        return response


def test_a_widget_without_it_says_nothing(app_with: AppWith) -> None:
    client = app_with(document("acme/clock"), document("acme/hidden", listed=False)).test_client()
    assert client.get(ABOUT).data == (
        b'{"readme":null,"homepage":null,"repository":null,"issues":null,"keywords":[],"picture":null}\n'
    )
    for path in (
        "acme/none/about",
        "acme/hidden/about",
        "acme/hidden/picture",
        "acme/clock/picture",
    ):
        assert client.get(f"/api/v1/widgets/{path}").status_code == 404


def test_readme_links_and_picture(app_with: AppWith) -> None:
    picture = png(640, 360, b"pixels")
    said: dict[str, Any] = {
        **{"readme": README, **LINKS, "keywords": KEYWORDS},
        "picture": described(picture),
    }
    app = app_with(about_clock(**said), PUBLIC_URL="https://widgets.example/base")
    client = app.test_client()
    # Without its file there is no picture.
    assert client.get(ABOUT).json == {**said, "picture": None}
    hold(app, picture)
    put(app, about_clock(**{**said, "readme": "New"}))
    response = client.get(ABOUT)
    sha256 = hashlib.sha256(picture).hexdigest()
    url = f"https://widgets.example/base{PICTURE}?sha256={sha256}"
    assert response.json == {**said, "readme": "New", "picture": {"url": url, **said["picture"]}}
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    etag = {"If-None-Match": response.headers["ETag"]}
    assert client.get(ABOUT, headers=etag).status_code == 304
    client.post("/api/v1/widgets/acme/clock")
    assert client.get(ABOUT, headers=etag).status_code == 304


def test_about_shows_a_picture_whose_file_arrives_later(app_with: AppWith) -> None:
    picture = png(4, 3)
    app = app_with(about_clock(picture=described(picture)))
    client = app.test_client()
    first = client.get(ABOUT)
    assert (first.json["picture"], fetch(client, PICTURE).status_code) == (None, 404)
    path = app.extensions["bundles"].path(described(picture)["sha256Hash"])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(picture)
    known = {"If-None-Match": first.headers["ETag"]}
    assert client.get(ABOUT, headers=known).json["picture"]["width"] == 4
    assert fetch(client, PICTURE).status_code == 200


def test_about_has_no_picture_if_its_file_is_something_else(app_with: AppWith) -> None:
    content = b"export default 1"
    sha256 = hashlib.sha256(content).hexdigest()
    app = app_with(about_clock(picture={**described(png()), "sha256Hash": sha256}))
    hold(app, content)
    client = app.test_client()
    assert (client.get(ABOUT).json["picture"], fetch(client, PICTURE).status_code) == (None, 404)


def test_the_picture_is_immutable_by_its_hash(app_with: AppWith) -> None:
    picture = png()
    app = app_with(about_clock(picture=described(picture)))
    hold(app, picture)
    client = app.test_client()
    sha256 = hashlib.sha256(picture).hexdigest()
    response = fetch(client, f"{PICTURE}?sha256={sha256}")
    assert (response.data, response.mimetype) == (picture, "image/png")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "ETag": f'"{sha256}"',
    }
    assert {name: response.headers.get(name) for name in headers} == headers
    assert fetch(client, PICTURE).headers["Cache-Control"] == "no-cache"
    assert client.get(f"{PICTURE}?sha256={'0' * 64}").status_code == 404
    assert fetch(client, PICTURE, **{"If-None-Match": f'"{sha256}"'}).status_code == 304


def test_a_restored_picture_is_sent_to_a_client_that_has_a_newer_one(
    app_with: AppWith, tmp_path: Path
) -> None:
    old, new = png(8, 8), png(16, 16)
    app = app_with(about_clock(picture=described(old)))
    hold(app, old, new)
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    put(app, about_clock(picture=described(new)))
    client = app.test_client()
    response = fetch(client, PICTURE)
    assert response.data == new
    assert "Last-Modified" not in response.headers
    assert run(app, "restore", tmp_path / "backup.db", "--yes").exit_code == 0
    tomorrow = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    response = fetch(client, PICTURE, **{"If-Modified-Since": tomorrow})
    assert (response.status_code, response.data) == (200, old)


def test_a_change_of_it_is_in_the_feed_and_nowhere_else(app_with: AppWith) -> None:
    app = app_with(about_clock(readme=README))
    client = app.test_client()
    paths = ("search", "acme/clock", "acme/clock/1.0.0")
    before = [client.get(f"/api/v1/widgets/{path}").data for path in paths]
    following = client.get("/api/v1/widgets/changes").json["next"]
    assert run(app, "describe", "acme/clock", "--homepage", LINKS["homepage"]).exit_code == 0
    changes = client.get(f"/api/v1/widgets/changes?since={following}").json["changes"]
    assert [(each["scope"], each["name"]) for each in changes] == [("acme", "clock")]
    assert client.get(ABOUT).json == {**NOTHING, "readme": README, "homepage": LINKS["homepage"]}
    assert [client.get(f"/api/v1/widgets/{path}").data for path in paths] == before


PARTS = {"readme": README.encode(), "picture": png(64, 36)}


def test_a_publication_replaces_what_it_brings_and_leaves_the_rest(app_with: AppWith) -> None:
    app = app_with()
    client, headers = app.test_client(), bearer(create_token(app))

    def publish(number: str, parts: dict[str, bytes], **fields: Any) -> Any:
        body = form(manifest(number=number, **fields), **parts)
        path = f"/api/widgets/acme/clock/{number}"
        return client.put(path, data=body, content_type=FORM_TYPE, headers=headers)

    assert publish("1.0.0", PARTS, **LINKS).status_code == 201
    first: Any = client.get(ABOUT).json
    assert first["readme"] == README
    assert fetch(client, first["picture"]["url"]).data == PARTS["picture"]
    assert publish("1.1.0", {}).status_code == 201
    assert client.get(ABOUT).json == first
    assert publish("1.2.0", {"readme": b"New"}, issues="https://new.example/").status_code == 201
    assert client.get(ABOUT).json == {**first, "readme": "New", "issues": "https://new.example/"}


def test_a_version_that_exists_leaves_readme_links_and_picture_unchanged(
    app_with: AppWith,
) -> None:
    app = app_with()
    client, headers = app.test_client(), bearer(create_token(app, permissions=("publish",)))
    path = "/api/widgets/acme/clock/1.0.0"
    body = form(manifest(**LINKS), **PARTS)
    assert client.put(path, data=body, content_type=FORM_TYPE, headers=headers).status_code == 201
    before, files = client.get(ABOUT).json, [*app.extensions["bundles"].hashes()]
    links = {"homepage": "https://evil.example/", "issues": "https://evil.example/"}
    body = form(manifest(**links), readme=b"Evil", picture=png(8, 8))
    for query in ("", "?dryRun=true"):
        response = client.put(path + query, data=body, content_type=FORM_TYPE, headers=headers)
        assert (response.status_code, response.json["published"]) == (200, False)
        assert "readme, links, keywords and picture are unchanged." in response.json["message"]
    assert client.get(ABOUT).json == before
    assert [*app.extensions["bundles"].hashes()] == files


REFUSED = {
    "http": (
        {},
        {"homepage": "http://acme.example/"},
        400,
        "homepage must be an absolute https URL",
    ),
    "scheme": ({}, {"issues": "javascript:alert(1)"}, 400, "issues must be an absolute http"),
    "SVG": ({"picture": b"<svg/>"}, {}, 400, "The picture must be a PNG, JPEG, WebP or AVIF file"),
    "no UTF-8": ({"readme": b"\xff"}, {}, 400, "The readme is not in UTF-8"),
    "large readme": ({"readme": bytes(65537)}, {}, 413, "The readme is too large"),
    "large picture": ({"picture": png() * 30_000}, {}, 413, "The picture is too large"),
}


@pytest.mark.parametrize(("parts", "fields", "status", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_changes_nothing(
    app_with: AppWith, parts: dict[str, bytes], fields: dict[str, str], status: int, message: str
) -> None:
    app = app_with()
    headers = bearer(create_token(app))
    body = form(manifest(**fields), **parts)
    response = app.test_client().put(
        "/api/widgets/acme/clock/1.0.0", data=body, content_type=FORM_TYPE, headers=headers
    )
    assert response.status_code == status
    assert message in response.json["error"]
    assert exported(app) == b""
    assert not list(app.extensions["bundles"].hashes())


def test_a_token_changes_and_removes_them(app_with: AppWith) -> None:
    app = app_with(about_clock(readme=README, **LINKS))
    client, headers = app.test_client(), bearer(create_token(app))
    path = "/api/widgets/acme/clock"
    changed = {"widget": "acme/clock", "changed": True}
    assert client.put(f"{path}/picture", data=png(), headers=headers).json == changed
    assert client.put(f"{path}/picture", data=png(), headers=headers).json["changed"] is False
    assert fetch(client, PICTURE).data == png()
    removed = {"readme": None, "homepage": "", "picture": None}
    assert client.patch(path, json=removed, headers=headers).json == changed
    assert client.get(ABOUT).json == {**NOTHING, **LINKS, "homepage": None}
    assert client.patch(path, json={"keywords": KEYWORDS}, headers=headers).json == changed
    assert client.get(ABOUT).json["keywords"] == KEYWORDS
    assert client.patch(path, json={"keywords": []}, headers=headers).json == changed
    assert client.get(ABOUT).json["keywords"] == []
    for body in ({"issues": "ftp://x/"}, {"keywords": [""]}, {"picture": described(png())}):
        assert client.patch(path, json=body, headers=headers).status_code == 400
    assert client.put(f"{path}/picture", data=b"GIF89a", headers=headers).status_code == 400
    assert (
        client.put("/api/widgets/acme/none/picture", data=png(), headers=headers).status_code == 404
    )
    publisher = bearer(create_token(app, "publisher", permissions=("publish",)))
    assert client.put(f"{path}/picture", data=png(), headers=publisher).status_code == 403


def test_an_invalid_document_names_its_problem(app_with: AppWith, tmp_path: Any) -> None:
    file = tmp_path / "catalog.jsonl"
    for about, problem in {
        '"x"': "about must be an object, not 'x'",
        '{"homepage": "http://acme.example/"}': "homepage must be an absolute https URL",
        '{"keywords": "clock"}': "keywords must be an array of at most 10 strings",
        '{"keywords": ["a,b"]}': "of 1 to 30 printable characters without a comma",
        '{"picture": {"type": "image/svg+xml"}}': "picture must be the type, size, width, height",
    }.items():
        widget = '{"scope": "acme", "name": "clock", "displayName": "Clock"}'
        file.write_text(f'{{"widget": {widget}, "about": {about}}}')
        assert problem in error_message(run(app_with(), "import", file))


def test_the_largest_of_them_pass_the_server(tmp_path: Path) -> None:
    database = create_catalog(tmp_path / "catalog.db", document("acme/clock"))
    app = create_app({"DATABASE": database})
    headers = bearer(create_token(app))
    app.extensions["database"].close()
    picture = png(64, 36, bytes(512 * 1024 - len(png(64, 36))))
    readme = "ü" * (32 * 1024)
    with Server(database) as server:
        for method, path, body, status in (
            ("PUT", "/picture", picture, 200),
            ("PUT", "/picture", picture + b"0", 413),
            ("PATCH", "", json.dumps({"readme": readme}, ensure_ascii=False).encode(), 200),
            ("PUT", "/2.0.0", form(manifest(number="2.0.0"), readme=b"2", picture=picture), 201),
        ):
            each = {**headers, "Content-Type": FORM_TYPE} if path == "/2.0.0" else headers
            response, _ = server.request(method, f"/api/widgets/acme/clock{path}", body, **each)
            assert response.status == status, (method, path)
        response, content = server.request("GET", PICTURE)
        assert (response.headers["Content-Type"], content) == ("image/png", picture)


@pytest.mark.parametrize(
    ("given", "stored"),
    {
        "most": ([f"{n}" * 30 for n in range(10)], [f"{n}" * 30 for n in range(10)]),
        "too many": ([str(n) for n in range(11)], None),
        "too long": (["x" * 31], None),
        "empty": ([" "], None),
        "control": (["a\x07b"], None),
        "number": ([1], None),
        "spaces": ([" world  clock ", "world clock", "Zeit"], ["world clock", "Zeit"]),
    }.values(),
)
def test_keywords_are_few_short_and_distinct(
    app_with: AppWith, given: list[Any], stored: list[str] | None
) -> None:
    app = app_with(document("acme/clock"))
    client, headers = app.test_client(), bearer(create_token(app))
    changes = {"keywords": given}
    response = client.patch("/api/widgets/acme/clock", json=changes, headers=headers)
    assert response.status_code == (200 if stored else 400)
    assert client.get(ABOUT).json["keywords"] == (stored or [])


def test_the_search_of_the_api_does_not_match_keywords_and_names(app_with: AppWith) -> None:
    clock = document("acme/dial", displayName="Horloge")
    client = app_with({**clock, "about": {"keywords": ["clock"]}}).test_client()
    found = [
        client.get("/api/v1/widgets/search", query_string=query).json["total"]
        for query in ({"q": "clock"}, {"q": "dial"}, {"q": "horloge"}, {"keyword": "other"})
    ]
    assert found == [0, 0, 1, 1]
