"""/updates: what to do about the versions that a dashboard has installed.

A script reads the pasted lines or the lockfile and sends only the versions in it, in the address.
Without the script, the form is a POST that changes nothing, since proxies refuse a long address.
"""

import json
import re
from typing import NamedTuple

from flask import Response, g, render_template, request, url_for

from ..documents import Json
from ..routing import public_url
from ..store.connection.sqlite import Connection
from ..store.read.installed_list import read_installed_list
from ..store.read.json_sql import with_bundle_urls
from ..store.read.updates import (
    CURRENT,
    MAX_INSTALLED,
    UNAVAILABLE,
    UPDATE,
    Installed,
    UpdatesQuery,
    find_updates,
)
from .formatting import format_count, is_readable
from .pages import page_response, pages, reader
from .parameters import read_sdk

NO_SDK = "The SDK version of your dashboard is missing, such as 1.4.0."
NO_LIST = "The list of installed versions is missing."
REQUIREMENT = re.compile(r"(\S+) needs SDK (.*[^…])", re.DOTALL)


class UpdatesForm(NamedTuple):
    """The fields of the form as they were sent, and what they contain."""

    text: str
    sdk_text: str
    sdk: str
    installed: list[Installed]
    notices: list[str]
    # By the name of the field.
    errors: dict[str, str]


class Outcome(NamedTuple):
    """What to do about an installed version, in a few words with their CSS class, and why."""

    item: Json
    kind: str
    label: str
    reasons: list[str]


# The outcomes that need an action come first.
ORDER = ("update", "downgrade", "incompatible", "yanked", "unknown", "unavailable", "current")


@pages.route("/updates", methods=["GET", "POST"])
def updates() -> Response:
    form = read_form()
    checked, others = form.installed[:MAX_INSTALLED], form.installed[MAX_INSTALLED:]
    is_complete = bool(checked and form.sdk and not form.errors)
    outcomes = find_outcomes(form.sdk, checked) if is_complete else []
    page = render_template(
        "updates.html",
        form=form,
        outcomes=outcomes,
        summary=summarize(outcomes),
        others=len(others),
        link_to_others=url_for("pages.updates", installed=[str(each) for each in others]),
        # What did not fit into the address.
        not_sent=request.args.get("others", 0, int),
    )
    return page_response(page, 400 if form.errors else 200)


def read_form() -> UpdatesForm:
    """Return the form that was sent; each value of installed may be a list of lines."""
    fields = request.form if request.method == "POST" else request.args
    text = "\n".join(fields.getlist("installed"))
    sdk_text = fields.get("compatSdk", "").strip()
    field, installed = read_sdk(sdk_text), read_installed_list(text)
    g.sdk = field.sdk
    errors = {}
    # Links from other pages carry the SDK alone.
    if installed.error or ("installed" in fields and not installed.installed):
        errors["installed"] = installed.error or NO_LIST
    if field.error or (text.strip() and not sdk_text):
        errors["compatSdk"] = field.error or NO_SDK
    notices = [notice for notice in (field.notice, installed.notice) if notice]
    return UpdatesForm(text, sdk_text, field.sdk, installed.installed, notices, errors)


def load_updates(connection: Connection, query: UpdatesQuery) -> Json:
    """Return what the API responds for these installed versions."""
    _, body = find_updates(connection, query)
    response: Json = json.loads(with_bundle_urls(body, public_url()))
    return response


def find_outcomes(sdk: str, installed: list[Installed]) -> list[Outcome]:
    """Return what to do about these versions, with what needs an action first."""
    items = load_updates(reader(), UpdatesQuery(sdk, tuple(installed)))["updates"]
    outcomes = [describe(item, sdk) for item in items]
    return sorted(outcomes, key=lambda outcome: ORDER.index(outcome.kind))


def describe(item: Json, sdk: str) -> Outcome:
    """Return the outcome of an item of the API's response."""
    kind, label = "unknown", "Unknown version"
    if item["status"] == UPDATE:
        kind, label = ("downgrade", "Downgrade") if item.get("downgrade") else ("update", "Update")
    elif item["status"] == UNAVAILABLE:
        kind, label = "unavailable", "Not in this catalog"
    elif item["status"] == CURRENT and not item["compatible"]:
        kind, label = "incompatible", "Does not run"
    elif item["status"] == CURRENT:
        kind, label = ("yanked", "Yanked") if item["yanked"] else ("current", "Up to date")
    reasons = [readable(reason) for reason in item["reason"].removesuffix(".").split("; ")]
    if item["compatible"] is False:
        reasons.insert(0, f"{item['installed']} does not run on SDK {sdk}")
    return Outcome(item, kind, label, reasons)


def readable(reason: str) -> str:
    """Return the reason; a range that cannot be read is no requirement."""
    match = REQUIREMENT.fullmatch(reason)
    if match and not is_readable(match[2]):
        return f"{match[1]} does not say in a readable way which SDK it needs"
    return reason


def summarize(outcomes: list[Outcome]) -> str:
    """Return the number of updates in words; a downgrade is none."""
    kinds = [outcome.kind for outcome in outcomes]
    counts = [format_count(kinds.count("update"), "update")]
    if "downgrade" in kinds:
        counts.append(format_count(kinds.count("downgrade"), "downgrade"))
    return f"{', '.join(counts)} for {format_count(len(outcomes), 'installed version')}"
