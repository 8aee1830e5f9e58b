"""The commands that change a widget or version: yank, deprecate, unlist, describe and others."""

from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import click

from ..domain.changes import Moderated, WidgetName
from ..domain.documents import Json
from ..domain.manifests import decode_readme
from ..domain.messages import NotAllowedError, quoted
from ..domain.replacement import add_replacement
from ..domain.semver_ranges import is_version
from ..domain.validators import (
    MAX_KEYWORD_LENGTH,
    MAX_KEYWORDS,
    check_https_url,
    check_keywords,
)
from ..store.read.audit import local_actor
from ..store.read.lookup import get_widget, select_versions
from ..store.write import moderation
from .base import command
from .catalogs import DatabaseCatalog, open_catalog, resolve_name
from .context import database
from .options import (
    CONTENT,
    TEXT,
    VERSION,
    WIDGET,
    WIDGET_OR_VERSION,
    ValidatedType,
    dry_run_option,
)
from .output import CommandError, confirm, print_latest, print_status


class Outcome(NamedTuple):
    """The words for reporting that a version changed, would change, or was left unchanged."""

    changed: str
    planned: str
    unchanged: str
    # What the command can update on a version that is already in this state, such as its
    # "reason"; may be empty.
    detail: str


YANKED = Outcome("Yanked", "Would yank", "is already yanked", "reason")
UNYANKED = Outcome("Unyanked", "Would unyank", "is not yanked", "")
DEPRECATED = Outcome("Deprecated", "Would deprecate", "already has this warning", "warning")
UNDEPRECATED = Outcome("No longer deprecated:", "Would undeprecate", "has no warning", "")

HTTPS_URL = ValidatedType("URL", lambda text: text and check_https_url(text))


def parse_keywords(text: str) -> list[str]:
    """Return the keywords in a comma-separated list; raise NotAllowedError if it is invalid."""
    keywords = [word.strip() for word in text.split(",") if word.strip()]
    try:
        check_keywords(keywords)
    except NotAllowedError:
        raise NotAllowedError(
            f"a list of at most {MAX_KEYWORDS} keywords of at most {MAX_KEYWORD_LENGTH} characters"
        ) from None
    return keywords


KEYWORDS = ValidatedType("keywords", parse_keywords)

version_arguments = click.argument(
    "versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True
)


@command("yank", remote=True)
@version_arguments
@click.option("--reason", type=TEXT, help="Set the reason that users of the versions see.")
@dry_run_option
def yank(versions: tuple[WidgetName, ...], reason: str | None, dry_run: bool) -> None:
    """Withdraw versions.

    A yanked version can still be read, but it is never the latest or a compatible version.

    Each VERSION is a version or an npm range of versions, such as acme/clock@1.x. A range matches
    prereleases only if it names one.
    """
    set_yanked(versions, True, reason, dry_run)


@command("unyank", remote=True)
@version_arguments
@dry_run_option
def unyank(versions: tuple[WidgetName, ...], dry_run: bool) -> None:
    """Make yanked versions available again.

    Each VERSION is a version or an npm range of versions, such as acme/clock@1.x. A range matches
    prereleases only if it names one.
    """
    set_yanked(versions, False, "", dry_run)


def set_yanked(
    targets: tuple[WidgetName, ...], yanked: bool, reason: str | None, dry_run: bool
) -> None:
    """Yank the versions or make them available again; if reason is None, keep the stored reason."""
    results = open_catalog().set_yanked(targets, yanked, reason, dry_run=dry_run)
    print_changes(results, YANKED if yanked else UNYANKED, dry_run)
    for result in filter(itemgetter("versions"), results):
        widget, _, _ = result["versions"][0]["version"].rpartition("@")
        print_latest(widget, result, dry_run=dry_run)


@command("deprecate", remote=True)
@version_arguments
@click.option("--message", type=TEXT, help="Set the warning that users of the versions see.")
@click.option(
    "--replaced-by",
    type=WIDGET,
    metavar="WIDGET",
    help="Name a replacement widget at the end of the message.",
)
@dry_run_option
def deprecate(
    versions: tuple[WidgetName, ...],
    message: str | None,
    replaced_by: WidgetName | None,
    dry_run: bool,
) -> None:
    """Set a warning on versions.

    Specify --message, --replaced-by or both.

    Each VERSION is a version or an npm range of versions, such as acme/clock@1.x. A range matches
    prereleases only if it names one.
    """
    if message is None and replaced_by is None:
        raise click.UsageError("Specify --message, --replaced-by or both.")
    if message == "":
        raise click.UsageError("The message is empty. To remove a warning, use undeprecate.")
    catalog = open_catalog()
    if replaced_by:
        if replaced_by in {each.widget for each in versions}:
            raise click.UsageError(f"{replaced_by} cannot be replaced by itself.")
        # A mistyped name would mislead users, so the widget must exist.
        if not catalog.read_document(replaced_by)["widget"]["listed"]:
            raise CommandError(f"{replaced_by} is not listed, so users could not find it.")
        message = add_replacement(message or "", replaced_by)
    results = catalog.set_deprecation(versions, message, dry_run=dry_run)
    print_changes(results, DEPRECATED, dry_run)


