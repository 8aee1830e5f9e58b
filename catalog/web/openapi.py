"""openapi.json, parsed into what the reference page shows: operations, schemas, headers."""

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from ..data_files import find_data_file
from ..documents import Json
from ..semver_ranges import MAX_SAFE_INTEGER

DESCRIPTION_BYTES = find_data_file("web/openapi.json").read_bytes()
DESCRIPTION: Json = json.loads(DESCRIPTION_BYTES)
# The server URL in the file is relative, so that the file is valid as it is.
_BEFORE_SERVER, _AFTER_SERVER = DESCRIPTION_BYTES.split(b'{"url": "/"')

OPERATION_METHODS = ("get", "post")
# Types for which the page does not use the name that JSON Schema has.
TYPE_NAMES = {"integer": "whole number"}


class SchemaField(NamedTuple):
    """A field of an object."""

    name: str
    type: Markup
    limits: str
    required: bool
    description: str


class Parameter(NamedTuple):
    """A parameter of a request in its location: path, query or header."""

    name: str
    type: Markup
    limits: str
    required: bool
    description: str
    location: str
    choices: list[str]
    example: str | None


class OperationResponse(NamedTuple):
    """One status of an operation, with its body and the descriptions of its headers.

    A body is JSON with a named schema; without a schema, it has another media type.
    """

    status: str
    phrase: str
    description: str
    schema: str | None
    media_type: str | None
    headers: dict[str, str]

    @property
    def is_error(self) -> bool:
        """Whether the status is 4xx or 5xx."""
        return self.status >= "400"


class Operation(NamedTuple):
    """A method of a path, with the body of its example response."""

    id: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Parameter]
    responses: list[OperationResponse]
    example: object

    @property
    def path_parameters(self) -> list[str]:
        """The names of the parameters in the path."""
        return [parameter.name for parameter in self.parameters if parameter.location == "path"]


class Schema(NamedTuple):
    """A named object and its fields."""

    name: str
    description: str
    fields: list[SchemaField]


def render_description(server_url: str) -> bytes:
    """Return openapi.json with this URL as its server."""
    url = json.dumps(server_url, ensure_ascii=False).encode()
    return _BEFORE_SERVER + b'{"url": ' + url + _AFTER_SERVER


def load_operations() -> list[Operation]:
    """Return every operation, in the order of the description."""
    return [
        _load_operation(path, method, item)
        for path, item in DESCRIPTION["paths"].items()
        for method in OPERATION_METHODS
        if method in item
    ]


def load_schemas() -> list[Schema]:
    """Return every named object, in the order of the description."""
    return [
        Schema(
            name,
            schema["description"],
            [
                _load_field(key, value, required=key in schema["required"])
                for key, value in schema["properties"].items()
            ],
        )
        for name, schema in DESCRIPTION["components"]["schemas"].items()
    ]


