"""openapi.json is valid and matches the routes, the limits and the responses of the service."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from builders import bundled, document
from conftest import DEMO, ROOT, Server, create_demo, hold
from flask import Flask
from flask.testing import FlaskClient
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

import catalog
from app import create_app
from catalog.serving.http_syntax import MAX_HEAD
from catalog.settings import DEFAULTS
from catalog.web.openapi import (
    DESCRIPTION,
    build_target,
    example_body,
    example_values,
    load_operations,
    resolve,
)

SCHEMAS = DESCRIPTION["components"]["schemas"]
OPERATIONS = {operation.id: operation for operation in load_operations()}
DEMO_WIDGETS = [
    "{scope}/{name}".format(**json.loads(line)["widget"])
    for line in DEMO.read_text(encoding="utf-8").splitlines()
    if json.loads(line)["widget"]["listed"]
]
DEMO_SCOPES = sorted({path.split("/")[0] for path in DEMO_WIDGETS})
MAX_BODY_BYTES = int(DEFAULTS["MAX_BODY_BYTES"])

# A request for each error.
ERRORS = {
    "BadRequest": ("GET", "/api/v1/widgets/search?compatSdk=1.4", b""),
    "ListedWidgetNotFound": ("GET", "/api/v1/widgets/acme/wether", b""),
    "VersionNotFound": ("GET", "/api/v1/widgets/acme/weather/latest?compatSdk=0.1.0", b""),
    "WidgetNotFound": ("POST", "/api/v1/widgets/acme/wether", b""),
    "BodyTooLarge": ("POST", "/api/v1/widgets/acme/weather", b"x" * (MAX_BODY_BYTES + 1)),
    "UnknownHistory": ("GET", "/api/v1/widgets/changes?since=0123456789abcdef-1", b""),
    "BundleNotFound": ("GET", "/api/v1/widgets/acme/weather/3.1.0/bundle.js", b""),
    "ScopeNotFound": ("GET", "/api/widgets/acm/registry.json", b""),
}

# The bundle of the description's examples, and the request headers for each status.
BUNDLE = b"export default () => 'tick'\n"
BUNDLE_REQUESTS = {
    "200": {},
    "304": {"If-None-Match": f'"{hashlib.sha256(BUNDLE).hexdigest()}"'},
}

# A request for each error that no operation lists.
UNLISTED_ERRORS = {
    400: ("GET", "/api/v1/widgets/search", {"Content-Length": "x"}),
    401: ("GET", "/api/users", {}),
    405: ("DELETE", "/api/v1/widgets/acme/weather", {}),
    414: ("GET", "/api/v1/widgets/" + "x" * MAX_HEAD, {}),
    431: ("GET", "/api/stats", {"X-Long": "x" * MAX_HEAD}),
}


def responses() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every response of every operation, with its path and status."""
    for path, item in DESCRIPTION["paths"].items():
        for method in item.keys() & {"get", "post"}:
            for status, response in item[method]["responses"].items():
                yield path, status, resolve(response)


def validator(schema: dict[str, Any]) -> OAS31Validator:
    """Return a validator of the schema that allows no undescribed properties."""
    components = deepcopy(DESCRIPTION["components"])
    for component in components["schemas"].values():
        component["additionalProperties"] = False
    return OAS31Validator({**schema, "components": components})


def parameters(operation_id: str) -> dict[str, dict[str, Any]]:
    """Return the schemas of an operation's parameters, by name."""
    item = DESCRIPTION["paths"][OPERATIONS[operation_id].path]
    operation = item[OPERATIONS[operation_id].method.lower()]
    nodes = [*item.get("parameters", []), *operation.get("parameters", [])]
    return {resolve(node)["name"]: resolve(node)["schema"] for node in nodes}


