"""/updates: what to do about the versions that a dashboard has installed.

The form is a POST that changes nothing, since a lockfile is too long for an address. If all of its
versions fit into an address, the response redirects to it, so that it can be shared.
"""

import json
from collections import Counter

from flask import redirect, render_template, request, url_for
from werkzeug import Response as BaseResponse

from ..documents import Json
from ..installed_list import Installed, UpdatesQuery, read_installed_list
from ..rights import REFUSED_BODY, TOO_LARGE
from ..store.read.updates import CURRENT, MAX_INSTALLED, find_updates
from .formatting import format_count
from .pages import page_response, pages, parse_body, reader
from .parameters import read_parameters

NO_SDK = "The SDK version of your dashboard is missing, such as 1.4.0."
NO_LIST = "The list of installed versions is missing."
TOO_LONG = "The list is too long: it may have 256 kB."
TOO_MANY = "Too many long lists are checked now: please try again."
# Proxies may refuse a longer one.
MAX_ADDRESS = 6_000  # characters

# The states of an installed version, in the order of the page.
STATES = {
    "yanked": "Yanked",
    "incompatible": "Cannot run",
    "unknown": "Unknown",
    "unavailable": "Not in this catalog",
    "update": "To update",
    "deprecated": "Deprecated",
    "current": "Up to date",
}


@pages.route("/updates", methods=["GET", "POST"])
def updates() -> BaseResponse:
    fields = request.form if request.method == "POST" else request.args
    parameters = read_parameters(fields=fields)
    # Each may be a list of lines.
    text = "\n".join(fields.getlist("installed"))
    installed, notice, error = read_installed_list(text)
    errors, sdk = parameters.errors, parameters.sdk
    refusal = request.environ.get(REFUSED_BODY)
    if refusal:
        error = TOO_LONG if refusal == TOO_LARGE else TOO_MANY
    # Links from other pages carry the SDK alone.
    if error or ("installed" in fields and not installed):
        errors["installed"] = error or NO_LIST
    if text.strip() and not parameters.sent["compatSdk"]:
        errors["compatSdk"] = NO_SDK
    if request.method == "POST" and installed and not errors and not notice:
        # As it was typed, so that the page says how it was read.
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
        # In the order in which it was sent, with the versions that stay.
        new_list=[Installed(each["scope"], each["name"], each["new"]) for each in outcomes],
        others=installed[MAX_INSTALLED:],
    )
    return page_response(page, parameters.status)


WIDGETS = """
SELECT scope, name, display_name AS displayName, icon
FROM json_each(:names) AS item
JOIN widget ON scope = item.value ->> 0 AND name = item.value ->> 1
WHERE listed
"""


def find_outcomes(sdk: str, installed: list[Installed]) -> list[Json]:
    """Return what the API says about these versions, in their order, with what the page shows."""
    connection = reader()
    response = parse_body(find_updates(connection, UpdatesQuery(sdk, tuple(installed)))[1])
    names = json.dumps([each[:2] for each in installed])
    widgets = {
        (row["scope"], row["name"]): row for row in connection.execute(WIDGETS, {"names": names})
    }
    return [
        {
            **item,
            "state": find_state(item),
            "reasons": item["reason"].removesuffix(".").split("; "),
            "widget": widgets.get((item["scope"], item["name"])),
            "new": (item["update"] or {}).get("version", item["installed"]),
        }
        for item in response["updates"]
    ]


def find_state(item: Json) -> str:
    """Return the key of STATES for an item of the API's response."""
    if item["yanked"]:
        return "yanked"
    if item["status"] != CURRENT:
        return str(item["status"])
    if not item["compatible"]:
        return "incompatible"
    return CURRENT if item["deprecationMessage"] is None else "deprecated"


def summarize(outcomes: list[Json]) -> str:
    """Return how many versions are in which state."""
    counts = Counter(outcome["state"] for outcome in outcomes)
    parts = [f"{counts[state]} {label.lower()}" for state, label in STATES.items() if counts[state]]
    return f"{format_count(len(outcomes), 'installed version')}: {', '.join(parts)}"