def describe_headers(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the description of each response header; different ones are joined."""
    # A dict instead of a set, which has no order.
    descriptions: dict[str, dict[str, None]] = {}
    for response in (response for operation in operations for response in operation.responses):
        for name, description in response.headers.items():
            descriptions.setdefault(name, {})[description] = None
    return {name: " ".join(texts) for name, texts in descriptions.items()}


def build_target(operation: Operation, values: Mapping[str, str]) -> str:
    """Return the path and query of a request with these values; empty ones are omitted."""
    path = operation.path
    for name in operation.path_parameters:
        path = path.replace(f"{{{name}}}", quote(values[name], safe=""))
    query = {
        parameter.name: values[parameter.name]
        for parameter in operation.parameters
        if parameter.location == "query" and values.get(parameter.name)
    }
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def example_values(operation: Operation) -> dict[str, str]:
    """Return the parameters of the operation's example."""
    return {
        parameter.name: parameter.example
        for parameter in operation.parameters
        if parameter.example is not None
    }


def resolve(node: Json) -> Json:
    """Return the target of a reference, with the keys beside $ref; any other node as it is."""
    if "$ref" not in node:
        return node
    target: Any = DESCRIPTION
    for key in node["$ref"].removeprefix("#/").split("/"):
        target = target[key]
    return {**resolve(target), **{key: node[key] for key in node if key != "$ref"}}


def describe_type(schema: Json) -> Markup:
    """Return the type of a value in words, with links to the objects in it."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return Markup('<a href="#schema-{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(describe_type(option) for option in schema["anyOf"])
    if "const" in schema:
        return Markup("<code>{}</code>").format(json.dumps(schema["const"]))
    if schema["type"] == "array":
        return Markup("array of {}").format(describe_type(schema["items"]))
    types: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return escape(" or ".join(TYPE_NAMES.get(name, name) for name in types))


def describe_limits(schema: Json) -> str:
    """Return the bounds and the default of a value in words."""
    bounds = [
        _describe_range(schema.get("minimum"), schema.get("maximum"), ""),
        _describe_range(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _describe_range(schema.get("minItems"), schema.get("maxItems"), " items"),
        f"default {schema['default']}" if "default" in schema else "",
    ]
    return ", ".join(bound for bound in bounds if bound)


def render_code_spans(text: str) -> Markup:
    """Return a text with `code` in it as HTML."""
    parts = re.split("`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def example_body(response: Json) -> object:
    """Return the JSON body of a response's example; None if the response has none."""
    content = response.get("content", {}).get("application/json", {})
    if "examples" in content:
        return resolve(content["examples"]["demo"])["value"]
    return content.get("example")


def _load_operation(path: str, method: str, item: Json) -> Operation:
    operation = item[method]
    responses = {status: resolve(node) for status, node in operation["responses"].items()}
    parameters = [*item.get("parameters", []), *operation.get("parameters", [])]
    return Operation(
        id=operation["operationId"],
        tag=operation["tags"][0],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        description=operation["description"],
        parameters=[_load_parameter(resolve(node)) for node in parameters],
        responses=[_load_response(status, node) for status, node in responses.items()],
        example=example_body(responses["200"]),
    )


def _load_parameter(parameter: Json) -> Parameter:
    schema = {**parameter["schema"], "description": parameter["description"]}
    required = parameter.get("required", False)
    return Parameter(
        *_load_field(parameter["name"], schema, required=required),
        location=parameter["in"],
        choices=["true", "false"] if schema["type"] == "boolean" else schema.get("enum", []),
        example=_example_text(parameter["example"]) if "example" in parameter else None,
    )


def _example_text(example: object) -> str:
    # The page has one field for each parameter, also for one that can be repeated.
    return str(example[0] if isinstance(example, list) else example)


def _load_response(status: str, response: Json) -> OperationResponse:
    content = response.get("content", {})
    schema = content.get("application/json", {}).get("schema")
    return OperationResponse(
        status=status,
        phrase=HTTPStatus(int(status)).phrase,
        description=response["description"],
        schema=schema and schema["$ref"].rsplit("/", 1)[1],
        media_type=next(iter(content), None),
        headers={
            name: resolve(header)["description"]
            for name, header in response.get("headers", {}).items()
        },
    )


def _load_field(name: str, schema: Json, *, required: bool) -> SchemaField:
    resolved = resolve(schema)
    limits = describe_limits(resolved)
    return SchemaField(name, describe_type(schema), limits, required, resolved["description"])


def _describe_range(minimum: int | None, maximum: int | None, unit: str) -> str:
    highest = "2^53-1" if maximum == MAX_SAFE_INTEGER else str(maximum)
    if minimum == 1 and maximum is None and unit:
        return "not empty"
    if minimum is not None and maximum is not None:
        return f"{minimum} to {highest}{unit}"
    if minimum is not None:
        return f"from {minimum}{unit}"
    return f"at most {highest}{unit}" if maximum is not None else ""
