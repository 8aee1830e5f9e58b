"""What all pages have in common: escaping, headers, methods, errors, icons."""

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import Server
from flask.testing import FlaskClient
from markup import assert_page, cards, element, elements

from app import create_app
from catalog import __version__

WEATHER = "/widgets/acme/weather"
BASE = "https://w.example/catalog"
HOSTILE = "<script>alert(1)</script>\"'&<b>"
UPDATES = "/updates?compatSdk=1.4.0&installed=acme/weather@2.6.1"
PATHS = [
    *("/", "/?q=weather&compatSdk=1.4.0", "/?page=x", WEATHER, "/widgets/acme/none", "/none"),
    *("/updates", UPDATES, "/publish", "/docs"),
    *("/widgets/acme", f"{WEATHER}/2.6.1", f"{WEATHER}/9.9.9"),
    f"{WEATHER}/compare?from=2.6.0&to=3.1.0",
    "/compare?with=acme/weather&with=community/meteo-marine",
]


@pytest.mark.parametrize("field", ["displayName", "description"])
def test_text_of_the_catalog_is_escaped(
    client_with: Callable[..., FlaskClient], field: str
) -> None:
    hostile = version(
        releaseNotes=HOSTILE,
        license=HOSTILE,
        permissions=[HOSTILE],
        sdkVersion=HOSTILE,
        deprecationMessage=HOSTILE,
        bundleUrl="https://example.com/\"'><script>alert(1)</script>",
    )
    yanked = version("0.9.0", yanked=True, yankedReason=HOSTILE)
    name = "<script>alert(1)<script>\"'&"
    client = client_with(document(f"{name}/{name}", hostile, yanked, **{field: HOSTILE}))
    for path in ("/", "/?compatSdk=1.0.0", cards(client.get("/").text)[0]):
        page = assert_page(client.get(path), 200)
        for script in elements(page, "script"):
            assert re.fullmatch(r"/static/\w+\.[0-9a-f]{16}\.js", script.attributes["src"])
        assert elements(page, "b") == []
        assert HOSTILE in element(page, "main").text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A **round** clock with `hands`.\n\nMore.", "A round clock with hands."),
        ("# Clock\n\nSee [the *site*](https://a.example)\nand more.", "See the site and more."),
        ("# Only *this*", "Only this"),
        ("- one\n- two", "one"),
        ("Plain <b> text.\n\nMore.", "Plain <b> text."),
        ("Two\n \nparagraphs", "Two"),
        ("```\ncode\n```", ""),
    ],
)
def test_card_and_preview_have_the_first_paragraph_as_plain_text(
    client_with: Callable[..., FlaskClient], text: str, shown: str
) -> None:
    client = client_with(document("acme/clock", version(releaseNotes=text), description=text))
    assert element(client.get("/").text, "p", class_="description").text == shown
    assert meta(client.get("/widgets/acme/clock").text)["description"] == shown
    described = meta(client.get("/widgets/acme/clock/1.0.0").text)["description"]
    assert described == f"Version 1.0.0: {shown}"


def test_long_texts_are_shortened_on_cards(
    client_with: Callable[..., FlaskClient],
) -> None:
    text = "m" * 10_000
    client = client_with(document("acme/clock", version(), displayName=text, description=text))
    assert len(client.get("/").text) < 9_000
    assert len(client.get("/widgets/acme/clock").text) < 60_000


@pytest.mark.parametrize("path", PATHS)
def test_page_may_load_only_our_own_files(demo: FlaskClient, path: str) -> None:
    response = demo.get(path)
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("style", "img", "connect")} == {"'self'"}
    assert all(re.fullmatch("'sha256-[^']+'", source) for source in policy["script-src"].split())
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Referrer-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "no-cache"
    attributes = {name for node in elements(response.text) for name in node.attributes}
    assert not [name for name in attributes if name == "style" or name.startswith("on")]


def test_every_link_of_a_page_starts_with_the_path_prefix(demo: FlaskClient) -> None:
    base_url = "https://widgets.example:8443/catalog"
    for path in [*PATHS, "/?q=nothing+such", "/docs"]:
        page = demo.get(path, base_url=base_url).text
        links = [
            node.attributes[name]
            for node in elements(page)
            for name in ("href", "src", "action")
            if name in node.attributes
            and node.attributes.get("rel") not in ("canonical", "nofollow noopener")
        ]
        assert len(links) > 5
        allowed = ("/catalog/", "#", f"{base_url}/api/v1/widgets/")
        assert [link for link in links if not link.startswith(allowed)] == []


