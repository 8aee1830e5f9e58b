"""flask publish, yank, deprecate, unlist, official, describe, delete: what changes the catalog."""

import json
import sqlite3
from typing import BinaryIO

import click
from flask import current_app

from catalog import resources, store
from catalog.commands.base import (
    TEXT,
    VERSION,
    WIDGET,
    WIDGET_OR_VERSION,
    Named,
    Refusal,
    command,
    confirm,
    database,
    say,
)
from catalog.documents import Document, shown
from catalog.publishing import differences, publication
from catalog.semver_ranges import is_range, is_version, satisfies

FIND_WIDGET = "SELECT * FROM widget WHERE scope = :scope AND name = :name"

FIND_VERSIONS = f"""
SELECT {resources.VERSION_ENTRY_COLUMNS}
FROM version JOIN widget ON widget.id = version.widget_id
WHERE widget.scope = :scope AND widget.name = :name
ORDER BY published_at DESC, precedence DESC, version DESC
"""


def find_widget(named: Named) -> sqlite3.Row:
    with database().read() as connection:
        widget = connection.execute(FIND_WIDGET, named._asdict()).fetchone()
    if widget is None:
        raise Refusal(f"There is no widget {named.scope}/{named.name}.")
    return widget


def find_versions(named: Named) -> list[sqlite3.Row]:
    """The versions that are named, by their own text or by a range that admits them."""
    find_widget(named)
    wanted = named.version or ""
    if not is_version(wanted) and not is_range(wanted):
        raise Refusal(f"{shown(wanted)} is neither a version nor a range of versions.")
    with database().read() as connection:
        versions = connection.execute(FIND_VERSIONS, named._asdict()).fetchall()
    if is_version(wanted):
        found = [row for row in versions if row["version"] == wanted]
    else:
        found = [row for row in versions if satisfies(row["version"], wanted)]
    if not found:
        raise Refusal(f"There is no version {named}.")
    return found


def find_version(named: Named) -> sqlite3.Row:
    if not is_version(named.version or ""):
        raise Refusal(f"{shown(named.version)} is not a version such as 1.4.0.")
    (version,) = find_versions(named)
    return version


def say_latest(named: Named) -> None:
    with database().read() as connection:
        rows = connection.execute(FIND_VERSIONS, named._asdict()).fetchall()
    latest = resources.latest_version([resources.version_entry(row) for row in rows])
    say(f"The latest version of {named.scope}/{named.name} is now {latest or 'none'}.")


@command("publish")
@click.argument("manifest", type=click.File("rb"))
@click.argument("bundle", type=click.File("rb"))
@click.option(
    "--bundle-url",
    metavar="URL",
    help="Where dashboards load the bundle; {scope}, {name} and {version} are filled in. "
    "Without it the setting CATALOG_BUNDLE_URL is used.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be stored, and store nothing.")
def publish(manifest: BinaryIO, bundle: BinaryIO, bundle_url: str | None, dry_run: bool) -> None:
    """Add a version of a widget.

    MANIFEST is a JSON object that describes the version: scope, name, version, displayName,
    sdkVersion and what else a version has. BUNDLE is its JavaScript file. The widget is created
    with its first version; in later ones displayName, description and icon are the version's own.
    """
    template = bundle_url or current_app.config["BUNDLE_URL"]
    if not template:
        raise Refusal("Give --bundle-url, or set CATALOG_BUNDLE_URL: where is the bundle loaded?")
    try:
        described = json.loads(manifest.read())
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{manifest.name} is not JSON in UTF-8: {error}.") from error
    known = known_widget(described)
    document = publication(described, bundle.read(), template, known and known["display_name"])
    named = Named(*document.path.split("/"), document.versions[0]["version"])

    if is_published(named, document):
        say(f"{named} is already published.")
    elif dry_run:
        (version,) = document.versions
        widget = known or {**document.widget, "created_at": version["published_at"]}
        entry = resources.version_entry({**version, "scope": named.scope, "name": named.name})
        stored = {"widget": resources.widget(widget), "versions": [entry]}
        click.echo(json.dumps(stored, ensure_ascii=False, indent=2))
    else:
        try:
            database().write(store.publish(document))
        except sqlite3.IntegrityError:  # since we looked, another process has published it
            is_published(named, document)
        say(f"Published {named}.")
        if known and not known["listed"]:
            say(f"{named.scope}/{named.name} is unlisted; flask relist shows it.")
        if known and document.widget["is_official"] not in (
            None,
            resources.boolean(known["is_official"]),
        ):
            say("isOfficial stays as it was; flask official and flask unofficial change it.")
        say_latest(named)


def known_widget(described: object) -> sqlite3.Row | None:
    if not isinstance(described, dict):
        return None
    sought = {key: str(described.get(key)) for key in ("scope", "name")}
    with database().read() as connection:
        return connection.execute(FIND_WIDGET, sought).fetchone()


