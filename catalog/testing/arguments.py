"""Checks control requests: who may send them, and the arguments of their actions."""

import inspect
import json
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from ..domain.documents import Json
from ..domain.messages import quoted

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
# What messages call each type of argument.
KINDS: Mapping[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    list: "an array",
    type(None): "null",
}


def find_rejection(environ: "WSGIEnvironment") -> tuple[int, str] | None:
    """Return an error status and the reason if a web page could have sent this control request.

    A page on any site can send simple requests to a loopback port, and a site's host name may
    resolve to the loopback address (DNS rebinding).
    """
    if environ["REQUEST_METHOD"] != "POST":
        return 405, "A control request must be a POST."
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "A control request must have Content-Type: application/json."
    host = environ.get("HTTP_HOST", "")
    if host.rpartition(":")[0] not in LOOPBACK_NAMES and host not in LOOPBACK_NAMES:
        return 403, f"The Host of a control request must be {' or '.join(LOOPBACK_NAMES)}."
    if environ.get("HTTP_ORIGIN", f"http://{host}") != f"http://{host}":
        return 403, "Pages from another origin cannot send control requests."
    return None


def parse_arguments(action: Callable[..., object], body: bytes) -> Json:
    """Parse the arguments of an action; raise ValueError if the action does not accept them."""
    try:
        arguments = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError("The body of a control request must be a JSON object.")
    parameters = inspect.signature(action).parameters.values()
    named = {each.name: each for each in parameters if each.kind is not each.VAR_KEYWORD}
    unknown = arguments.keys() - named.keys()
    if unknown and len(named) == len(parameters):
        keys = f"accepts the keys {', '.join(named)}" if named else "accepts no keys"
        raise ValueError(f"{action.__name__} {keys}, not {quoted(min(unknown))}.")
    for name, parameter in named.items():
        if name not in arguments and parameter.default is parameter.empty:
            raise ValueError(f"{action.__name__} needs the key {name}.")
    types = get_type_hints(action)
    for name in named.keys() & arguments.keys():
        check_type(name, arguments[name], types[name])
    return arguments


def check_type(name: str, value: object, allowed: Any) -> None:
    """Raise ValueError if the value is not of an allowed type."""
    union = get_args(allowed) if isinstance(allowed, UnionType) else (allowed,)
    kinds = [get_origin(each) or each for each in union]
    if type(value) not in kinds and not (type(value) is int and float in kinds):
        words = " or ".join(KINDS[kind] for kind in kinds)
        raise ValueError(f"{name} must be {words}, not {quoted(value)}.")