@pytest.mark.parametrize("first", ["", "/first"])
def test_links_have_the_prefix_of_the_request_and_not_of_an_earlier_one(
    demo: FlaskClient, first: str
) -> None:
    for prefix in (first, "/second", first):
        page = demo.get("/", base_url=f"https://widgets.example{prefix}").text
        styles = [each for each in elements(page) if each.attributes.get("rel") == "stylesheet"]
        assert styles
        for style in styles:
            assert style.attributes["href"].startswith(f"{prefix}/static/")


def test_navigation_marks_the_current_page_below_a_path_prefix(demo: FlaskClient) -> None:
    for path in ("/", "/updates", "/docs", "/publish"):
        page = demo.get(path, base_url="http://localhost/catalog").text
        (current,) = (
            link
            for link in elements(page, "a")
            if link.attributes.get("aria-current") == "page" and "aria-label" not in link.attributes
        )
        assert current.attributes["href"] == f"/catalog{path}"


@pytest.mark.parametrize("path", [*PATHS, "/static/catalog.css", "/static/none.css"])
def test_pages_have_no_cors_headers(demo: FlaskClient, path: str) -> None:
    for method in ("GET", "OPTIONS", "PUT"):
        with demo.open(path, method=method, headers={"Origin": "https://example.com"}) as response:
            names = [name for name, _ in response.headers]
        assert not [name for name in names if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "name", ["none.css", "../pages.py", "..%2Fpages.py", "%2Fetc%2Fpasswd", ""]
)
def test_only_static_files_are_served_below_static(server: Server, name: str) -> None:
    response, _ = server.request("GET", f"/static/{name}")
    assert response.status == 404


@pytest.mark.parametrize("path", ["/", WEATHER, "/static/catalog.css"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "FOO"])
def test_wrong_method_on_a_page_is_405_with_allow(
    demo: FlaskClient, method: str, path: str
) -> None:
    response = demo.open(path, method=method)
    page = assert_page(response, 405)
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert f"not '{method}'" in element(page, "main").text


@pytest.mark.parametrize(
    "path",
    [
        *("/nope", "/nope/", "/widgets/none", "/widgets/none/none/1.0.0/x/", "/%00", "/%0A"),
    ],
)
def test_unknown_path_outside_the_api_is_a_404_page(server: Server, path: str) -> None:
    response, body = server.request("GET", path)
    assert response.status == 404
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Location" not in response.headers
    assert element(body.decode(), "h1").text == "Page not found"


def test_unknown_path_of_a_damaged_catalog_is_a_404_page(
    client_with: Callable[..., FlaskClient],
) -> None:
    client = client_with(document("acme/clock"))
    with closing(sqlite3.connect(client.application.config["DATABASE"])) as connection:
        connection.execute("DROP TABLE listing")
    assert_page(client.get("/clokc"), 404)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (f"{WEATHER}/", WEATHER),
        (f"{WEATHER}/3.1.0/?compatSdk=1.4.0", f"{WEATHER}/3.1.0?compatSdk=1.4.0"),
        ("/widgets/acme//", "/widgets/acme"),
        ("/docs/", "/docs"),
        ("/widgets/", "/widgets"),
        ("/widgets?compatSdk=1.4", "/?compatSdk=1.4.0"),
        ("/widgets/a%20b/c%3Fd%23%5C/", "/widgets/a%20b/c%3Fd%23%5C"),
    ],
)
def test_other_writings_of_an_address_redirect_to_the_page(
    server: Server, path: str, target: str
) -> None:
    for method in ("GET", "HEAD"):
        response, _ = server.request(method, path)
        assert (response.status, response.headers["Location"]) == (302, target)
    response, _ = server.request("DELETE", path)
    assert response.status == (405 if path.startswith("/widgets?") else 404)


