"""/updates: what to do about the versions that a dashboard has installed.

A script reads the pasted lines or the lockfile and sends only the versions in it, in the address.
Without the script, the form is a POST that changes nothing, since proxies refuse a long address.
"""

import re

from flask import Response, render_template, request, url_for

from ..documents import Json
from ..installed_list import Installed, UpdatesQuery, read_installed_list
from ..store.connection.sqlite import Connection
from ..store.read.updates import CURRENT, MAX_INSTALLED, find_updates
from .formatting import format_count, is_readable
from .pages import page_response, pages, parse_body, reader
from .parameters import read_parameters

NO_SDK = "The SDK version of your dashboard is missing, such as 1.4.0."
NO_LIST = "The list of installed versions is missing."
REQUIREMENT = re.compile(r"(\S+) needs SDK (.*[^…])", re.DOTALL)


# What to do about an installed version, in the order of the page.
LABELS = {
    "update": "Update",
    "downgrade": "Downgrade",
    "incompatible": "Does not run",
    "yanked": "Yanked",
    "unknown": "Unknown version",
    "unavailable": "Not in this catalog",
    "current": "Up to date",
}


@pages.route("/updates", methods=["GET", "POST"])
def updates() -> Response:
    fields = request.form if request.method == "POST" else request.args
    parameters = read_parameters(fields=fields)
    # Each may be a list of lines.
    text = "\n".join(fields.getlist("installed"))
    installed, notice, error = read_installed_list(text)
    errors, sdk = parameters.errors, parameters.sdk
    # Links from other pages carry the SDK alone.
    if error or ("installed" in fields and not installed):
        errors["installed"] = error or NO_LIST
    if text.strip() and not parameters.sent["compatSdk"]:
        errors["compatSdk"] = NO_SDK
    checked, others = installed[:MAX_INSTALLED], installed[MAX_INSTALLED:]
    outcomes = find_outcomes(sdk, checked) if checked and sdk and not errors else []
    page = render_template(
        "updates.html",
        parameters=parameters,
        text=text,
        notice=notice,
        outcomes=outcomes,
        labels=LABELS,
        summary=summarize(outcomes),
        others=len(others),
        link_to_others=url_for("pages.updates", installed=[str(each) for each in others]),
        # What did not fit into the address.
        not_sent=request.args.get("others", 0, int),
    )
    return page_response(page, parameters.status)


def load_updates(connection: Connection, query: UpdatesQuery) -> Json:
    """Return what the API responds for these installed versions."""
    response: Json = parse_body(find_updates(connection, query)[1])
    return response


def find_outcomes(sdk: str, installed: list[Installed]) -> list[Json]:
    """Return what to do about these versions, with what needs an action first."""
    items = load_updates(reader(), UpdatesQuery(sdk, tuple(installed)))["updates"]
    outcomes = [describe(item, sdk) for item in items]
    return sorted(outcomes, key=lambda outcome: [*LABELS].index(outcome["kind"]))


def describe(item: Json, sdk: str) -> Json:
    """Return an item of the API's response with its kind, a key of LABELS, and its reasons."""
    kind = item["status"]
    if item.get("downgrade"):
        kind = "downgrade"
    elif kind == CURRENT and not item["compatible"]:
        kind = "incompatible"
    elif kind == CURRENT and item["yanked"]:
        kind = "yanked"
    reasons = [readable(reason) for reason in item["reason"].removesuffix(".").split("; ")]
    if item["compatible"] is False:
        reasons.insert(0, f"{item['installed']} does not run on SDK {sdk}")
    return {**item, "kind": kind, "reasons": reasons}


def readable(reason: str) -> str:
    """Return the reason; a range that cannot be read is no requirement."""
    match = REQUIREMENT.fullmatch(reason)
    if match and not is_readable(match[2]):
        return f"{match[1]} does not say in a readable way which SDK it needs"
    return reason


def summarize(outcomes: list[Json]) -> str:
    """Return the number of updates in words; a downgrade is none."""
    kinds = [outcome["kind"] for outcome in outcomes]
    counts = [format_count(kinds.count("update"), "update")]
    if "downgrade" in kinds:
        counts.append(format_count(kinds.count("downgrade"), "downgrade"))
    return f"{', '.join(counts)} for {format_count(len(outcomes), 'installed version')}"
