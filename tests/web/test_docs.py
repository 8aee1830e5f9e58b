"""/docs: the API reference, with examples from the served catalog."""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from conftest import Server, create_demo
from flask import Flask
from flask.testing import FlaskClient
from markup import element, elements

from app import create_app
from catalog.files.demo import demo_bundle
from catalog.web.docs import abridge
from catalog.web.openapi import (
    DESCRIPTION,
    load_operations,
)

OPERATIONS = {operation.id: operation for operation in load_operations()}


def get_docs(client: FlaskClient) -> str:
    response = client.get("/docs")
    assert response.status_code == 200
    assert response.mimetype == "text/html"
    return response.text


@pytest.fixture
def page(demo: FlaskClient) -> str:
    return get_docs(demo)


def text(page: str, name: str) -> str:
    """Return the text of the element with this id."""
    return "".join(element(page, id=name).texts)


def article(page: str, name: str) -> str:
    """Return the part of the page about one operation or object."""
    return page.split(f'aria-labelledby="{name}"')[1].split("</article>")[0]


def example(page: str, operation_id: str) -> Any:
    """Return the response body of an operation's example in the page."""
    return json.loads(text(page, f"{operation_id}-response").split(":", 1)[1])


def test_every_operation_has_its_parameters_and_responses(page: str) -> None:
    for operation in OPERATIONS.values():
        shown = article(page, operation.id)
        assert f">{operation.method}</span> <code>{operation.path}</code>" in shown
        assert operation.summary in shown
        for parameter in operation.parameters:
            assert f"<dt><code>{parameter['name']}</code>" in shown
            assert f'<span class="chip">{parameter["in"]}</span>' in shown
        for status in operation.responses:
            assert f">{status}</strong> {HTTPStatus(int(status)).phrase}" in shown


def test_every_object_has_its_fields(page: str) -> None:
    for name, schema in DESCRIPTION["components"]["schemas"].items():
        names = re.findall("<dt><code>(.*?)</code>", article(page, f"schema-{name}"))
        assert names == list(schema["properties"])


def test_every_link_has_a_target(page: str, demo: FlaskClient) -> None:
    for link in {link.attributes["href"] for link in elements(page, "a")}:
        if link.startswith("#"):
            assert elements(page, id=link[1:]), link
        else:
            assert demo.get(link).status_code == 200, link


def test_every_field_of_a_form_has_a_label(page: str) -> None:
    fields = [*elements(page, "input"), *elements(page, "select")]
    labelled = {label.attributes["for"] for label in elements(page, "label")}
    assert labelled == {field.attributes["id"] for field in fields}
    assert len(fields) == 1 + 10 + 2 + 2 + 3 + 3 + 3 + 3 + 2 + 4 + 1


@pytest.mark.parametrize("operation_id", ["searchWidgets", "getWidget", "getRegistry", "getStats"])
def test_examples_are_responses_of_the_service(
    page: str, demo: FlaskClient, operation_id: str
) -> None:
    live = demo.get(text(page, f"{operation_id}-command").split("localhost")[1].strip("'")).json
    if operation_id == "getRegistry":
        # The page shows one widget of the scope.
        live["widgets"] = [widget for widget in live["widgets"] if widget["name"] == "weather"]
    assert example(page, operation_id) == abridge(live)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_commands_of_the_page_work(tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    _, html = server.request("GET", "/docs")
    commands = {name: text(html.decode(), f"{name}-command") for name in OPERATIONS}
    results = {
        name: subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=10)
        for name, command in commands.items()
    }
    server.stop()
    assert results.pop("getBundle").stdout.startswith("// A widget of the demo catalog.")
    for name, result in results.items():
        assert json.loads(result.stdout).keys() == OPERATIONS[name].example.keys()  # type: ignore[attr-defined]