STORED_VERSION = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND version = :version
"""


def is_published(named: Named, document: Document) -> bool:
    """Whether just this version is there; refuses where it is there with anything different."""
    with database().read() as connection:
        stored = connection.execute(STORED_VERSION, named._asdict()).fetchone()
    if stored is None:
        return False
    differing = differences(stored, document.versions[0])
    if differing:
        raise Refusal(
            f"{named} is published already with a different {', '.join(differing)}; "
            "publish the change as a new version."
        )
    return True


@command("yank")
@click.argument("version", type=VERSION)
@click.option("--reason", type=TEXT, help="Why, for the people who use it.")
def yank(version: Named, reason: str | None) -> None:
    """Withdraw a version.

    It can still be read, but is no longer offered as the latest or as compatible.
    """
    found = find_version(version)
    reason = found["yanked_reason"] if reason is None else reason
    if any(database().write(store.set_yanked(found["id"], True, reason))):
        say(f"Yanked {version}.")
    else:
        say(f"{version} is already yanked.")
    say_latest(version)


@command("unyank")
@click.argument("version", type=VERSION)
def unyank(version: Named) -> None:
    """Offer a yanked version again."""
    if any(database().write(store.set_yanked(find_version(version)["id"], False, None))):
        say(f"{version} is offered again.")
    else:
        say(f"{version} is not yanked.")
    say_latest(version)


@command("deprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
@click.argument("message", type=TEXT)
def deprecate(versions: tuple[Named, ...], message: str) -> None:
    """Warn the users of some versions.

    Each VERSION is one version or an npm range of them, such as acme/clock@"<2.0.0"; prereleases
    are in a range only where it names one. MESSAGE is what their users see.
    """
    if not message:
        raise Refusal("The message is empty; flask undeprecate takes a warning away.")
    set_deprecation(versions, message, "Deprecated", "already has this warning")


@command("undeprecate")
@click.argument("versions", metavar="VERSION...", type=VERSION, nargs=-1, required=True)
def undeprecate(versions: tuple[Named, ...]) -> None:
    """Take a warning away.

    Each VERSION is one version or an npm range of them.
    """
    set_deprecation(versions, None, "No longer deprecated:", "has no warning")


def set_deprecation(
    versions: tuple[Named, ...], message: str | None, done: str, nothing: str
) -> None:
    found = {row["id"]: row for named in versions for row in find_versions(named)}
    counts = database().write(store.set_deprecation(found, message))
    for row, changed in zip(found.values(), counts, strict=True):
        path = f"{row['scope']}/{row['name']}@{row['version']}"
        say(f"{done} {path}." if changed else f"{path} {nothing}.")


@command("unlist")
@click.argument("widget", type=WIDGET)
def unlist(widget: Named) -> None:
    """Hide a widget from the public.

    Search, detail, registry and statistics no longer show it; nothing of it is lost.
    """
    set_listed(widget, False, "is unlisted")


@command("relist")
@click.argument("widget", type=WIDGET)
def relist(widget: Named) -> None:
    """Show an unlisted widget again."""
    set_listed(widget, True, "is listed")


def set_listed(widget: Named, listed: bool, state: str) -> None:
    changed = any(database().write(store.set_listed(find_widget(widget)["id"], listed)))
    say(f"{widget} {state}{'' if changed else ' already'}.")


@command("official")
@click.argument("widget", type=WIDGET)
def official(widget: Named) -> None:
    """Mark a widget as maintained by you."""
    set_official(widget, True, "is official")


@command("unofficial")
@click.argument("widget", type=WIDGET)
def unofficial(widget: Named) -> None:
    """Mark a widget as not maintained by you."""
    set_official(widget, False, "is not official")


def set_official(widget: Named, marked: bool, state: str) -> None:
    changed = any(database().write(store.set_official(find_widget(widget)["id"], marked)))
    say(f"{widget} {state}{'' if changed else ' already'}.")


@command("describe")
@click.argument("widget", type=WIDGET)
@click.option("--display-name", type=TEXT, help="The name that people see.")
@click.option("--description", type=TEXT, help='A short description; "" removes it.')
@click.option("--icon", type=TEXT, help='An Iconify icon such as mdi:clock; "" removes it.')
def describe(
    widget: Named, display_name: str | None, description: str | None, icon: str | None
) -> None:
    """Change a widget's name or looks.

    Versions that were published with their own name, description or icon keep them.
    """
    if (display_name, description, icon) == (None, None, None):
        raise click.UsageError("Give --display-name, --description or --icon.")
    row = find_widget(widget)
    if display_name == "":
        raise Refusal("The display name must not be empty.")
    statements = store.describe(
        row["id"],
        row["display_name"] if display_name is None else display_name,
        row["description"] if description is None else description or None,
        row["icon"] if icon is None else icon or None,
    )
    changed = any(database().write(statements))
    say(f"{widget} is described{'' if changed else ' so already'}.")


@command("delete")
@click.argument("target", metavar="WIDGET|VERSION", type=WIDGET_OR_VERSION)
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(target: Named, yes: bool) -> None:
    """Remove a widget or version for good.

    A widget goes with all its versions and its install count.
    """
    if target.version is None:
        statements = store.delete_widget(find_widget(target)["id"])
        question = f"Delete {target}, its versions and its install count for good?"
    else:
        statements = store.delete_version(find_version(target)["id"])
        question = f"Delete {target} for good? (flask yank withdraws it and keeps it readable.)"
    confirm(question, yes)
    database().write(statements)
    say(f"Deleted {target}.")
    if target.version is not None:
        say_latest(target)
