"""Reads the parameters of all pages.

Every page treats an invalid parameter in the same way: as if it were absent, with a message beside
its field and status 400.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flask import g, request

from ..domain.semver_ranges import parse_sdk
from ..store.read.parameters import ParameterError
from ..store.read.search_params import MAX_Q_LENGTH, parse_search

# Messages for people, in place of the API's messages for programs.
SDK_ERROR = "An SDK version is three numbers, such as 1.4.0."
NEEDS_SDK = "Enter your SDK version to see only what runs on it."
ERRORS = {"q": f"Use at most {MAX_Q_LENGTH:,} characters.", "page": "There is no such page."}
OTHER_ERROR = "Choose one of the options."
BOOLEANS = ("compatible", "official", "stable")


def read_sdk(text: str) -> tuple[str, str, str]:
    """Return the SDK version, a notice if it was completed, and an error if it is invalid.

    1.4 and v1.4.0 are read as 1.4.0. Each of the three results may be empty.
    """
    # Copied text often ends with a space.
    text = text.strip()
    if not text:
        return "", "", ""
    try:
        sdk = parse_sdk(text)
    except ValueError:
        return "", "", SDK_ERROR
    return sdk, "" if sdk == text else f"Using SDK {sdk}.", ""


class Parameters(NamedTuple):
    """A page's parameters as sent, the valid ones, and an error for each invalid one."""

    sent: dict[str, str]
    valid: dict[str, str]
    notice: str
    errors: dict[str, str]

    @property
    def sdk(self) -> str:
        """The SDK version, empty if there is none."""
        return self.valid.get("compatSdk", "")

    @property
    def page(self) -> int:
        """The page number."""
        return int(self.valid.get("page", 1))

    @property
    def status(self) -> int:
        """The status of the response: 400 if a parameter is invalid."""
        return 400 if self.errors else 200

    def is_true(self, name: str) -> bool:
        """Return whether the parameter is valid and true."""
        return self.valid.get(name) == "true"


def read_parameters(*names: str, fields: Mapping[str, str] | None = None) -> Parameters:
    """Return compatSdk and the parameters with these names; an empty one counts as absent."""
    fields = request.args if fields is None else fields
    sent = {name: fields.get(name, "") for name in ("compatSdk", *names)}
    g.sdk, notice, error = read_sdk(sent["compatSdk"])
    sent["compatSdk"] = sent["compatSdk"].strip()
    valid = {"compatSdk": g.sdk} if g.sdk else {}
    errors = {"compatSdk": error} if error else {}
    for name in names:
        if not sent[name]:
            continue
        is_boolean = name in BOOLEANS
        if is_boolean:
            # Python clients send True instead of true.
            sent[name] = sent[name].lower()
        try:
            parse_search({"official" if is_boolean else name: sent[name]})
            valid[name] = sent[name]
        except ParameterError:
            errors[name] = ERRORS.get(name, OTHER_ERROR)
    if valid.get("compatible") == "true" and not g.sdk:
        del valid["compatible"]
        if not error:
            errors["compatible"] = NEEDS_SDK
    return Parameters(sent, valid, notice, errors)


def linked_sdk() -> str:
    """Return the SDK version that the links on this page contain."""
    if "sdk" not in g:
        g.sdk, _, _ = read_sdk(request.args.get("compatSdk", ""))
    sdk: str = g.sdk
    return sdk