def test_bundle_that_is_not_held_has_no_form_or_link(
    app_with: Callable[..., Flask],
) -> None:
    app = app_with(document("home/notes", bundled("1.0.0", b"1"), bundled("0.9.0", b"0")))
    page = get_docs(app.test_client())
    assert text(page, "getBundle-command").endswith("/home/notes/1.0.0/bundle.js")
    shown = article(page, "getBundle")
    assert ">Example</h4>" in shown
    assert "This catalog has no response for this example, so it cannot be tried here." in shown
    assert not re.findall("<form|<a [^>]*bundle|action=", shown)
    assert ">Try it</h4>" in article(page, "getWidget")


def test_examples_of_an_empty_catalog_have_no_form_or_link(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = get_docs(client_with())
    for name in ("getWidget", "countInstall", "getBundle", "getRegistry"):
        assert not re.findall("<form|<noscript", article(page, name)), name
    for name in ("searchWidgets", "getHealth", "getStats"):
        assert "<form" in article(page, name), name


@pytest.mark.parametrize(
    ("settings", "base_url", "public_url"),
    [
        ({}, "http://localhost/catalog", "http://localhost/catalog"),
        ({}, "https://widgets.example:8443", "https://widgets.example:8443"),
        ({"PUBLIC_URL": "https://public.example/w"}, "http://own/x", "https://public.example/w"),
    ],
    ids=["prefix", "scheme and port", "configured"],
)
def test_commands_and_description_have_the_public_url(
    client_with: Callable[..., FlaskClient],
    settings: dict[str, str],
    base_url: str,
    public_url: str,
) -> None:
    client = client_with(document("home/notes"), **settings)
    page = client.get("/docs", base_url=base_url).text
    assert text(page, "getWidget-command") == f"curl -s {public_url}/api/v1/widgets/home/notes"
    assert text(page, "start-search").startswith(f"curl -s '{public_url}/api/v1/widgets/search?")
    description = client.get("/openapi.json", base_url=base_url).json
    assert [server["url"] for server in description["servers"]] == [public_url]


def test_first_steps_lead_to_the_compatible_bundle(page: str) -> None:
    assert "q=weather&compatSdk=1.4.0" in text(page, "start-search")
    assert "acme/weather 2.6.0." in element(page, "main").text
    digest = hashlib.sha256(demo_bundle("acme", "weather", "2.6.0")).hexdigest()
    assert text(page, "start-sha") == digest
    assert "/api/v1/widgets/acme/weather/2.6.0/bundle.js" in text(page, "start-fetch")
    assert text(page, "start-count").startswith("curl -s -X POST ")


def test_examples_are_from_the_served_catalog(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = get_docs(
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
    assert example(page, "getWidget")["widget"]["name"] == "a b'c"
    assert text(page, "start-sha") == "0123456789abcdef" * 4
    assert "acme" not in text(page, "getRegistry-response")


def test_empty_catalog_has_the_examples_of_the_description(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = get_docs(client_with())
    assert example(page, "getWidget") == abridge(OPERATIONS["getWidget"].example)
    assert "acme/weather" in text(page, "getWidget-command")


def test_unreadable_catalog_has_the_examples_of_the_description(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = get_docs(create_app({"DATABASE": tmp_path / "none.db"}).test_client())
    assert example(page, "getWidget") == abridge(OPERATIONS["getWidget"].example)
    # One log line, without a traceback.
    assert [record.exc_info for record in caplog.records] == [None]


def test_text_of_the_catalog_is_escaped_and_shortened(
    client_with: Callable[..., FlaskClient],
) -> None:
    hostile = '</pre><script>alert("x")</script>\u202e'
    client = client_with(
        document(
            "home/<b>",
            version(),
            displayName=hostile,
            description="x" * 10_000,
            icon=hostile * 50,
        )
    )
    page = get_docs(client)
    assert "<b>" not in page
    assert "\u202e" not in page
    assert example(page, "getWidget")["widget"]["displayName"] == hostile
    assert len(elements(page, "script")) == 2
    assert len(page) < 150_000
