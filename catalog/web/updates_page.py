"""/updates: what to do about the versions that a dashboard has installed."""

from typing import NamedTuple

from flask import Blueprint, Response, current_app, render_template, request, url_for

from ..documents import Json
from ..routing import public_url
from ..store.connection.database import Database
from ..store.read.installed_list import read_installed_list
from ..store.read.updates import CURRENT, MAX_INSTALLED, UPDATE, Installed, UpdatesQuery
from .caching import page_response
from .forms import read_sdk
from .queries import load_updates

NO_SDK = "The SDK version of your dashboard is missing, such as 1.4.0."
NO_LIST = "The list of installed versions is missing."

updates_page = Blueprint("updates_page", __name__)


class UpdatesForm(NamedTuple):
    """The fields of the form as they were sent, and what they contain."""

    text: str
    sdk_text: str
    sdk: str
    installed: list[Installed]
    notices: list[str]
    # By the name of the field.
    errors: dict[str, str]


@updates_page.get("/updates")
def updates() -> Response:
    return page_response(render_updates())


def render_updates() -> tuple[str, int]:
    form = read_form()
    checked, others = form.installed[:MAX_INSTALLED], form.installed[MAX_INSTALLED:]
    is_complete = bool(checked and form.sdk and not form.errors)
    items = find_items(form.sdk, checked) if is_complete else []
    page = render_template(
        "updates.html",
        form=form,
        items=items,
        update_count=sum(item["status"] == UPDATE for item in items),
        others=len(others),
        link=form_url(form.sdk, checked) if is_complete else None,
        link_to_others=form_url(form.sdk, others),
    )
    return page, 400 if form.errors else 200


def read_form() -> UpdatesForm:
    """Return the form in the query string; each value of installed may be a list of lines."""
    text = "\n".join(request.args.getlist("installed"))
    sdk_text = request.args.get("compatSdk", "").strip()
    sdk = read_sdk(sdk_text)
    installed = read_installed_list(text)
    errors = {}
    if installed.error or (sdk_text and not installed.installed):
        errors["installed"] = installed.error or NO_LIST
    if sdk.error or (text.strip() and not sdk_text):
        errors["compatSdk"] = sdk.error or NO_SDK
    notices = [notice for notice in (sdk.notice, installed.notice) if notice]
    return UpdatesForm(text, sdk_text, sdk.sdk, installed.installed, notices, errors)


def find_items(sdk: str, installed: list[Installed]) -> list[Json]:
    """Return what the API says about these versions, with what needs an action first."""
    database: Database = current_app.extensions["database"]
    query = UpdatesQuery(sdk, tuple(installed))
    items: list[Json] = load_updates(database.reader(), query, public_url())["updates"]
    return sorted(items, key=lambda item: (item["status"] == CURRENT, item["status"] != UPDATE))


def form_url(sdk: str, installed: list[Installed]) -> str:
    """Return the URL of the page for these versions, with the parameters of the API."""
    return url_for(
        "updates_page.updates", compatSdk=sdk, installed=[str(each) for each in installed]
    )


@updates_page.app_template_filter()
def describe_status(item: Json) -> str:
    """Return what to do about an installed version, in a few words."""
    if item["status"] == UPDATE:
        return "Downgrade" if item.get("downgrade") else "Update"
    if item["status"] == CURRENT:
        return "Yanked" if item["yanked"] else "Up to date"
    return "Not in this catalog" if item["status"] == "unavailable" else "Unknown version"
