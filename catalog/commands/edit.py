"""The commands that change a widget or version: yank, deprecate, unlist, describe and others."""

import re
from itertools import chain
from typing import NamedTuple

import click

from ..changes import Moderated, WidgetName, is_version_or_range
from ..manifests import decode_readme
from ..semver_ranges import is_version
from ..store.write import moderation
from ..store.write.audit import local_actor
from ..store.write.lookup import get_widget, select_versions
from ..text import add_replacement, quoted
from ..validators import check_https_url
from .base import (
    CONTENT,
    TEXT,
    VERSION,
    WIDGET,
    WIDGET_OR_VERSION,
    CommandError,
    command,
    confirm,
    database,
    dry_run_option,
    print_latest,
    print_status,
)
from .catalogs import DatabaseCatalog, open_catalog, resolve_name
from .names import ValidatedType


class Outcome(NamedTuple):
    """How a command words what it did, or would do, to a version."""

    changed: str
    planned: str
    unchanged: str


YANKED = Outcome("Yanked", "Would yank", "is already yanked")
UNYANKED = Outcome("Unyanked", "Would unyank", "is not yanked")
DEPRECATED = Outcome("Deprecated", "Would deprecate", "already has this warning")
UNDEPRECATED = Outcome("No longer deprecated:", "Would undeprecate", "has no warning")

HTTPS_URL = ValidatedType("URL", lambda text: text and check_https_url(text))

version_arguments = click.argument(
    "versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True
)


@command("yank", remote=True)
@version_arguments
@click.option("--reason", type=TEXT, help="Why, for the people who use it.")
@dry_run_option
def yank(versions: tuple[WidgetName, ...], reason: str | None, dry_run: bool) -> None:
    """Withdraw versions.

    They can still be read, but are never the latest or a compatible version. Each VERSION is one
    version or an npm range of them, such as acme/clock@1.x; a range matches prereleases only where
    it names one.
    """
    set_yanked(versions, True, reason, dry_run)


@command("unyank", remote=True)
@version_arguments
@dry_run_option
def unyank(versions: tuple[WidgetName, ...], dry_run: bool) -> None:
    """Make yanked versions available again.

    Each VERSION is one version or an npm range of them.
    """
    set_yanked(versions, False, "", dry_run)


def set_yanked(
    targets: tuple[WidgetName, ...], yanked: bool, reason: str | None, dry_run: bool
) -> None:
    """Yank the versions or make them available again; None as the reason keeps the stored one."""
    results = open_catalog().set_yanked(targets, yanked, reason, dry_run=dry_run)
    print_changes(results, YANKED if yanked else UNYANKED, dry_run)
    for result in results:
        widget, _, _ = result["versions"][0]["version"].rpartition("@")
        before, after = result["previousLatestVersion"], result["latestVersion"]
        print_latest(widget, before, after, dry_run=dry_run)


@command("deprecate", remote=True)
# Neither is required here: click would report a missing message as a missing version.
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1)
@click.argument("message", metavar="MESSAGE", type=TEXT, required=False)
@click.option("--message", "option", type=TEXT, metavar="MESSAGE", help="In place of the argument.")
@click.option(
    "--replaced-by",
    type=WIDGET,
    metavar="WIDGET",
    help="Name the widget to use instead; then a MESSAGE is optional.",
)
@dry_run_option
def deprecate(
    versions: tuple[WidgetName, ...],
    message: str | None,
    option: str | None,
    replaced_by: WidgetName | None,
    dry_run: bool,
) -> None:
    """Set a warning on versions.

    Each VERSION is one version or an npm range of them, such as acme/clock@"<2.0.0"; a range
    matches prereleases only where it names one. MESSAGE is the warning that users see.
    """
    catalog = open_catalog()
    has_message = option is None and not (replaced_by and is_version_argument(message or ""))
    if message is not None and not has_message:
        # The last argument is a version too.
        versions, message = (*versions, VERSION.convert(message, None, None)), None
    message = message if option is None else option
    if replaced_by:
        if replaced_by in {each.widget for each in versions}:
            raise CommandError(f"{replaced_by} cannot be replaced by itself.")
        # A person would follow a mistyped name.
        if not catalog.read_document(replaced_by)["widget"]["listed"]:
            raise CommandError(f"{replaced_by} is not listed, so nobody could follow its name.")
        message = add_replacement(message or "", replaced_by)
    if message is None:
        raise click.UsageError("Give a VERSION and a MESSAGE.")
    if is_version_argument(message) or (not versions and WIDGET_ARGUMENT.fullmatch(message)):
        raise click.UsageError("The MESSAGE is missing at the end.")
    if not versions:
        raise click.UsageError("The VERSION is missing before the MESSAGE.")
    if not message:
        raise CommandError("The message is empty; widget-catalog undeprecate removes a warning.")
    results = catalog.set_deprecation(versions, message, dry_run=dry_run)
    print_changes(results, DEPRECATED, dry_run)


WIDGET_ARGUMENT = re.compile(r"[^\s/]+/[^\s/]+")