@pytest.mark.parametrize("path", ["//evil.example/", "/%5Cevil.example/", "//evil.example/docs/"])
def test_no_address_redirects_to_another_host(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    assert (response.status, response.headers["Location"]) == (404, None)


@pytest.mark.parametrize("path", ["/api/v1/widgets/acme/weather/", "/api/health/", "/feed.atom/x/"])
def test_the_api_has_no_redirects(server: Server, path: str) -> None:
    response, _ = server.request("GET", path)
    assert (response.status, response.headers["Location"]) == (404, None)


@pytest.mark.parametrize(
    ("contact", "target"),
    [
        ("", None),
        ("widgets@acme.example", "mailto:widgets@acme.example"),
        ("https://acme.example/@help", "https://acme.example/@help"),
    ],
)
def test_publishing_is_explained_with_the_contact_of_the_operator(
    client_with: Callable[..., FlaskClient], contact: str, target: str | None
) -> None:
    client = client_with(CONTACT=contact, PUBLIC_URL="https://w.example")
    page = assert_page(client.get("/publish"), 200)
    for command in ("login", "publish"):
        shown = element(page, "code", id=command).text
        assert shown.startswith(f"widget-catalog --server https://w.example {command}")
    links = [link.attributes["href"] for link in elements(page, "a") if link.text == contact]
    # For the wheel and for a token.
    assert links == ([target] * 2 if target else [])
    assert "ask the operator of this catalog" in page or target
    manifest = json.loads(element(page, id="manifest").text)
    assert {"scope", "name", "displayName", "version", "sdkVersion"} <= manifest.keys()
    assert element(page, id="check").text.endswith("publish clock.json clock.js --dry-run")


def test_wheel_of_the_service_is_offered_with_its_hash(
    client_with: Callable[..., FlaskClient], tmp_path: Path
) -> None:
    file = tmp_path / "widget_catalog-1.1.0-py3-none-any.whl"
    file.write_bytes(b"a wheel")
    client = client_with(WHEEL=file, PUBLIC_URL="https://w.example")
    page = assert_page(client.get("/publish"), 200)
    digest = hashlib.sha256(b"a wheel").hexdigest()
    command = f"pip install 'https://w.example/publish/{file.name}#sha256={digest}'"
    assert element(page, id="install").text == command
    assert element(page, id="ci").text.startswith(command)
    # A file that was replaced has another hash.
    file.write_bytes(b"another")
    os.utime(file, ns=(1, 1))
    assert hashlib.sha256(b"another").hexdigest() in client.get("/publish").text
    file.write_bytes(b"a wheel")
    (path,) = (link.attributes["href"] for link in elements(page, "a") if link.text == file.name)
    with client.get(path) as response:
        assert (response.status_code, response.data) == (200, b"a wheel")
        assert response.headers["Content-Disposition"] == f"attachment; filename={file.name}"
    assert_page(client.get("/publish/other.whl"), 404)
    # The page says whom to ask when the file is gone.
    file.unlink()
    assert_page(client.get(path), 404)
    assert elements(assert_page(client.get("/publish"), 200), id="install") == []


def test_setting_of_the_wheel_must_be_a_wheel(
    client_with: Callable[..., FlaskClient], tmp_path: Path
) -> None:
    for path in (tmp_path / "none.whl", Path(__file__)):
        with pytest.raises(Exception, match=r"a file whose name ends with \.whl"):
            client_with(WHEEL=path)


@pytest.mark.parametrize("path", ["/", WEATHER])
def test_missing_database_is_a_503_page(tmp_path: Path, path: str) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    response = client.get(path)
    page = assert_page(response, 503)
    assert response.headers["Retry-After"] == "5"
    assert element(page, "h1").text == "Temporarily unavailable"
    assert "none.db" not in page
    assert "Content-Security-Policy" in response.headers


def test_internal_error_is_a_page_without_a_traceback(
    client_with: Callable[..., FlaskClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_with(document("acme/clock", icon="mdi:clock"))
    monkeypatch.delitem(client.application.config, "ICONS")
    page = assert_page(client.get("/"), 500)
    assert "Internal server error." in page
    assert "KeyError" not in page


def test_icons_come_from_the_configured_directory(
    client_with: Callable[..., FlaskClient], tmp_path: Path
) -> None:
    own = '{"prefix": "own", "icons": {"star": {"body": "<path d=\\"M7 7\\"/>"}}}'
    (tmp_path / "own.json").write_text(own, encoding="utf-8")
    client = client_with(document("acme/clock", icon="own:star"), ICONS=tmp_path)
    for path in ("/", "/widgets/acme/clock"):
        assert 'd="M7 7"' in client.get(path).text


# What link previews read.


def meta(page: str) -> dict[str, str]:
    nodes = [node.attributes for node in elements(page, "meta")]
    return {
        node.get("name") or node["property"]: node["content"] for node in nodes if "content" in node
    }


@pytest.mark.parametrize("path", ["/", WEATHER, "/docs", "/updates"])
def test_page_describes_itself(demo: FlaskClient, path: str) -> None:
    page = demo.get(path, base_url=BASE).text
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == BASE + path
    described = meta(page)
    assert described["og:title"] == elements(page, "title")[0].text
    assert described["og:description"] == described["description"] != ""
    assert described["og:url"] == canonical


def test_canonical_address_is_below_the_public_url(
    demo: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = "https://public.example/widgets"
    monkeypatch.setitem(demo.application.config, "PUBLIC_URL", public)
    page = demo.get(f"{WEATHER}?compatSdk=1.4.0", base_url="http://localhost/internal").text
    canonical = element(page, "link", rel="canonical").attributes["href"]
    assert canonical == f"{public}{WEATHER}"


@pytest.mark.parametrize("path", ["/", "/none"])
def test_footer_has_the_release_and_links_that_exist(demo: FlaskClient, path: str) -> None:
    page = demo.get(path).text
    footer = element(page, "footer").text
    assert __version__ in footer
    links = [node for node in elements(page, "a") if node.text and node.text in footer]
    targets = {node.attributes["href"] for node in links}
    assert {"/feed.atom"} <= targets
    assert "/api/health" not in targets
    assert [url for url in targets if demo.get(url).status_code != 200] == []


# The 404 page suggests what the path may mean.


@pytest.mark.parametrize(
    ("path", "words", "first"),
    [
        ("/widgets/acme/wether", "wether", "/widgets/acme/weather"),
        ("/widgets/acmee/weather", "weather", "/widgets/acme/weather"),
        ("/widgets/acme/weather/9.9.9/x", "weather", "/widgets/acme/weather"),
        ("/weather.html", "weather", "/widgets/acme/weather"),
        ("/rain_radar", "rain radar", "/widgets/community/rain-radar"),
        ("/widgets/clok", "clok", "/widgets/acme/clock"),
    ],
)
def test_nearest_widget_is_suggested(demo: FlaskClient, path: str, words: str, first: str) -> None:
    page = assert_page(demo.get(path), 404)
    assert cards(page)[0] == first
    assert element(page, "input", name="q").attributes["value"] == words


def test_widget_of_the_same_scope_comes_first(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with(
        document("other/clocks", version(), downloadCount=9), document("acme/clocky", version())
    )
    assert cards(client.get("/widgets/acme/clock").text) == [
        "/widgets/acme/clocky",
        "/widgets/other/clocks",
    ]


def test_unlisted_widget_is_not_suggested(client_with: Callable[..., FlaskClient]) -> None:
    client = client_with(document("acme/secret", version(), listed=False))
    for path in ("/widgets/acme/secret", "/secret", "/secre"):
        assert cards(assert_page(client.get(path), 404)) == []


@pytest.mark.parametrize(
    "path", ["/xyzzyx", "/%00", "/%F0%9F%98%80", "/" + "a" * 5000, "/nothing/here"]
)
def test_page_without_a_similar_name_suggests_nothing(demo: FlaskClient, path: str) -> None:
    assert cards(assert_page(demo.get(path), 404)) == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/weather"), ("PUT", "/weather"), ("GET", "/static/weather")]
)
def test_nothing_is_searched_for_a_client_that_shows_no_page(
    demo: FlaskClient, method: str, path: str
) -> None:
    assert cards(assert_page(demo.open(path, method=method), 404)) == []


def test_missing_database_is_no_hindrance_to_a_404(tmp_path: Path) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    assert cards(assert_page(client.get("/weather"), 404)) == []
