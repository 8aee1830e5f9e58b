"""openapi.json: valid, equal to the routes and the limits of the code, and true."""

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document, version
from conftest import DEMO, ROOT, Server, create_demo, hold
from flask import Flask
from flask.testing import FlaskClient
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

import catalog
from app import create_app
from catalog import semver_ranges, validators
from catalog.api import v1
from catalog.settings import DEFAULTS
from catalog.store.search_params import DEFAULT_LIMIT, MAX_LIMIT, MAX_Q_LENGTH, parse_search
from catalog.web.openapi import (
    DESCRIPTION,
    address,
    example_body,
    example_values,
    operations,
    resolved,
)

SCHEMAS = DESCRIPTION["components"]["schemas"]
OPERATIONS = {operation.id: operation for operation in operations()}
DEMO_WIDGETS = [
    "{scope}/{name}".format(**json.loads(line)["widget"])
    for line in DEMO.read_text(encoding="utf-8").splitlines()
    if json.loads(line)["widget"]["listed"]
]
DEMO_SCOPES = sorted({path.split("/")[0] for path in DEMO_WIDGETS})
MAX_BODY_BYTES = int(DEFAULTS["MAX_BODY_BYTES"])

# Each error, and a request that meets it.
ERRORS = {
    "BadRequest": ("GET", "/api/v1/widgets/search?compatSdk=1.4", b""),
    "NoListedWidget": ("GET", "/api/v1/widgets/acme/wether", b""),
    "NoWidget": ("POST", "/api/v1/widgets/acme/wether", b""),
    "BodyTooLarge": ("POST", "/api/v1/widgets/acme/weather", b"x" * (MAX_BODY_BYTES + 1)),
    "NoBundle": ("GET", "/api/v1/widgets/acme/weather/3.1.0/bundle.js", b""),
    "NoScope": ("GET", "/api/widgets/acm/registry.json", b""),
}

# The bundle of the description's examples, and the headers that lead to each answer about it.
BUNDLE = b"export default () => 'tick'\n"
BUNDLE_REQUESTS = {
    "200": {},
    "206": {"Range": "bytes=0-5"},
    "304": {"If-None-Match": f'"{hashlib.sha256(BUNDLE).hexdigest()}"'},
    "416": {"Range": f"bytes={len(BUNDLE)}-"},
}

# What no operation lists, each with a request that meets it.
REFUSALS = {
    400: ("GET", "/api/v1/widgets/search", {"Content-Length": "x"}),
    401: ("GET", "/api/users", {}),
    405: ("DELETE", "/api/v1/widgets/acme/weather", {}),
    414: ("GET", "/api/v1/widgets/" + "x" * int(DEFAULTS["MAX_HEAD_BYTES"]), {}),
    431: ("GET", "/api/stats", {"X-Long": "x" * int(DEFAULTS["MAX_HEAD_BYTES"])}),
}


def responses() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every response of every operation, with its path and status."""
    for path, item in DESCRIPTION["paths"].items():
        for method in item.keys() & {"get", "post"}:
            for status, response in item[method]["responses"].items():
                yield path, status, resolved(response)


def validator(schema: dict[str, Any]) -> OAS31Validator:
    """A validator of the schema in which an object holds what is described and nothing more."""
    components = deepcopy(DESCRIPTION["components"])
    for described in components["schemas"].values():
        described["additionalProperties"] = False
    return OAS31Validator({**schema, "components": components})


def parameters(operation_id: str) -> dict[str, dict[str, Any]]:
    """The schemas of an operation's parameters, by name."""
    item = DESCRIPTION["paths"][OPERATIONS[operation_id].path]
    described = item[OPERATIONS[operation_id].method.lower()]
    every = [*item.get("parameters", []), *described.get("parameters", [])]
    return {resolved(one)["name"]: resolved(one)["schema"] for one in every}


def test_description_is_valid_openapi() -> None:
    assert DESCRIPTION["openapi"].startswith("3.1.")
    assert [str(error) for error in OpenAPIV31SpecValidator(DESCRIPTION).iter_errors()] == []


