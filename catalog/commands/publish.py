"""flask publish: a new version of a widget, from its manifest and its bundle."""

import json
import sqlite3
from typing import Any, BinaryIO

import click
from flask import current_app

from catalog import resources, store
from catalog.commands.base import Named, Refusal, command, database, say
from catalog.commands.finding import FIND_WIDGET, say_latest
from catalog.commands.tables import json_text
from catalog.documents import Document, Row, identifier
from catalog.publishing import differences, publication

STDIN = "<stdin>"


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
    if {getattr(file, "name", STDIN) for file in (manifest, bundle)} == {STDIN}:
        raise click.UsageError("MANIFEST and BUNDLE cannot both be standard input.")
    template = bundle_url or current_app.config["BUNDLE_URL"]
    if not template:
        raise Refusal("Give --bundle-url, or set CATALOG_BUNDLE_URL: where is the bundle loaded?")
    try:
        described = json.loads(manifest.read())
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{manifest.name} is not JSON in UTF-8: {error}.") from error
    known = known_widget(described)
    document = publication(described, bundle.read(), template, known and known["display_name"])
    widget, (version,) = document.widget, document.versions
    named = Named(widget["scope"], widget["name"], version["version"])

    if is_published(named, document):
        say(f"{named} is already published.")
    elif dry_run:
        created = {**widget, "created_at": version["published_at"]}
        stored = {
            "widget": json.loads(known["json"]) if known else as_json("widget", created),
            "versions": [as_json("version", version)],
        }
        click.echo(json_text(stored))
    else:
        try:
            database().write(store.publish(document))
            say(f"Published {named}.")
        except sqlite3.IntegrityError:  # since we looked, another process has published it
            if not is_published(named, document):
                raise
            say(f"{named} is already published.")
        if known and not known["listed"]:
            say(f"{named.scope}/{named.name} is unlisted; flask relist shows it.")
        if known and document.widget["is_official"] not in (None, known["is_official"]):
            say("isOfficial stays as it was; flask official and flask unofficial change it.")
        say_latest(named)


def as_json(table: str, row: Row) -> resources.Json:
    """How a row that is not stored yet would be shown."""
    shape = {"widget": resources.WIDGET, "version": resources.DOCUMENT_VERSION}[table]
    columns = ", ".join(f":{column} AS {column}" for column in row)
    with database().read() as connection:
        (text,) = connection.execute(
            f"SELECT {shape} FROM (SELECT {columns}) AS {table}", row
        ).fetchone()
    shown_as: resources.Json = json.loads(text)
    return shown_as


def known_widget(described: Any) -> sqlite3.Row | None:
    try:
        sought = {key: identifier(described[key]) for key in ("scope", "name")}
    except (TypeError, LookupError, ValueError):
        return None  # what is wrong with it is said later, with all else that is
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