def is_version_argument(text: str) -> bool:
    """Return whether the text is scope/name@version, rather than a message that mentions one."""
    widget, _, version = text.rpartition("@")
    return WIDGET_ARGUMENT.fullmatch(widget) is not None and is_version_or_range(version)


@command("undeprecate", remote=True)
@version_arguments
@dry_run_option
def undeprecate(versions: tuple[WidgetName, ...], dry_run: bool) -> None:
    """Remove the warning of versions.

    Each VERSION is one version or an npm range of them.
    """
    results = open_catalog().set_deprecation(versions, None, dry_run=dry_run)
    print_changes(results, UNDEPRECATED, dry_run)


def print_changes(results: list[Moderated], outcome: Outcome, dry_run: bool) -> None:
    """Print what happened, or would happen, to each version."""
    for change in chain.from_iterable(result["versions"] for result in results):
        if change["changed"]:
            print_status(f"{outcome.planned if dry_run else outcome.changed} {change['version']}.")
        else:
            print_status(f"{change['version']} {outcome.unchanged}.")


@command("unlist", remote=True)
@click.argument("widget", type=WIDGET)
def unlist(widget: WidgetName) -> None:
    """Hide a widget from the public API.

    Search, detail, registry and statistics no longer show it; none of its data is lost.
    """
    set_property(widget, "listed", False, "is unlisted")


@command("relist", remote=True)
@click.argument("widget", type=WIDGET)
def relist(widget: WidgetName) -> None:
    """Show an unlisted widget again."""
    set_property(widget, "listed", True, "is listed")


def set_property(widget: WidgetName, key: str, value: bool, state: str) -> None:
    """Set a property of the widget, and print its state."""
    changed = open_catalog().edit_widget(widget, {key: value})["changed"]
    print_status(f"{widget} {state}{'' if changed else ' already'}.")


@command("official", remote=True)
@click.argument("widget", type=WIDGET)
@click.option("--off", is_flag=True, help="Mark it as not maintained by you.")
def official(widget: WidgetName, off: bool) -> None:
    """Mark a widget as maintained by you."""
    set_property(widget, "isOfficial", not off, "is not official" if off else "is official")


@command("describe", remote=True)
@click.argument("widget", type=WIDGET)
@click.option("--display-name", type=TEXT, help="The name that people see.")
@click.option("--description", type=TEXT, help='A short description; "" removes it.')
@click.option("--icon", type=TEXT, help='An Iconify icon such as mdi:clock; "" removes it.')
@click.option("--homepage", type=HTTPS_URL, metavar="URL", help="Who makes it, or more about it.")
@click.option("--repository", type=HTTPS_URL, metavar="URL", help="Where its source is.")
@click.option("--issues", type=HTTPS_URL, metavar="URL", help="Where to report a problem.")
@click.option("--readme", type=CONTENT, help="A Markdown file about the widget.")
@click.option("--picture", type=CONTENT, help="A picture of it: PNG, JPEG, WebP or AVIF.")
def describe(
    widget: WidgetName,
    display_name: str | None,
    readme: bytes | None,
    picture: bytes | None,
    **options: str | None,
) -> None:
    """Change what people read about a widget.

    An empty value removes what an option is about; only a display name is required. Versions that
    were published with their own display name, description or icon keep them.
    """
    if display_name == "":
        raise CommandError("The display name must not be empty.")
    text = None if readme is None else decode_readme(readme)
    texts = {"displayName": display_name, **options, "readme": text}
    changes = {key: value or None for key, value in texts.items() if value is not None}
    if picture == b"":
        changes["picture"] = None
    if not changes and not picture:
        raise click.UsageError("Give an option that says what to change.")
    catalog = open_catalog()
    changed = bool(changes) and catalog.edit_widget(widget, changes)["changed"]
    if picture:
        changed = catalog.set_picture(widget, picture)["changed"] or changed
    print_status(f"{widget} is {'described' if changed else 'already described like this'}.")


@command("delete")
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
def delete(target: WidgetName, yes: bool) -> None:
    """Delete a widget or version permanently.

    A widget is deleted with all its versions and its install count. The number of a deleted version
    can be published again only with the same bundle.
    """
    target = resolve_name(DatabaseCatalog(), target)
    if target.version is None:
        get_widget(database().fetch, target)
        question = f"Delete {target}, its versions and its install count permanently?"
    elif is_version(target.version):
        select_versions(database().fetch, [target])
        hint = "widget-catalog yank withdraws it and keeps it readable."
        question = f"Delete {target} permanently? ({hint})"
    else:
        raise CommandError(f"{quoted(target.version)} is not a version such as 1.4.0.")
    confirm(question, yes)
    before, after = moderation.delete(database(), local_actor(), target)
    print_status(f"Deleted {target}.")
    numbers = "The numbers of its versions" if target.version is None else "Its number"
    print_status(
        f"{numbers} can be published again only with the same bundle: clients may have it cached."
    )
    if target.version is not None:
        print_latest(target.widget, before, after)