def test_description_has_the_paths_and_methods_of_the_routes() -> None:
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), method)
        for rule in create_app().url_map.iter_rules()
        if rule.rule.startswith("/api/") and rule.methods is not None
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    assert routes == {(one.path, one.method) for one in OPERATIONS.values()}
    assert len(routes) == len(OPERATIONS)


def test_description_is_of_this_release() -> None:
    assert DESCRIPTION["info"]["version"] == catalog.__version__


def test_limits_are_those_of_the_code() -> None:
    asked = parameters("searchWidgets")
    answered = SCHEMAS["SearchResults"]["properties"]
    assert asked["limit"]["default"] == DEFAULT_LIMIT
    assert answered["limit"]["maximum"] == MAX_LIMIT
    for schema in (asked["page"], asked["limit"], answered["page"]):
        assert schema["maximum"] == semver_ranges.MAX_SAFE_INTEGER
    assert answered["widgets"]["maxItems"] == MAX_LIMIT
    assert asked["q"]["maxLength"] == MAX_Q_LENGTH
    assert asked["compatSdk"]["maxLength"] == semver_ranges.MAX_VERSION_LENGTH
    assert (
        SCHEMAS["VersionEntry"]["properties"]["version"]["maxLength"]
        == semver_ranges.MAX_VERSION_LENGTH
    )
    for schema in (parameters("getWidget"), SCHEMAS["Widget"]["properties"]):
        assert schema["scope"]["maxLength"] == validators.MAX_IDENTIFIER_LENGTH
        assert schema["name"]["maxLength"] == validators.MAX_IDENTIFIER_LENGTH
    for schema, count in (("Widget", "downloadCount"), ("VersionEntry", "bundleSize")):
        assert SCHEMAS[schema]["properties"][count]["maximum"] == semver_ranges.MAX_SAFE_INTEGER
    assert f"more than {MAX_LIMIT} " in str(DESCRIPTION["paths"]).lower()
    assert parameters("getBundle")["version"]["maxLength"] == semver_ranges.MAX_VERSION_LENGTH
    kept_for = DESCRIPTION["components"]["headers"]["Immutable"]["schema"]["enum"][0]
    assert f"max-age={v1.YEAR}," in kept_for
    assert f"more than {MAX_BODY_BYTES} bytes" in str(DESCRIPTION["components"]["responses"])


def test_page_that_is_asked_for_by_default_is_the_one_described() -> None:
    assert parameters("searchWidgets")["page"]["default"] == parse_search({}).page


@pytest.mark.parametrize(
    "text",
    [
        *[
            "1.4.0",
            "0.0.0",
            "1.2.3-rc.1",
            "1.2.3-0a.-.x+build.007",
            "1.0.0+5",
            "999999999999999.0.0",
        ],
        *[
            "",
            "1.4",
            "v1.4.0",
            "01.4.0",
            "1.4.0-01",
            "1.4.0-",
            "1.4.0+",
            "1.4.0 ",
            "1.4.x",
        ],
        *["99999999999999999.0.0", "１.4.0", "^1.4.0"],
    ],
)
def test_pattern_of_compat_sdk_takes_what_the_service_takes(text: str) -> None:
    described = validator(parameters("searchWidgets")["compatSdk"])
    assert described.is_valid(text) == semver_ranges.is_version(text)


def test_only_the_widget_api_is_described_as_open() -> None:
    for path, status, response in responses():
        is_open = "Access-Control-Allow-Origin" in response.get("headers", {})
        assert is_open == path.startswith("/api/v1/widgets/"), (path, status)


def test_every_response_is_in_use() -> None:
    used = {
        response["$ref"].rsplit("/", 1)[1]
        for item in DESCRIPTION["paths"].values()
        for method in item.keys() & {"get", "post"}
        for response in item[method]["responses"].values()
        if "$ref" in response
    }
    assert used == set(DESCRIPTION["components"]["responses"])


def test_every_example_has_the_form_that_is_described() -> None:
    for path, status, response in responses():
        content = response.get("content", {}).get("application/json")
        if content:
            problems = validator(content["schema"]).iter_errors(example_body(response))
            assert [problem.message for problem in problems] == [], (path, status)


