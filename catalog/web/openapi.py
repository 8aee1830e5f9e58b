"""Parses openapi.json for the reference page: operations, schemas and headers."""

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from ..domain.documents import Json
from ..domain.semver_ranges import MAX_SAFE_INTEGER
from ..system.data_files import find_data_file

DESCRIPTION_BYTES = find_data_file("web/openapi.json").read_bytes()
DESCRIPTION: Json = json.loads(DESCRIPTION_BYTES)
# The server URL in the file is relative, so that the file itself is valid.
_BEFORE_SERVER, _AFTER_SERVER = DESCRIPTION_BYTES.split(b'{"url": "/"')

OPERATION_METHODS = ("get", "post")
# Types that the page calls by another name than JSON Schema does.
TYPE_NAMES = {"integer": "whole number"}


class Operation(NamedTuple):
    """An HTTP method of a path, with resolved parameters and responses, and an example body."""

    id: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Json]
    # The responses, by status.
    responses: dict[str, Json]
    example: object

    @property
    def target(self) -> str:
        """The path and query of the example request."""
        return build_target(self, example_values(self))

    @property
    def is_live(self) -> bool:
        """Whether the example works in every catalog because its path does not name a widget."""
        return self.method == "GET" and "{" not in self.path


def render_description(server_url: str) -> bytes:
    """Return openapi.json with this URL as its server."""
    url = json.dumps(server_url, ensure_ascii=False).encode()
    return _BEFORE_SERVER + b'{"url": ' + url + _AFTER_SERVER


def load_operations() -> list[Operation]:
    """Return every operation, in the order of openapi.json."""
    return [
        _load_operation(path, method, item)
        for path, item in DESCRIPTION["paths"].items()
        for method in OPERATION_METHODS
        if method in item
    ]


def load_schemas() -> dict[str, Json]:
    """Return every named schema with its fields, by name."""
    return {
        name: {
            **schema,
            "fields": {
                key: _describe(resolve(value), value) for key, value in schema["properties"].items()
            },
        }
        for name, schema in DESCRIPTION["components"]["schemas"].items()
    }


def describe_headers(operations: Iterable[Operation]) -> dict[str, str]:
    """Return the description of each response header; different descriptions are joined."""
    # A dict serves as an ordered set.
    descriptions: dict[str, dict[str, None]] = {}
    for operation in operations:
        for response in operation.responses.values():
            for name, header in response.get("headers", {}).items():
                descriptions.setdefault(name, {})[resolve(header)["description"]] = None
    return {name: " ".join(texts) for name, texts in descriptions.items()}


def build_target(operation: Operation, values: Mapping[str, str]) -> str:
    """Return the path and query of a request with these values, without empty parameters."""
    path, query = operation.path, {}
    for parameter in operation.parameters:
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(values[name], safe=""))
        elif parameter["in"] == "query" and values.get(name):
            query[name] = values[name]
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def example_values(operation: Operation) -> dict[str, str]:
    """Return the parameter values in the operation's example."""
    examples = {each["name"]: each.get("example") for each in operation.parameters}
    # The example has one value for each parameter, even for a parameter that can be repeated.
    return {
        name: str(example[0] if isinstance(example, list) else example)
        for name, example in examples.items()
        if example is not None
    }


def resolve(node: Json) -> Json:
    """Return the target of a reference, with the keys beside $ref; return other nodes unchanged."""
    if "$ref" not in node:
        return node
    target: Any = DESCRIPTION
    for key in node["$ref"].removeprefix("#/").split("/"):
        target = target[key]
    return {**resolve(target), **{key: node[key] for key in node if key != "$ref"}}


def describe_type(schema: Json) -> Markup:
    """Return a value's type in words, with links to named schemas."""
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
    """Return a value's bounds and default in words."""
    schema = resolve(schema)
    bounds = [
        _describe_range(schema.get("minimum"), schema.get("maximum"), ""),
        _describe_range(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _describe_range(schema.get("minItems"), schema.get("maxItems"), " items"),
        f"default {schema['default']}" if "default" in schema else "",
    ]
    return ", ".join(bound for bound in bounds if bound)


def render_code_spans(text: str) -> Markup:
    """Convert a string with `code` in backticks to HTML."""
    parts = re.split("`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def example_body(response: Json) -> object:
    """Return the JSON body of a response's example; None if the response has none."""
    content = next((body for name, body in _contents(response) if _is_json(name)), {})
    if "examples" in content:
        return resolve(content["examples"]["demo"])["value"]
    return content.get("example")


def _contents(response: Json) -> Iterable[tuple[str, Json]]:
    """Return each media type of a response with its description."""
    content: dict[str, Json] = response.get("content", {})
    return content.items()


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _describe(node: Json, schema: Json) -> Json:
    """Return a parameter or field with its type, limits and description for the page."""
    words = {"words": describe_type(schema), "limits": describe_limits(schema)}
    return {**node, **words, "html": render_code_spans(node["description"])}


def _describe_response(status: str, node: Json) -> Json:
    """Return a response with its reason phrase, type and description for the page."""
    media_type, content = next(iter(_contents(node)), ("", {}))
    words = render_code_spans(f"`{media_type}`")
    if _is_json(media_type):
        words = describe_type(content["schema"])
    return {
        **node,
        "phrase": HTTPStatus(int(status)).phrase,
        "words": words if media_type else "",
        "html": render_code_spans(node["description"]),
    }


def _load_operation(path: str, method: str, item: Json) -> Operation:
    operation = item[method]
    responses = {
        status: _describe_response(status, resolve(node))
        for status, node in operation["responses"].items()
    }
    parameters = [*item.get("parameters", []), *operation.get("parameters", [])]
    return Operation(
        id=operation["operationId"],
        tag=operation["tags"][0],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        description=operation["description"],
        parameters=[_describe(each, each["schema"]) for each in map(resolve, parameters)],
        responses=responses,
        example=example_body(responses["200"]),
    )


def _describe_range(minimum: int | None, maximum: int | None, unit: str) -> str:
    highest = "2^53-1" if maximum == MAX_SAFE_INTEGER else str(maximum)
    if minimum == 1 and maximum is None and unit:
        return "not empty"
    if minimum is not None and maximum is not None:
        return f"{minimum} to {highest}{unit}"
    if minimum is not None:
        return f"from {minimum}{unit}"
    return f"at most {highest}{unit}" if maximum is not None else ""
