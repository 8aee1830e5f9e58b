"""/docs: the API reference, with examples from the catalog that is served."""

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from conftest import Server, create_demo, hold
from flask import Flask
from flask.testing import FlaskClient
from markup import element, elements

from app import create_app
from catalog.web.docs import abridged, json_text
from catalog.web.openapi import (
    DESCRIPTION,
    address,
    example_values,
    limit_words,
    operations,
    prose,
    schemas,
    type_words,
)

OPERATIONS = {operation.id: operation for operation in operations()}


def docs_of(client: FlaskClient) -> str:
    response = client.get("/docs")
    assert response.status_code == 200
    assert response.mimetype == "text/html"
    return response.text


@pytest.fixture
def page(demo: FlaskClient) -> str:
    return docs_of(demo)


def text(page: str, name: str) -> str:
    """The text of the element with this id, as it stands."""
    return "".join(element(page, id=name).texts)


def answer(page: str, operation_id: str) -> Any:
    """The body of an operation's example, as it stands in the page."""
    return json.loads(text(page, f"{operation_id}-answer").split(":", 1)[1])


def test_every_operation_is_there_with_its_parameters_and_answers(page: str) -> None:
    for operation in OPERATIONS.values():
        article = page.split(f'aria-labelledby="{operation.id}"')[1].split("</article>")[0]
        assert f">{operation.method}</span> <code>{operation.path}</code>" in article
        assert operation.summary in article
        for parameter in operation.parameters:
            assert f"<dt><code>{parameter.field.name}</code>" in article
            assert f'<span class="chip">{parameter.place}</span>' in article
        for one in operation.answers:
            assert f">{one.status}</strong> {one.phrase}" in article


def test_every_object_is_there_with_its_fields(page: str) -> None:
    for schema in schemas():
        article = page.split(f'aria-labelledby="schema-{schema.name}"')[1].split("</article>")[0]
        named = re.findall("<dt><code>(.*?)</code>", article)
        assert named == [field.name for field in schema.fields]


def test_every_header_that_an_answer_names_is_explained(page: str) -> None:
    named = {name for each in OPERATIONS.values() for one in each.answers for name in one.headers}
    assert {"ETag", "Cache-Control", "Content-Range", "Retry-After", "X-Request-Id"} <= named
    for header in named:
        assert text(page, f"header-{header}") == header


def test_header_that_says_more_of_a_bundle_is_explained_once_with_both(page: str) -> None:
    said = page.split('id="header-ETag"')[1].split("</div>")[0]
    assert "Names these very bytes." in said
    assert said.count("Of a bundle, it is the SHA-256 in quotes.") == 1


def test_answer_that_is_not_json_says_what_it_is(page: str) -> None:
    article = page.split('aria-labelledby="getBundle"')[1].split("</article>")[0]
    assert article.count("<code>text/javascript</code>") == 2
    assert 'id="getBundle-answer" hidden' in article


def test_every_link_leads_somewhere(page: str, demo: FlaskClient) -> None:
    for link in {link.attributes["href"] for link in elements(page, "a")}:
        if link.startswith("#"):
            assert elements(page, id=link[1:]), link
        else:
            assert demo.get(link).status_code == 200, link


def test_no_id_is_there_twice(page: str) -> None:
    ids = Counter(one.attributes["id"] for one in elements(page) if "id" in one.attributes)
    assert [name for name, count in ids.items() if count > 1] == []


def test_every_field_of_a_form_has_a_label(page: str) -> None:
    fields = [*elements(page, "input"), *elements(page, "select")]
    labelled = {label.attributes["for"] for label in elements(page, "label")}
    assert labelled == {field.attributes["id"] for field in fields}
    assert len(fields) == 6 + 2 + 2 + 1


def test_nothing_in_the_page_is_a_script_or_a_style_of_its_own(page: str) -> None:
    for one in elements(page):
        assert one.tag != "style"
        assert not [name for name in one.attributes if name == "style" or name.startswith("on")]
        assert one.tag != "script" or one.attributes["src"].startswith("/static/")