def cut_as(value: Any, example: Any) -> Any:
    """The value with its lists cut to the length of the example's."""
    if isinstance(value, dict):
        return {key: cut_as(inner, example.get(key)) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [cut_as(inner, one) for inner, one in zip(value, example, strict=False)]
    return value


# An install would change the demo catalog, which holds no bundle: both have tests of their own.
@pytest.mark.parametrize("operation_id", sorted(OPERATIONS.keys() - {"countInstall", "getBundle"}))
def test_example_is_the_answer_of_the_demo_catalog(demo: FlaskClient, operation_id: str) -> None:
    operation = OPERATIONS[operation_id]
    answer = demo.get(address(operation, example_values(operation)))
    assert answer.status_code == 200
    assert cut_as(answer.json, operation.example) == operation.example


def test_example_of_an_install_is_its_answer(tmp_path: Path) -> None:
    app = create_app({"DATABASE": create_demo(tmp_path / "catalog.db")})
    operation = OPERATIONS["countInstall"]
    answer = app.test_client().post(address(operation, example_values(operation)))
    app.extensions["database"].close()
    assert answer.json == operation.example


@pytest.mark.parametrize("status", BUNDLE_REQUESTS)
def test_answers_about_a_bundle_that_is_held_are_those_described(
    app_with: Callable[..., Flask], status: str
) -> None:
    operation = OPERATIONS["getBundle"]
    app = app_with(document("acme/weather", bundled("3.1.0", BUNDLE)))
    hold(app, BUNDLE)
    described = resolved(DESCRIPTION["paths"][operation.path]["get"]["responses"][status])
    path = address(operation, example_values(operation))
    with app.test_client().get(path, headers=BUNDLE_REQUESTS[status]) as answer:
        assert answer.status_code == int(status)
        for name in described["headers"]:
            schema = resolved(described["headers"][name])["schema"]
            assert validator(schema).is_valid(answer.headers[name]), name
        for media_type, content in described.get("content", {}).items():
            assert answer.mimetype == media_type
            assert (answer.json if answer.is_json else answer.text) == content["example"]
        assert bool(answer.data) == ("content" in described)


@pytest.mark.parametrize("status", BUNDLE_REQUESTS)
def test_parts_that_are_asked_for_have_the_form_that_is_described(status: str) -> None:
    for name, value in BUNDLE_REQUESTS[status].items():
        assert validator(parameters("getBundle")[name]).is_valid(value)
    for value in ("bytes=0-5,7-9", "bytes=-", "bytes", "lines=0-5", ""):
        assert not validator(parameters("getBundle")["Range"]).is_valid(value)


@pytest.mark.parametrize(
    ("name", "path"),
    [("Fault", "/api/v1/widgets/acme/clock"), ("ClosedFault", "/api/widgets/acme/registry.json")],
)
def test_fault_is_described_with_the_number_it_has_in_the_log(
    app_with: Callable[..., Flask], name: str, path: str
) -> None:
    app = app_with(document("acme/clock", version()))
    connection = sqlite3.connect(app.config["DATABASE"], isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute("DROP TRIGGER summary_version_changed")
    connection.execute("UPDATE version SET permissions = '{'")
    connection.close()
    described = DESCRIPTION["components"]["responses"][name]
    answer = app.test_client().get(path)
    assert answer.status_code == 500
    for header, said in described["headers"].items():
        assert validator(resolved(said)["schema"]).is_valid(answer.headers[header]), header
    number = answer.headers["X-Request-Id"]
    example = described["content"]["application/json"]["example"]["error"]
    assert re.sub("[0-9a-f]{16}", number, example) == answer.json["error"]


@pytest.mark.parametrize("status", REFUSALS)
def test_refusal_that_no_operation_lists_has_the_body_of_every_error(
    server: Server, status: int
) -> None:
    method, path, headers = REFUSALS[status]
    answer, body = server.request(method, path, **headers)
    assert answer.status == status
    assert str(status) in DESCRIPTION["info"]["description"]
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert validator(SCHEMAS["Error"]).is_valid(json.loads(body))
    is_open = answer.headers["Access-Control-Allow-Origin"] == "*"
    assert is_open == path.startswith("/api/v1/widgets/")


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_no_answer_leaves_its_type_to_guess(server: Server, operation_id: str) -> None:
    operation = OPERATIONS[operation_id]
    answer, _ = server.request("HEAD", address(operation, example_values(operation)))
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ERRORS)
def test_example_of_an_error_is_what_the_service_says(demo: FlaskClient, name: str) -> None:
    method, path, body = ERRORS[name]
    answer = demo.open(path, method=method, data=body)
    described = DESCRIPTION["components"]["responses"][name]
    assert answer.json == example_body(described)
    assert described.get("headers", {}).keys() <= set(answer.headers.keys())


@pytest.mark.parametrize("operation_id", ["searchWidgets", "countInstall", "getStats", "getHealth"])
def test_example_of_an_unavailable_catalog_is_what_the_service_says(
    tmp_path: Path, operation_id: str
) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    operation = OPERATIONS[operation_id]
    answer = client.open(address(operation, example_values(operation)), method=operation.method)
    item = DESCRIPTION["paths"][operation.path]
    described = resolved(item[operation.method.lower()]["responses"]["503"])
    assert answer.status_code == 503
    assert answer.json == example_body(described)
    assert described.get("headers", {}).keys() <= set(answer.headers.keys())


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("WidgetDetail", [f"/api/v1/widgets/{path}" for path in DEMO_WIDGETS]),
        ("Registry", [f"/api/widgets/{scope}/registry.json" for scope in DEMO_SCOPES]),
        (
            "SearchResults",
            [f"/api/v1/widgets/search?limit=100{more}" for more in ("", "&compatSdk=1.4.0")],
        ),
    ],
)
def test_answers_hold_what_is_described_and_nothing_more(
    demo: FlaskClient, schema: str, paths: list[str]
) -> None:
    described = validator({"$ref": f"#/components/schemas/{schema}"})
    for path in paths:
        problems = described.iter_errors(demo.get(path).json)
        assert [problem.message for problem in problems] == [], path


