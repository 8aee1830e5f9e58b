"""openapi.json as a page shows it: its operations, fields and answers, and types in words."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from catalog.documents import Json
from catalog.semver_ranges import MAX_SAFE_INTEGER

TEXT = (Path(__file__).parent / "openapi.json").read_bytes()
DESCRIPTION: Json = json.loads(TEXT)
# The address in the file is relative, so that the file is valid on its own.
_BEFORE_ADDRESS, _AFTER_ADDRESS = TEXT.split(b'{"url": "/"')

METHODS = ("get", "post")
TYPES = {"integer": "whole number"}  # where JSON Schema's own word is not a person's


class Field(NamedTuple):
    """A field of an object or a parameter of a request."""

    name: str
    type: Markup
    limits: str
    required: bool
    description: str


class Parameter(NamedTuple):
    """A parameter, where it is sent, and what is sent in an example; None for nothing."""

    field: Field
    place: str
    choices: list[str]
    example: str | None


class Answer(NamedTuple):
    """One status that an operation can answer with, its body and its headers.

    A body is JSON of a named schema or, without one, of another media type.
    """

    status: str
    phrase: str
    description: str
    schema: str | None
    media_type: str | None
    headers: list[str]

    @property
    def is_error(self) -> bool:
        """Whether the request was not met."""
        return self.status >= "400"


class Operation(NamedTuple):
    """A method of a path, with the body that an example answers."""

    id: str
    tag: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[Parameter]
    answers: list[Answer]
    example: object

    @property
    def in_path(self) -> list[str]:
        """The names of the parameters that stand in the path."""
        return [one.field.name for one in self.parameters if one.place == "path"]


class Schema(NamedTuple):
    """A named object and its fields."""

    name: str
    description: str
    fields: list[Field]


def text_for(address: str) -> bytes:
    """The description as it is served at this address."""
    url = json.dumps(address, ensure_ascii=False).encode()
    return _BEFORE_ADDRESS + b'{"url": ' + url + _AFTER_ADDRESS


def operations() -> list[Operation]:
    """Every operation, in the order of the description."""
    return [
        _operation(path, method, item)
        for path, item in DESCRIPTION["paths"].items()
        for method in METHODS
        if method in item
    ]


def schemas() -> list[Schema]:
    """Every named object, in the order of the description."""
    return [
        Schema(
            name,
            schema["description"],
            [
                _field(key, value, required=key in schema["required"])
                for key, value in schema["properties"].items()
            ],
        )
        for name, schema in DESCRIPTION["components"]["schemas"].items()
    ]


def headers() -> dict[str, str]:
    """What each header says, by its name; where it says more in some answers, that too."""
    said: dict[str, dict[str, None]] = {}
    for response in _every_response():
        for name, header in response.get("headers", {}).items():
            said.setdefault(name, {})[resolved(header)["description"]] = None
    return {name: " ".join(descriptions) for name, descriptions in said.items()}


def address(operation: Operation, values: Mapping[str, str]) -> str:
    """The path and query that ask for these values; one that is not given or empty is left out."""
    path = operation.path
    for name in operation.in_path:
        path = path.replace(f"{{{name}}}", quote(values[name], safe=""))
    query = {
        one.field.name: values[one.field.name]
        for one in operation.parameters
        if one.place == "query" and values.get(one.field.name)
    }
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def example_values(operation: Operation) -> dict[str, str]:
    """The parameters of the operation's example."""
    return {one.field.name: one.example for one in operation.parameters if one.example is not None}


def resolved(node: Json) -> Json:
    """What a reference stands for, with what is said beside it; any other node as it is."""
    if "$ref" not in node:
        return node
    found: Any = DESCRIPTION
    for key in node["$ref"].removeprefix("#/").split("/"):
        found = found[key]
    return {**resolved(found), **{key: node[key] for key in node if key != "$ref"}}


def type_words(schema: Json) -> Markup:
    """The type of a value in words, with links to the objects in it."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return Markup('<a href="#schema-{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(type_words(one) for one in schema["anyOf"])
    if "const" in schema:
        return Markup("<code>{}</code>").format(json.dumps(schema["const"]))
    if schema["type"] == "array":
        return Markup("array of {}").format(type_words(schema["items"]))
    types: list[str] = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return escape(" or ".join(TYPES.get(one, one) for one in types))


def limit_words(schema: Json) -> str:
    """The bounds of a value and what stands for it when it is not given, in words."""
    bounds = [
        _range(schema.get("minimum"), schema.get("maximum"), ""),
        _range(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _range(schema.get("minItems"), schema.get("maxItems"), " items"),
        f"default {schema['default']}" if "default" in schema else "",
    ]
    return ", ".join(bound for bound in bounds if bound)


def prose(text: str) -> Markup:
    """A text with `code` in it, as HTML within a paragraph."""
    parts = re.split("`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def _operation(path: str, method: str, item: Json) -> Operation:
    described = item[method]
    answers = {status: resolved(one) for status, one in described["responses"].items()}
    parameters = [*item.get("parameters", []), *described.get("parameters", [])]
    return Operation(
        id=described["operationId"],
        tag=described["tags"][0],
        method=method.upper(),
        path=path,
        summary=described["summary"],
        description=described["description"],
        parameters=[_parameter(resolved(one)) for one in parameters],
        answers=[_answer(status, one) for status, one in answers.items()],
        example=example_body(answers["200"]),
    )


def _parameter(parameter: Json) -> Parameter:
    schema = parameter["schema"]
    return Parameter(
        field=_field(
            parameter["name"],
            {**schema, "description": parameter["description"]},
            required=parameter.get("required", False),
        ),
        place=parameter["in"],
        choices=["true", "false"] if schema["type"] == "boolean" else [],
        example=str(parameter["example"]) if "example" in parameter else None,
    )


def _answer(status: str, response: Json) -> Answer:
    content = response.get("content", {})
    schema = content.get("application/json", {}).get("schema")
    return Answer(
        status=status,
        phrase=HTTPStatus(int(status)).phrase,
        description=response["description"],
        schema=schema and schema["$ref"].rsplit("/", 1)[1],
        media_type=next(iter(content), None),
        headers=list(response.get("headers", {})),
    )


def example_body(response: Json) -> object:
    """The body that the description gives as an example of a response; None if it is not JSON."""
    content = response.get("content", {}).get("application/json", {})
    if "examples" in content:
        return resolved(content["examples"]["demo"])["value"]
    return content.get("example")


def _field(name: str, schema: Json, *, required: bool) -> Field:
    said = resolved(schema)
    return Field(name, type_words(schema), limit_words(said), required, said["description"])


def _range(low: int | None, high: int | None, unit: str) -> str:
    most = "2^53-1" if high == MAX_SAFE_INTEGER else str(high)
    if low == 1 and high is None and unit:
        return "not empty"
    if low is not None and high is not None:
        return f"{low} to {most}{unit}"
    if low is not None:
        return f"from {low}{unit}"
    return f"at most {most}{unit}" if high is not None else ""


def _every_response() -> list[Json]:
    return [
        resolved(response)
        for item in DESCRIPTION["paths"].values()
        for method in METHODS
        if method in item
        for response in item[method]["responses"].values()
    ]