@pytest.mark.parametrize("operation_id", ["searchWidgets", "getWidget", "getRegistry", "getStats"])
def test_answers_in_the_page_are_those_of_the_service(
    page: str, demo: FlaskClient, operation_id: str
) -> None:
    live = demo.get(text(page, f"{operation_id}-command").split("localhost")[1].strip("'")).json
    if operation_id == "getRegistry":  # of which the page shows the example's widget alone
        live["widgets"] = [one for one in live["widgets"] if one["name"] == "weather"]
    assert answer(page, operation_id) == abridged(live)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_commands_of_the_page_work_as_they_stand(tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    _, html = server.request("GET", "/docs")
    commands = {name: text(html.decode(), f"{name}-command") for name in OPERATIONS}
    ran = {
        name: subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=10)
        for name, command in commands.items()
    }
    server.stop()
    no_bundle = json.loads(ran.pop("getBundle").stdout)  # the demo catalog holds none
    assert no_bundle == {"error": "No bundle of 'acme/weather@3.1.0' is held here."}
    for name, result in ran.items():
        assert json.loads(result.stdout).keys() == OPERATIONS[name].example.keys()  # type: ignore[attr-defined]


def test_example_of_a_bundle_is_the_newest_that_is_held(app_with: Callable[..., Flask]) -> None:
    app = app_with(
        document(
            "home/a b",
            bundled("1.0.0+x", b"1", publishedAt="2025-01-01T00:00:00.000Z"),
            bundled("2.0.0", b"2", publishedAt="2025-01-02T00:00:00.000Z"),
            bundled("3.0.0", b"3", publishedAt="2025-01-03T00:00:00.000Z"),
        )
    )
    path = "curl -s http://localhost/api/v1/widgets/home/a%20b/{}/bundle.js"
    client = app.test_client()
    assert text(docs_of(client), "getBundle-command") == path.format("3.0.0")
    hold(app, b"1")
    assert text(docs_of(client), "getBundle-command") == path.format("1.0.0%2Bx")
    hold(app, b"2")
    assert text(docs_of(client), "getBundle-command") == path.format("2.0.0")


def article(page: str, operation_id: str) -> str:
    """The part of the page about one operation."""
    return page.split(f'aria-labelledby="{operation_id}"')[1].split("</article>")[0]


def test_bundle_that_is_held_can_be_tried(app_with: Callable[..., Flask]) -> None:
    app = app_with(document("home/notes", bundled("1.0.0", b"1")))
    hold(app, b"1")
    shown = article(docs_of(app.test_client()), "getBundle")
    assert ">Try it</h4>" in shown
    assert 'value="1.0.0"' in shown