def test_compatible_version_is_described_as_there_only_when_asked_for(demo: FlaskClient) -> None:
    summary = SCHEMAS["WidgetSummary"]
    asked = demo.get("/api/v1/widgets/search?compatSdk=1.4.0").json["widgets"][0]
    assert list(asked) == list(summary["properties"])
    assert summary["required"] == list(demo.get("/api/v1/widgets/search").json["widgets"][0])


def test_description_is_served_as_it_is_written_but_for_the_address(server: Server) -> None:
    answer, body = server.request("GET", "/openapi.json", Origin="https://dashboard.example")
    assert answer.status == 200
    written = (ROOT / "catalog" / "web" / "openapi.json").read_bytes()
    assert body == written.replace(b'"url": "/"', b'"url": "%b"' % server.url.encode())
    assert [str(error) for error in OpenAPIV31SpecValidator(json.loads(body)).iter_errors()] == []
    assert answer.headers["Content-Type"] == "application/json"
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    head, nothing = server.request("HEAD", "/openapi.json")
    assert (head.headers["Content-Length"], nothing) == (str(len(body)), b"")


def test_description_that_is_held_is_304(demo: FlaskClient) -> None:
    tag = demo.get("/openapi.json").headers["ETag"]
    answer = demo.get("/openapi.json", headers={"If-None-Match": tag})
    assert (answer.status_code, answer.data) == (304, b"")
    assert demo.get("/openapi.json", headers={"If-None-Match": '"other"'}).status_code == 200


def test_description_of_another_address_has_another_etag(demo: FlaskClient) -> None:
    tag = demo.get("/openapi.json").headers["ETag"]
    held = {"If-None-Match": tag}
    assert demo.get("/openapi.json", base_url="http://other", headers=held).status_code == 200


def test_service_does_what_the_description_says(tmp_path: Path) -> None:
    server = Server(create_demo(tmp_path / "catalog.db"))
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    bounds = ["--max-examples", "15", "--generation-deterministic"]
    try:
        ran = subprocess.run(
            [*command, "--checks", "all", *bounds, "--no-color", "--continue-on-failure"],
            cwd=tmp_path,  # where there are no settings of its own
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        server.stop()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"Tested: {len(OPERATIONS)}\n" in ran.stdout
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}\n" in ran.stdout