def test_description_has_the_paths_and_methods_of_the_routes() -> None:
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method)
        for rule in create_app().url_map.iter_rules()
        if rule.rule.startswith("/api/") and not rule.endpoint.startswith("internal.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert routes == {(operation.path, operation.method) for operation in OPERATIONS.values()}
    assert len(routes) == len(OPERATIONS)


def test_description_has_the_version_of_the_release() -> None:
    assert DESCRIPTION["info"]["version"] == catalog.__version__


def test_limits_in_sentences_are_those_of_the_service(demo: FlaskClient) -> None:
    """Schemathesis sends values at and beyond the limits of the schemas."""
    limits = demo.get("/api/settings").json["search"]
    assert parameters("searchWidgets")["limit"]["default"] == limits["defaultLimit"]
    assert parameters("getUpdates")["installed"]["maxItems"] == 100
    assert f"more than {limits['maxLimit']} " in str(DESCRIPTION["paths"]).lower()
    assert f"more than {MAX_BODY_BYTES} bytes" in str(DESCRIPTION["components"]["responses"])


VERSIONS = [
    *("1.4.0", "1.2.3-0a.-.x+build.007", "999999999999999.0.0", "1.0.0-" + "a" * 250),
    *("", "1.4", "v1.4.0", "01.4.0", "1.4.0-01", "1.4.0-", "1.4.0+", "1.4.0 "),
    *("99999999999999999.0.0", "１.4.0", "1.0.0-" + "a" * 251),
]


@pytest.mark.parametrize("text", VERSIONS)
def test_pattern_of_compat_sdk_accepts_the_same_versions_as_the_service(
    demo: FlaskClient, text: str
) -> None:
    response = demo.get("/api/v1/widgets/search", query_string={"compatSdk": text})
    pattern = validator(parameters("searchWidgets")["compatSdk"])
    assert pattern.is_valid(text) == (response.status_code == 200)


def test_only_the_widget_api_has_cors_headers() -> None:
    for path, status, response in responses():
        for name in ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers"):
            has_cors = name in response.get("headers", {})
            assert has_cors == path.startswith("/api/v1/widgets/"), (path, status)


def test_every_example_matches_its_schema() -> None:
    for path, status, response in responses():
        if example_body(response) is not None:
            (content,) = response["content"].values()
            problems = validator(content["schema"]).iter_errors(example_body(response))
            assert [problem.message for problem in problems] == [], (path, status)


def truncate_like(value: Any, example: Any) -> Any:
    """Return the value with its lists cut to the lengths of those in the example."""
    if isinstance(value, dict):
        return {key: truncate_like(inner, example.get(key)) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [truncate_like(*pair) for pair in zip(value, example, strict=False)]
    return value


@pytest.fixture
def demo(imported_demo: Path) -> Iterator[FlaskClient]:
    """A client of the demo catalog without its bundles, so that no URL depends on the host."""
    app = create_app({"DATABASE": imported_demo})
    yield app.test_client()
    app.extensions["database"].close()


# Installs would change the demo catalog, and it holds no bundle and no picture: they have their
# own tests.
VERSION = {"version": "3.1.0"}
INSTALLS = {"countInstall", "countVersionInstall", "getInstalls"}
FILES = {"getBundle", "getAbout", "getPicture"}


@pytest.mark.parametrize("operation_id", sorted(OPERATIONS.keys() - INSTALLS - FILES))
def test_example_is_a_response_of_the_demo_catalog(demo: FlaskClient, operation_id: str) -> None:
    operation = OPERATIONS[operation_id]
    response = demo.get(build_target(operation, example_values(operation)))
    assert response.status_code == 200
    (media_type,) = resolve_response(operation_id, "200")["content"]
    assert response.mimetype == media_type
    body = json.loads(with_example_history(response.text))
    assert truncate_like(body, operation.example) == operation.example


def resolve_response(operation_id: str, status: str) -> dict[str, Any]:
    """Return the description of a response of an operation."""
    operation = OPERATIONS[operation_id]
    item = DESCRIPTION["paths"][operation.path][operation.method.lower()]
    return resolve(item["responses"][status])


def with_example_history(text: str) -> str:
    """Return the JSON with the random name of the history in tokens as in the description."""
    return re.sub('"[0-9a-f]{16}-([0-9]+)"', r'"5d1c0f9a27e84b36-\1"', text)


@pytest.mark.parametrize("operation_id", ["countInstall", "countVersionInstall"])
def test_example_of_an_install_is_a_response(tmp_path: Path, operation_id: str) -> None:
    app = create_app({"DATABASE": create_demo(tmp_path / "catalog.db")})
    operation = OPERATIONS[operation_id]
    response = app.test_client().post(build_target(operation, example_values(operation)))
    app.extensions["database"].close()
    assert response.json == operation.example


def test_example_of_installs_is_a_response(app_with: Callable[..., Flask]) -> None:
    app = app_with(document("acme/weather", bundled("3.1.0", BUNDLE), downloadCount=100))
    operation = OPERATIONS["getInstalls"]
    path = build_target(OPERATIONS["countVersionInstall"], example_values(operation) | VERSION)
    statuses = [app.test_client().post(path).status_code for _ in range(5)]
    path = build_target(OPERATIONS["countInstall"], example_values(operation))
    statuses += [app.test_client().post(path).status_code for _ in range(4)]
    assert statuses == [200] * 9
    body = app.test_client().get(build_target(operation, example_values(operation))).json
    body["days"][0]["day"] = "2026-11-16"
    assert body == operation.example


@pytest.mark.parametrize("status", BUNDLE_REQUESTS)
def test_responses_for_a_held_bundle_match_the_description(
    app_with: Callable[..., Flask], status: str
) -> None:
    operation = OPERATIONS["getBundle"]
    app = app_with(document("acme/weather", bundled("3.1.0", BUNDLE)))
    hold(app, BUNDLE)
    description = resolve(DESCRIPTION["paths"][operation.path]["get"]["responses"][status])
    path = build_target(operation, example_values(operation))
    with app.test_client().get(path, headers=BUNDLE_REQUESTS[status]) as response:
        assert response.status_code == int(status)
        for name, header in description["headers"].items():
            assert validator(resolve(header)["schema"]).is_valid(response.headers[name]), name
        for media_type, content in description.get("content", {}).items():
            assert response.mimetype == media_type
            body = response.json if response.is_json else response.get_data(as_text=True)
            assert body == content["example"]
        assert bool(response.data) == ("content" in description)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("InternalError", "/api/v1/widgets/acme/clock"),
        ("InternalErrorWithoutCors", "/api/widgets/acme/registry.json"),
    ],
)
def test_internal_error_has_its_request_id(
    app_with: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", BUNDLE)))
    hold(app, BUNDLE)
    # The URL of a stored bundle needs this setting.
    monkeypatch.delitem(app.config, "PUBLIC_URL")
    description = DESCRIPTION["components"]["responses"][name]
    response = app.test_client().get(path)
    assert response.status_code == 500
    for header, node in description["headers"].items():
        assert validator(resolve(node)["schema"]).is_valid(response.headers[header]), header
    request_id = response.headers["X-Request-Id"]
    example = description["content"]["application/json"]["example"]["error"]
    assert re.sub("[0-9a-f]{16}", request_id, example) == response.json["error"]


@pytest.mark.parametrize("status", UNLISTED_ERRORS)
def test_error_that_no_operation_lists_has_the_body_of_every_error(
    server: Server, status: int
) -> None:
    method, path, headers = UNLISTED_ERRORS[status]
    response, body = server.request(method, path, **headers)
    assert response.status == status
    assert str(status) in DESCRIPTION["info"]["description"]
    assert response.headers["Content-Type"] == "application/json"
    assert validator(SCHEMAS["Error"]).is_valid(json.loads(body))
    has_cors = response.headers["Access-Control-Allow-Origin"] == "*"
    assert has_cors == path.startswith("/api/v1/widgets/")


@pytest.mark.parametrize("name", ERRORS)
def test_example_of_an_error_is_a_response(demo: FlaskClient, name: str) -> None:
    method, path, body = ERRORS[name]
    response = demo.open(path, method=method, data=body)
    description = DESCRIPTION["components"]["responses"][name]
    assert response.json == example_body(description)
    assert description.get("headers", {}).keys() <= set(response.headers.keys())


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_example_of_an_unavailable_catalog_is_a_response(tmp_path: Path, operation_id: str) -> None:
    client = create_app({"DATABASE": tmp_path / "none.db"}).test_client()
    operation = OPERATIONS[operation_id]
    target = build_target(operation, example_values(operation))
    response = client.open(target, method=operation.method)
    item = DESCRIPTION["paths"][operation.path]
    described = item[operation.method.lower()]["responses"].get("503")
    assert (response.status_code == 503) == (described is not None)
    if described is not None:
        description = resolve(described)
        assert response.json == example_body(description)
        assert description.get("headers", {}).keys() <= set(response.headers.keys())
        assert response.headers.get("Retry-After", "5") == "5"


V1 = "/api/v1/widgets"
SDK = "compatSdk=1.4.0"
RESPONSES = {
    "WidgetDetail": [
        *(f"{V1}/{path}" for path in DEMO_WIDGETS),
        *(f"{V1}/{path}?{SDK}" for path in DEMO_WIDGETS),
    ],
    "VersionEntry": [f"{V1}/acme/weather/2.6.1"],
    "Updates": [f"{V1}/updates?{SDK}&installed={path}@1.0.0" for path in DEMO_WIDGETS],
    "ImportMap": [
        f"{V1}/importmap?{SDK}&widget={'&widget='.join(DEMO_WIDGETS)}",
        f"{V1}/importmap?{SDK}&widget=acme/weather@2.6.1&widget=acme/none&stable=true",
    ],
    "Installs": [f"{V1}/{path}/installs" for path in DEMO_WIDGETS],
    "Changes": [f"{V1}/changes", f"{V1}/changes?limit=100"],
    "Registry": [f"/api/widgets/{scope}/registry.json" for scope in DEMO_SCOPES],
    "SearchResults": [f"{V1}/search?limit=100", f"{V1}/search?limit=100&{SDK}&include=picture"],
}


@pytest.mark.parametrize(("schema", "paths"), RESPONSES.items(), ids=RESPONSES)
def test_responses_have_the_described_properties_and_no_others(
    demo: FlaskClient, schema: str, paths: list[str]
) -> None:
    schema_validator = validator({"$ref": f"#/components/schemas/{schema}"})
    for path in paths:
        problems = schema_validator.iter_errors(json.loads(demo.get(path).data))
        assert [problem.message for problem in problems] == [], path


def test_properties_that_a_request_asks_for_are_the_only_optional_ones(demo: FlaskClient) -> None:
    summary = SCHEMAS["WidgetSummary"]
    path = "/api/v1/widgets/search?compatSdk=1.4.0&include=picture"
    assert list(demo.get(path).json["widgets"][0]) == list(summary["properties"])
    assert summary["required"] == list(demo.get("/api/v1/widgets/search").json["widgets"][0])


def test_served_description_is_the_file_with_the_public_url(server: Server) -> None:
    _, body = server.request("GET", "/openapi.json")
    file = (ROOT / "catalog" / "web" / "openapi.json").read_bytes()
    assert body == file.replace(b'"url": "/"', b'"url": "%b"' % server.url.encode())
    assert [str(error) for error in OpenAPIV31SpecValidator(json.loads(body)).iter_errors()] == []


def test_description_with_another_public_url_has_another_etag(demo: FlaskClient) -> None:
    headers = {"If-None-Match": demo.get("/openapi.json").headers["ETag"]}
    response = demo.get("/openapi.json", base_url="http://other", headers=headers)
    assert response.status_code == 200


# OpenAPI cannot say that one query parameter needs another.
SCHEMATHESIS_HOOKS = """
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    if str((case.query or {}).get("compatible")).lower() == "true":
        case.query.setdefault("compatSdk", "1.4.0")
"""


# The second phase tries every boundary of every parameter.
PHASES = ("examples", "coverage", "fuzzing", "stateful")


# make test has the fuzzing of test_fuzzed_parameters.py.
@pytest.mark.torture
def test_responses_to_generated_requests_match_the_description(
    imported_demo: Path, tmp_path: Path
) -> None:
    server = Server(Path(shutil.copy(imported_demo, tmp_path / "catalog.db")))
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    # The same requests in each run.
    options = ["--max-examples", "20", "--generation-deterministic", "--workers", "1"]
    # A generated token is valid by its form, but of no history of this catalog.
    (tmp_path / "schemathesis.toml").write_text(
        '[checks]\npositive_data_acceptance.expected-statuses = ["2xx", "3xx", "404", "410"]\n'
    )
    (tmp_path / "request_hooks.py").write_text(SCHEMATHESIS_HOOKS)
    environment = {
        "SCHEMATHESIS_HOOKS": "request_hooks",
        "PYTHONPATH": str(tmp_path),
        # Hypothesis needs seconds to compute its table of UTF-8 characters, and stores it here.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
    }
    checked = ["--checks", "all", "--phases", ",".join(PHASES)]
    try:
        result = subprocess.run(
            [*command, *checked, *options, "--no-color", "--continue-on-failure"],
            # The directory with the configuration file.
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        server.stop()
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"Tested: {len(OPERATIONS)}\n" in result.stdout
    for phase in PHASES:
        assert f"✅ {phase.title()}\n" in result.stdout
