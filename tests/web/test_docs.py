"""/docs: the API reference, which is openapi.json, and first steps in the served catalog."""

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
from builders import document, version
from conftest import Server, create_demo
from flask.testing import FlaskClient
from markup import element, elements

from app import create_app
from catalog.store.write.demo import demo_bundle
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
    return json.loads(text(page, f"{operation_id}-response"))


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


@pytest.mark.parametrize("is_demo", [True, False], ids=["demo", "another catalog"])
def test_examples_are_those_of_the_description(
    demo: FlaskClient, client_with: Callable[..., FlaskClient], is_demo: bool
) -> None:
    client = demo if is_demo else client_with(document("home/notes", version()))
    page = get_docs(client)
    for name, operation in OPERATIONS.items():
        if operation.example is not None:
            assert example(page, name) == operation.example
    links = [link.attributes["href"] for link in elements(page, "a")]
    own = [link for link in links if link.startswith("/api/")]
    # Only requests that every catalog has a response to, each once.
    assert own == [
        operation.target
        for operation in OPERATIONS.values()
        if operation.method == "GET" and "{" not in operation.path
    ]
    assert len(own) == 9
    assert {client.get(link).status_code for link in own} == {200}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_commands_of_the_page_work(tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    _, html = server.request("GET", "/docs")
    commands = {name: text(html.decode(), f"{name}-command") for name in OPERATIONS}
    results = {
        name: subprocess.run(shlex.split(command), capture_output=True, timeout=60)
        for name, command in commands.items()
    }
    server.stop()
    assert results.pop("getBundle").stdout.startswith(b"// Weather: sample data")
    assert results.pop("getPicture").stdout.startswith(b"RIFF")
    for name, result in results.items():
        assert json.loads(result.stdout).keys() == OPERATIONS[name].example.keys()  # type: ignore[attr-defined]


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
    client = client_with(document("home/notes", version()), **settings)
    page = client.get("/docs", base_url=base_url).text
    assert text(page, "getWidget-command") == f"curl -s {public_url}/api/v1/widgets/acme/weather"
    count = f"curl -s -X POST {public_url}/api/v1/widgets/home/notes/1.0.0"
    assert text(page, "start-count") == count
    assert text(page, "start-search").startswith(f"curl -s '{public_url}/api/v1/widgets/search?")
    description = client.get("/openapi.json", base_url=base_url).json
    assert [server["url"] for server in description["servers"]] == [public_url]


def test_first_steps_lead_to_the_compatible_bundle(page: str) -> None:
    assert "?compatSdk=1.4.0&compatible=true&limit=1" in text(page, "start-search")
    assert "acme/weather 2.6.0." in element(page, "main").text
    digest = hashlib.sha256(demo_bundle("acme", "weather", "2.6.0")).hexdigest()
    assert text(page, "start-sha") == digest
    assert "/api/v1/widgets/acme/weather/2.6.0/bundle.js" in text(page, "start-fetch")
    assert text(page, "start-count").startswith("curl -s -X POST ")


def test_first_steps_are_in_the_served_catalog(client_with: Callable[..., FlaskClient]) -> None:
    newer = version("2.0.0", sdkVersion="^2.0.0")
    page = get_docs(
        client_with(
            document("home/notes", version(), downloadCount=1),
            document("home/a b'c", newer, version("1.5.0"), downloadCount=2),
            document("home/newest", newer, downloadCount=3),
        )
    )
    *_, url = shlex.split(text(page, "start-count"))
    assert url == "http://localhost/api/v1/widgets/home/a%20b'c/1.5.0"
    assert text(page, "start-sha") == "0123456789abcdef" * 4


def test_catalog_without_a_version_for_the_sdk_has_no_commands_for_it(
    client_with: Callable[..., FlaskClient],
) -> None:
    page = get_docs(client_with(document("home/notes")))
    assert elements(page, id="start-count") == elements(page, id="start-fetch") == []
    assert "latestCompatibleVersion" in element(page, "main").text


def test_unreadable_catalog_has_the_reference_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = get_docs(create_app({"DATABASE": tmp_path / "none.db"}).test_client())
    assert example(page, "getWidget") == OPERATIONS["getWidget"].example
    # One log line, without a traceback.
    assert [record.exc_info for record in caplog.records] == [None]


def test_text_of_the_catalog_is_escaped(client_with: Callable[..., FlaskClient]) -> None:
    page = get_docs(client_with(document("home/<b>", version())))
    assert elements(page, "b") == []
    assert "home/<b>" in element(page, "main").text
    assert len(elements(page, "script")) == 2
