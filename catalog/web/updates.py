"""/updates: shows which of a dashboard's installed versions to update.

The form sends a POST request because a list may be too long for a URL; the request changes nothing.
If the list fits into a URL, the response redirects to that URL, which users can share.
"""

from collections import Counter

from flask import redirect, render_template, request, url_for
from werkzeug import Response as BaseResponse
from werkzeug.exceptions import ServiceUnavailable

from ..domain.documents import Json
from ..domain.installed_list import Installed, UpdatesQuery, read_installed_list
from ..domain.permissions import NOT_ADMITTED, REJECTED_BODY
from ..store.read.listed_widgets import find_listed_widget
from ..store.read.updates import CURRENT, MAX_INSTALLED, find_updates
from .formatting import format_count, format_number
from .pages import page_response, pages, parse_body, reader
from .parameters import read_parameters

NO_SDK = "Enter the SDK version of your dashboard, such as 1.4.0."
NO_LIST = "The list of installed versions is missing."
TOO_LONG = "The list is too long: it must not exceed 256 kB."
TOO_MANY = "Too many long lists are being checked. Try again in a few seconds."
# Proxies may reject a longer URL.
MAX_ADDRESS = 6_000  # characters

# The states of an installed version in the order in which the page lists them, with labels.
STATES = {
    "yanked": "Yanked",
    "incompatible": "Incompatible",
    "unknown": "Unknown",
    "unavailable": "Not in this catalog",
    "update": "Outdated",
    "deprecated": "Deprecated",
    "current": "Up to date",
}
# The reason why an entry in the list stays unchanged, by its state.
UNCHANGED = {
    "yanked": "yanked without a replacement",
    "incompatible": "incompatible without a replacement",
    "unknown": "with an unknown version",
    "unavailable": "not in this catalog",
    "deprecated": "deprecated without a replacement",
    "current": "up to date",
}


@pages.route("/updates", methods=["GET", "POST"])
def updates() -> BaseResponse:
    fields = request.form if request.method == "POST" else request.args
    parameters = read_parameters(fields=fields)
    # Each value may consist of several lines.
    text = "\n".join(fields.getlist("installed"))
    installed, notice, error = read_installed_list(text)
    errors, sdk = parameters.errors, parameters.sdk
    rejection = request.environ.get(REJECTED_BODY)
    if rejection == NOT_ADMITTED:
        raise ServiceUnavailable(TOO_MANY, retry_after=5)
    if rejection:
        error = TOO_LONG
    # Links from other pages contain only the SDK, so a missing list is not an error.
    if error or ("installed" in fields and not installed):
        errors["installed"] = error or NO_LIST
    if text.strip() and not parameters.sent["compatSdk"]:
        errors["compatSdk"] = NO_SDK
    if request.method == "POST" and installed and not errors and not notice:
        # The SDK is passed on as typed, so that the page can show how it was completed.
        typed, names = parameters.sent["compatSdk"], list(map(str, installed))
        address = url_for("pages.updates", compatSdk=typed, installed=names)
        if len(address) <= MAX_ADDRESS:
            return redirect(address, 303)
    is_complete = installed and sdk and not errors
    outcomes = find_outcomes(sdk, installed[:MAX_INSTALLED]) if is_complete else []
    page = render_template(
        "updates.html",
        parameters=parameters,
        text=text,
        notice=notice,
        outcomes=sorted(outcomes, key=lambda outcome: [*STATES].index(outcome["state"])),
        states=STATES,
        summary=summarize(outcomes),
        unchanged=describe_unchanged(outcomes),
        # The new list keeps the order of the given list, and includes unchanged versions.
        new_list=[Installed(each["scope"], each["name"], each["new"]) for each in outcomes],
        others=installed[MAX_INSTALLED:],
    )
    return page_response(page, parameters.status)


def find_outcomes(sdk: str, installed: list[Installed]) -> list[Json]:
    """Return the API's results for these versions, in order, with details for the page."""
    connection = reader()
    response = parse_body(find_updates(connection, UpdatesQuery(sdk, tuple(installed)))[1])
    widgets = [find_listed_widget(connection, each.scope, each.name) for each in installed]
    return [
        {
            **item,
            "state": find_state(item),
            "reasons": item["reason"].removesuffix(".").split("; "),
            "widget": widget and widget[1],
            "new": (item["update"] or {}).get("version", item["installed"]),
        }
        for item, widget in zip(response["updates"], widgets, strict=True)
    ]


def find_state(item: Json) -> str:
    """Return the key in STATES for an item in the API's response."""
    if item["yanked"]:
        return "yanked"
    if item.get("downgrade"):
        return "incompatible"
    if item["status"] != CURRENT:
        return str(item["status"])
    if not item["compatible"]:
        return "incompatible"
    return CURRENT if item["deprecationMessage"] is None else "deprecated"


def summarize(outcomes: list[Json]) -> str:
    """Return how many versions are in each state."""
    counts = Counter(outcome["state"] for outcome in outcomes)
    parts = [f"{counts[state]} {label.lower()}" for state, label in STATES.items() if counts[state]]
    return f"{format_count(len(outcomes), 'installed version')}: {', '.join(parts)}"


def describe_unchanged(outcomes: list[Json]) -> str:
    """Return how many entries in the new list are unchanged, and why; empty if all changed."""
    counts = Counter(outcome["state"] for outcome in outcomes if not outcome["update"])
    parts = [f"{counts[state]} {reason}" for state, reason in UNCHANGED.items() if counts[state]]
    if not parts:
        return ""
    are = "entry is" if counts.total() == 1 else "entries are"
    return f"{format_number(counts.total())} {are} unchanged: {', '.join(parts)}."
