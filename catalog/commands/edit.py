"""flask yank, deprecate, unlist, official, describe, delete: what changes a widget or version."""

import click

from catalog.commands.base import (
    TEXT,
    VERSION,
    WIDGET,
    WIDGET_OR_VERSION,
    CommandError,
    WidgetName,
    command,
    confirm,
    database,
    say,
)
from catalog.commands.lookup import (
    find_version,
    find_versions,
    find_widget,
    has_widget,
    say_latest,
)
from catalog.semver_ranges import is_version
from catalog.store import writes


@command("yank")
@click.argument("version", type=VERSION)
@click.option("--reason", type=TEXT, help="Why, for the people who use it.")
def yank(version: WidgetName, reason: str | None) -> None:
    """Withdraw a version.

    It can still be read, but is no longer offered as the latest or as compatible.
    """
    found = find_version(version)
    reason = found["yanked_reason"] if reason is None else reason or None
    if any(database().write(writes.set_yanked(found["id"], True, reason))):
        say(f"Yanked {version}.")
    else:
        say(f"{version} is already yanked.")
    say_latest(version)


@command("unyank")
@click.argument("version", type=VERSION)
def unyank(version: WidgetName) -> None:
    """Offer a yanked version again."""
    if any(database().write(writes.set_yanked(find_version(version)["id"], False, None))):
        say(f"{version} is offered again.")
    else:
        say(f"{version} is not yanked.")
    say_latest(version)


@command("deprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
@click.argument("message", type=TEXT)
def deprecate(versions: tuple[WidgetName, ...], message: str) -> None:
    """Warn the users of some versions.

    Each VERSION is one version or an npm range of them, such as acme/clock@"<2.0.0"; prereleases
    are in a range only where it names one. MESSAGE is what their users see.
    """
    if not message:
        raise CommandError("The message is empty; flask undeprecate takes a warning away.")
    if "/" in message and is_version(message.rpartition("@")[2]):
        raise click.UsageError("The MESSAGE is missing at the end.")
    set_deprecation(versions, message, "Deprecated", "already has this warning")


@command("undeprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
def undeprecate(versions: tuple[WidgetName, ...]) -> None:
    """Take a warning away.

    Each VERSION is one version or an npm range of them.
    """
    set_deprecation(versions, None, "No longer deprecated:", "has no warning")


def set_deprecation(
    versions: tuple[WidgetName, ...], message: str | None, done: str, nothing: str
) -> None:
    found = {row["id"]: row for named in versions for row in find_versions(named)}
    counts = database().write(writes.set_deprecation(found, message))
    for row, changed in zip(found.values(), counts, strict=True):
        path = f"{row['scope']}/{row['name']}@{row['version']}"
        say(f"{done} {path}." if changed else f"{path} {nothing}.")


@command("unlist")
@click.argument("widget", type=WIDGET)
def unlist(widget: WidgetName) -> None:
    """Hide a widget from the public.

    Search, detail, registry and statistics no longer show it; nothing of it is lost.
    """
    set_listed(widget, False, "is unlisted")


@command("relist")
@click.argument("widget", type=WIDGET)
def relist(widget: WidgetName) -> None:
    """Show an unlisted widget again."""
    set_listed(widget, True, "is listed")


def set_listed(widget: WidgetName, listed: bool, state: str) -> None:
    changed = any(database().write(writes.set_listed(find_widget(widget)["id"], listed)))
    say(f"{widget} {state}{'' if changed else ' already'}.")


@command("official")
@click.argument("widget", type=WIDGET)
def official(widget: WidgetName) -> None:
    """Mark a widget as maintained by you."""
    set_official(widget, True, "is official")


@command("unofficial")
@click.argument("widget", type=WIDGET)
def unofficial(widget: WidgetName) -> None:
    """Mark a widget as not maintained by you."""
    set_official(widget, False, "is not official")


def set_official(widget: WidgetName, marked: bool, state: str) -> None:
    changed = any(database().write(writes.set_official(find_widget(widget)["id"], marked)))
    say(f"{widget} {state}{'' if changed else ' already'}.")


@command("describe")
@click.argument("widget", type=WIDGET)
@click.option("--display-name", type=TEXT, help="The name that people see.")
@click.option("--description", type=TEXT, help='A short description; "" removes it.')
@click.option("--icon", type=TEXT, help='An Iconify icon such as mdi:clock; "" removes it.')
def describe(
    widget: WidgetName, display_name: str | None, description: str | None, icon: str | None
) -> None:
    """Change a widget's name or looks.

    Versions that were published with their own name, description or icon keep them.
    """
    if (display_name, description, icon) == (None, None, None):
        raise click.UsageError("Give --display-name, --description or --icon.")
    if display_name == "":
        raise CommandError("The display name must not be empty.")
    given = {"display_name": display_name, "description": description, "icon": icon}
    while True:
        row = find_widget(widget)
        before = {key: row[key] for key in given}
        after = before | {key: value or None for key, value in given.items() if value is not None}
        if after == before:
            say(f"{widget} is described so already.")
            return
        if any(database().write(writes.describe(row["id"], before, after))):
            say(f"{widget} is described.")
            return
        # Another process has described it since: look again, so that what it said stays.


@command("delete")
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(target: WidgetName, yes: bool) -> None:
    """Remove a widget or version for good.

    A widget goes with all its versions and its install count. The number of a deleted version can
    be published again only with the same bundle.
    """
    whole = WidgetName(target.scope, f"{target.name}@{target.version}")
    if target.version is not None and has_widget(whole):
        target = whole  # a name with an @ in it
    if target.version is None:
        statements = writes.delete_widget(find_widget(target)["id"])
        question = f"Delete {target}, its versions and its install count for good?"
    else:
        statements = writes.delete_version(find_version(target)["id"])
        question = f"Delete {target} for good? (flask yank withdraws it and keeps it readable.)"
    confirm(question, yes)
    database().write(statements)
    say(f"Deleted {target}.")
    numbers = "The numbers of its versions" if target.version is None else "Its number"
    say(f"{numbers} can be published again only with the same bundle: clients may have it cached.")
    if target.version is not None:
        say_latest(target)