def test_example_of_a_bundle_that_is_not_held_has_nothing_to_follow(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(document("home/notes", bundled("1.0.0", b"1"), bundled("0.9.0", b"0")))
    page = docs_of(app.test_client())
    assert text(page, "getBundle-command").endswith("/home/notes/1.0.0/bundle.js")
    shown = article(page, "getBundle")
    assert ">Example</h4>" in shown
    assert "There is nothing at this address now, so it cannot be tried here." in shown
    assert not re.findall("<form|<a [^>]*bundle|action=", shown)
    assert ">Try it</h4>" in article(page, "getWidget")


def test_examples_of_an_empty_catalog_have_nothing_to_follow(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = docs_of(client_with())
    for name in ("getWidget", "countInstall", "getBundle", "getRegistry"):
        assert not re.findall("<form|<noscript", article(page, name)), name
    for name in ("searchWidgets", "getHealth", "getStats"):
        assert "<form" in article(page, name), name


@pytest.mark.parametrize(
    ("settings", "base_url", "address"),
    [
        ({}, "http://localhost/catalog", "http://localhost/catalog"),
        ({}, "https://widgets.example:8443", "https://widgets.example:8443"),
        ({"PUBLIC_URL": "https://public.example/w"}, "http://own/x", "https://public.example/w"),
    ],
    ids=["prefix", "scheme and port", "configured"],
)
def test_commands_and_description_have_the_public_address(
    client_with: Callable[..., FlaskClient],
    settings: dict[str, str],
    base_url: str,
    address: str,
) -> None:
    client = client_with(document("home/notes"), **settings)
    page = client.get("/docs", base_url=base_url).text
    assert text(page, "getWidget-command") == f"curl -s {address}/api/v1/widgets/home/notes"
    assert text(page, "start-search").startswith(f"curl -s '{address}/api/v1/widgets/search?")
    described = client.get("/openapi.json", base_url=base_url).json
    assert [each["url"] for each in described["servers"]] == [address]


def test_widget_without_versions_has_an_example_of_a_bundle_too(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = docs_of(client_with(document("home/notes")))
    assert "/home/notes/1.0.0/bundle.js" in text(page, "getBundle-command")


def test_first_steps_lead_from_a_search_to_the_bundle_that_runs(page: str) -> None:
    assert "q=weather&compatSdk=1.4.0" in text(page, "start-search")
    assert "acme/weather 2.6.0." in element(page, "main").text
    digest = "71bd1816efd9647c1d20eb6d84275476e18696d92cb0ee5784226998465066d7"
    assert text(page, "start-sha") == digest
    assert "https://cdn.example.com/acme/weather/2.6.0.js" in text(page, "start-fetch")
    assert text(page, "start-count").startswith("curl -s -X POST ")


def test_examples_are_of_the_catalog_that_is_served(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = docs_of(
        client_with(
            document("home/notes", version(), downloadCount=1),
            document("home/a b'c", version("2.0.0"), version("1.5.0"), downloadCount=2),
        )
    )
    assert text(page, "getWidget-command") == (
        "curl -s http://localhost/api/v1/widgets/home/a%20b%27c"
    )
    assert "'http://localhost/api/v1/widgets/search?compatSdk=1.4.0&limit=1'" in (
        text(page, "searchWidgets-command")
    )
    assert answer(page, "getWidget")["widget"]["name"] == "a b'c"
    assert text(page, "start-sha") == "0123456789abcdef" * 4
    assert "acme" not in text(page, "getRegistry-answer")


def test_widget_that_no_sdk_fits_leaves_nothing_to_fetch(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = docs_of(client_with(document("home/notes", version(sdkVersion="^9.0.0"))))
    assert not elements(page, id="start-fetch")
    assert "/home/notes" in text(page, "start-count")


def test_empty_catalog_has_the_examples_of_the_description(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = docs_of(client_with())
    assert answer(page, "getWidget") == abridged(OPERATIONS["getWidget"].example)
    assert "acme/weather" in text(page, "getWidget-command")


def test_catalog_that_cannot_be_read_is_documented_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = docs_of(create_app({"DATABASE": tmp_path / "none.db"}).test_client())
    assert answer(page, "getWidget") == abridged(OPERATIONS["getWidget"].example)
    assert [record.exc_info for record in caplog.records] == [None]  # a line, no stack trace


def test_text_of_the_catalog_stays_text_and_stays_short(
    client_with: Callable[..., FlaskClient],
) -> None:
    evil = '</pre><script>alert("x")</script>\u202e'
    client = client_with(
        document(
            "home/<b>", version(), displayName=evil, description="x" * 1_000_000, icon=evil * 50
        )
    )
    page = docs_of(client)
    assert "<b>" not in page
    assert "\u202e" not in page
    assert answer(page, "getWidget")["widget"]["displayName"] == evil
    assert len(elements(page, "script")) == 2
    assert len(page) < 100_000


def test_host_with_quotes_breaks_nothing(server: Server) -> None:
    response, html = server.request("GET", "/docs", Host="'-alert(1)-'")
    assert response.status == 200
    assert b"alert(1)" not in html


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_methods_and_headers_are_those_of_a_page(server: Server, path: str) -> None:
    for method, status in (("GET", 200), ("HEAD", 200), ("POST", 405), ("DELETE", 405)):
        response, _ = server.request(method, path, Origin="https://dashboard.example")
        assert response.status == status
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert sorted((response.headers["Allow"] or "").split(", ")) == ["GET", "HEAD", "OPTIONS"]
    response, _ = server.request("GET", f"{path}/")
    assert response.status == 404


def test_address_leaves_out_what_is_not_given_and_encodes_what_is() -> None:
    search = OPERATIONS["searchWidgets"]
    assert address(search, {}) == "/api/v1/widgets/search"
    assert address(search, {"q": "", "scope": "a&b", "page": "2"}) == (
        "/api/v1/widgets/search?scope=a%26b&page=2"
    )
    widget = OPERATIONS["getWidget"]
    assert address(widget, {"scope": "天", "name": "a/b"}) == ("/api/v1/widgets/%E5%A4%A9/a%2Fb")


def test_header_of_an_example_is_no_part_of_its_address() -> None:
    assert address(OPERATIONS["getRegistry"], {"scope": "acme", "If-None-Match": "x"}) == (
        "/api/widgets/acme/registry.json"
    )
    assert example_values(OPERATIONS["getRegistry"]) == {"scope": "acme"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "default": 20}, "whole number; from 1, default 20"),
        (
            {"type": ["integer", "null"], "minimum": 0, "maximum": 2**53 - 1},
            "whole number or null; 0 to 2^53-1",
        ),
        ({"type": "string", "maxLength": 9}, "string; at most 9 characters"),
        ({"type": "string", "minLength": 1}, "string; not empty"),
        ({"type": "string", "minLength": 1, "maxLength": 9}, "string; 1 to 9 characters"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "array of string; at most 3 items",
        ),
        ({"const": "<ok>"}, "<code>&#34;&lt;ok&gt;&#34;</code>; "),
        (
            {"anyOf": [{"$ref": "#/components/schemas/Size"}, {"type": "null"}]},
            '<a href="#schema-Size">Size</a> or null; ',
        ),
    ],
)
def test_schema_in_words(schema: dict[str, object], words: str) -> None:
    assert f"{type_words(schema)}; {limit_words(schema)}" == words


def test_code_in_a_text_is_marked_and_nothing_else_is_markup() -> None:
    assert prose("Send `a<b` & <i>") == "Send <code>a&lt;b</code> &amp; &lt;i&gt;"


def test_answer_is_cut_to_the_first_of_its_objects_and_the_start_of_its_texts() -> None:
    value = {"list": [{"a": "x" * 301}, {"a": 2}], "words": ["a"] * 21, "none": [], "null": None}
    assert abridged(value) == {
        "list": [{"a": "x" * 299 + "…"}],
        "words": ["a"] * 20,
        "none": [],
        "null": None,
    }


def test_json_shows_marks_that_turn_the_text_and_is_still_json() -> None:
    made = json_text({"name": "a\u202eb\u2067 مرحبا"})
    assert "a\\u202eb\\u2067 مرحبا" in made
    assert json.loads(made) == {"name": "a\u202eb\u2067 مرحبا"}


def test_every_description_is_a_sentence() -> None:
    def descriptions(node: object) -> list[str]:
        if isinstance(node, list):
            return [text for inner in node for text in descriptions(inner)]
        if not isinstance(node, dict):
            return []
        own = [node["description"]] if isinstance(node.get("description"), str) else []
        return own + descriptions(list(node.values()))

    everything = {key: value for key, value in DESCRIPTION.items() if key != "components"}
    parts = DESCRIPTION["components"]
    everything["parts"] = {key: value for key, value in parts.items() if key != "examples"}
    found = descriptions(everything)
    assert len(found) > 100
    assert [text for text in found if not text.endswith(".")] == []