@command("undeprecate", remote=True)
@version_arguments
@dry_run_option
def undeprecate(versions: tuple[WidgetName, ...], dry_run: bool) -> None:
    """Remove the deprecation warning from versions.

    Each VERSION is a version or an npm range of versions, such as acme/clock@1.x. A range matches
    prereleases only if it names one.
    """
    results = open_catalog().set_deprecation(versions, None, dry_run=dry_run)
    print_changes(results, UNDEPRECATED, dry_run)


def print_changes(results: list[Moderated], outcome: Outcome, dry_run: bool) -> None:
    """Print the result, or the planned result, for each version."""
    for change in chain.from_iterable(result["versions"] for result in results):
        version = change["version"]
        if not change["changed"]:
            print_status(f"{version} {outcome.unchanged}.")
        elif change["already"] and outcome.detail:
            verb = "Would update" if dry_run else "Updated"
            print_status(f"{verb} the {outcome.detail} of {version}.")
        else:
            print_status(f"{outcome.planned if dry_run else outcome.changed} {version}.")


@command("unlist", remote=True)
@click.argument("widget", type=WIDGET)
def unlist(widget: WidgetName) -> None:
    """Hide a widget from the public API.

    Search, detail, registry and statistics no longer show the widget. None of its data is lost.
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
    print_status(f"{'' if changed else 'Nothing to change: '}{widget} {state}.")


@command("official", remote=True)
@click.argument("widget", type=WIDGET)
@click.option("--off", is_flag=True, help="Mark the widget as not maintained by you.")
def official(widget: WidgetName, off: bool) -> None:
    """Mark a widget as maintained by you."""
    set_property(widget, "isOfficial", not off, "is not official" if off else "is official")


@command("describe", remote=True)
@click.argument("widget", type=WIDGET)
@click.option("--display-name", type=TEXT, help="Set the name that people see.")
@click.option("--description", type=TEXT, help="Set the short description.")
@click.option("--icon", type=TEXT, help="Set the icon, an Iconify name such as mdi:clock.")
@click.option("--homepage", type=HTTPS_URL, metavar="URL", help="Set the link to the homepage.")
@click.option("--repository", type=HTTPS_URL, metavar="URL", help="Set the link to the source.")
@click.option("--issues", type=HTTPS_URL, metavar="URL", help="Set the link for bug reports.")
@click.option(
    "--keywords", type=KEYWORDS, metavar="WORDS", help="Set the keywords, separated by commas."
)
@click.option("--readme", type=CONTENT, metavar="FILE", help="Set the readme, in Markdown.")
@click.option(
    "--picture",
    type=CONTENT,
    metavar="FILE",
    help="Set the picture: PNG, JPEG, WebP or AVIF.",
)
def describe(
    widget: WidgetName,
    display_name: str | None,
    keywords: list[str] | None,
    readme: bytes | None,
    picture: bytes | None,
    **options: str | None,
) -> None:
    """Change the description, links, readme or picture of a widget.

    Either all changes are made, or none. An empty value, "", removes the description, icon, link,
    keywords, readme or picture. Versions that have their own display name, description or icon keep
    them.
    """
    if display_name == "":
        raise click.UsageError("The display name must not be empty.")
    text = None if readme is None else decode_readme(readme)
    texts = {"displayName": display_name, **options, "readme": text}
    changes: Json = {key: value or None for key, value in texts.items() if value is not None}
    if picture == b"":
        changes["picture"] = None
    if keywords is not None:
        changes["keywords"] = keywords
    if not changes and not picture:
        raise click.UsageError("Specify at least one option.")
    changed = open_catalog().edit_widget(widget, changes, picture or None)["changed"]
    print_status(f"Updated {widget}." if changed else "Nothing to change.")


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
        hint = "To withdraw it but keep it readable, use widget-catalog yank."
        question = f"Delete {target} permanently? ({hint})"
    else:
        raise click.UsageError(f"{quoted(target.version)} is not a version such as 1.4.0.")
    confirm(question, yes)
    latest = moderation.delete(database(), local_actor(), target)
    print_status(f"Deleted {target}.")
    numbers = "Its version numbers" if target.version is None else "Its number"
    print_status(
        f"{numbers} can be published again only with the same bundle: clients may have it cached."
    )
    if target.version is not None:
        print_latest(target.widget, latest)
