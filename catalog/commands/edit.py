"""flask yank, deprecate, unlist, official, describe, delete: changes of a widget or version."""

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
    print_status,
    program,
)
from catalog.commands.lookup import (
    find_widget,
    get_version,
    get_versions,
    get_widget,
    print_latest,
)
from catalog.semver_ranges import is_version
from catalog.store import writes


@command("yank")
@click.argument("version", type=VERSION)
@click.option("--reason", type=TEXT, help="Why, for the people who use it.")
def yank(version: WidgetName, reason: str | None) -> None:
    """Withdraw a version.

    It can still be read, but it is never the latest or a compatible version.
    """
    row = get_version(version)
    reason = row["yanked_reason"] if reason is None else reason or None
    if any(database().write(writes.set_yanked(row["id"], True, reason))):
        print_status(f"Yanked {version}.")
    else:
        print_status(f"{version} is already yanked.")
    print_latest(version)


@command("unyank")
@click.argument("version", type=VERSION)
def unyank(version: WidgetName) -> None:
    """Make a yanked version available again."""
    if any(database().write(writes.set_yanked(get_version(version)["id"], False, None))):
        print_status(f"Unyanked {version}.")
    else:
        print_status(f"{version} is not yanked.")
    print_latest(version)


@command("deprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
@click.argument("message", type=TEXT)
def deprecate(versions: tuple[WidgetName, ...], message: str) -> None:
    """Set a warning on versions.

    Each VERSION is one version or an npm range of them, such as acme/clock@"<2.0.0"; a range
    matches prereleases only where it names one. MESSAGE is the warning that users see.
    """
    if not message:
        raise CommandError(f"The message is empty; {program()} undeprecate removes a warning.")
    if "/" in message and is_version(message.rpartition("@")[2]):
        raise click.UsageError("The MESSAGE is missing at the end.")
    set_deprecation(versions, message, "Deprecated", "already has this warning")


@command("undeprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
def undeprecate(versions: tuple[WidgetName, ...]) -> None:
    """Remove the warning of versions.

    Each VERSION is one version or an npm range of them.
    """
    set_deprecation(versions, None, "No longer deprecated:", "has no warning")


def set_deprecation(
    versions: tuple[WidgetName, ...], message: str | None, changed_text: str, unchanged_text: str
) -> None:
    rows = {row["id"]: row for version in versions for row in get_versions(version)}
    counts = database().write(writes.set_deprecation(rows, message))
    for row, changed in zip(rows.values(), counts, strict=True):
        version = WidgetName(row["scope"], row["name"], row["version"])
        if changed:
            print_status(f"{changed_text} {version}.")
        else:
            print_status(f"{version} {unchanged_text}.")


@command("unlist")
@click.argument("widget", type=WIDGET)
def unlist(widget: WidgetName) -> None:
    """Hide a widget from the public API.

    Search, detail, registry and statistics no longer show it; none of its data is lost.
    """
    set_listed(widget, False, "is unlisted")


@command("relist")
@click.argument("widget", type=WIDGET)
def relist(widget: WidgetName) -> None:
    """Show an unlisted widget again."""
    set_listed(widget, True, "is listed")


def set_listed(widget: WidgetName, listed: bool, state: str) -> None:
    changed = any(database().write(writes.set_listed(get_widget(widget)["id"], listed)))
    print_status(f"{widget} {state}{'' if changed else ' already'}.")


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


def set_official(widget: WidgetName, is_official: bool, state: str) -> None:
    changed = any(database().write(writes.set_official(get_widget(widget)["id"], is_official)))
    print_status(f"{widget} {state}{'' if changed else ' already'}.")


@command("describe")
@click.argument("widget", type=WIDGET)
@click.option("--display-name", type=TEXT, help="The name that people see.")
@click.option("--description", type=TEXT, help='A short description; "" removes it.')
@click.option("--icon", type=TEXT, help='An Iconify icon such as mdi:clock; "" removes it.')
def describe(
    widget: WidgetName, display_name: str | None, description: str | None, icon: str | None
) -> None:
    """Change the display name, description or icon.

    Versions that were published with their own display name, description or icon keep them.
    """
    if (display_name, description, icon) == (None, None, None):
        raise click.UsageError("Give --display-name, --description or --icon.")
    if display_name == "":
        raise CommandError("The display name must not be empty.")
    options = {"display_name": display_name, "description": description, "icon": icon}
    # The write changes nothing if another process has changed one of the columns since they were
    # read. Then read again, so that the change of the other process is kept.
    while True:
        row = get_widget(widget)
        before = {key: row[key] for key in options}
        after = before | {key: value or None for key, value in options.items() if value is not None}
        if after == before:
            print_status(f"{widget} is already described like this.")
            return
        if any(database().write(writes.describe(row["id"], before, after))):
            print_status(f"{widget} is described.")
            return


@command("delete")
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--yes", is_flag=True, help="Delete without confirmation.")
def delete(target: WidgetName, yes: bool) -> None:
    """Delete a widget or version permanently.

    A widget is deleted with all its versions and its install count. The number of a deleted version
    can be published again only with the same bundle.
    """
    if target.version is not None:
        # The name of a widget may contain an @ too.
        whole_name = f"{target.name}@{target.version}"
        if find_widget(target.scope, whole_name):
            target = WidgetName(target.scope, whole_name)
    if target.version is None:
        statements = writes.delete_widget(get_widget(target)["id"])
        question = f"Delete {target}, its versions and its install count permanently?"
    else:
        statements = writes.delete_version(get_version(target)["id"])
        hint = f"{program()} yank withdraws it and keeps it readable."
        question = f"Delete {target} permanently? ({hint})"
    confirm(question, yes)
    database().write(statements)
    print_status(f"Deleted {target}.")
    numbers = "The numbers of its versions" if target.version is None else "Its number"
    print_status(
        f"{numbers} can be published again only with the same bundle: clients may have it cached."
    )
    if target.version is not None:
        print_latest(target)
