"""flask publish: a new version of a widget, from its manifest and its bundle."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO

import click
from flask import current_app

from catalog import V1_PREFIX
from catalog.commands.base import CommandError, WidgetName, bundles, command, database, say
from catalog.commands.lookup import FIND_WIDGET, say_latest
from catalog.commands.terminal import json_text
from catalog.documents import MAX_VERSIONS, Document, Json, Row
from catalog.files.manifests import differences, publication
from catalog.store import json_sql, mirror_writes, writes
from catalog.store.sqlite import Statement
from catalog.validators import check_identifier

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
@click.option("--store", "keep", is_flag=True, help="Keep the bundle here, and serve it.")
@click.option("--dry-run", is_flag=True, help="Show what would be stored, and store nothing.")
def publish(
    manifest: BinaryIO, bundle: BinaryIO, bundle_url: str | None, keep: bool, dry_run: bool
) -> None:
    """Add a version of a widget.

    MANIFEST is a JSON object that describes the version: scope, name, version, displayName,
    sdkVersion and what else a version has. BUNDLE is its JavaScript file. The widget is created
    with its first version; in later ones displayName, description and icon are the version's own.
    With --store no CDN is needed: where no other URL is given, the bundle's is below
    CATALOG_PUBLIC_URL.
    """
    if {getattr(file, "name", STDIN) for file in (manifest, bundle)} == {STDIN}:
        raise click.UsageError("MANIFEST and BUNDLE cannot both be standard input.")
    template = url_template(bundle_url, keep)
    try:
        described = json.loads(manifest.read())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{manifest.name} is not JSON in UTF-8: {error}.") from error
    known = known_widget(described)
    content = bundle.read()
    document = publication(described, content, template, known["display_name"] if known else None)
    widget, (version,) = document.widget, document.versions
    named = WidgetName(widget["scope"], widget["name"], version["version"])

    is_new = not is_published(named, document)
    if is_new:
        refuse_one_too_many(named)
    if is_new and dry_run:
        created = {**widget, "created_at": version["published_at"]}
        stored = {
            "widget": json.loads(known["json"]) if known else as_json("widget", created),
            "versions": [as_json("version", version)],
        }
        click.echo(json_text(stored))
        return
    if not dry_run:
        keeping = kept(named, version, content) if keep else nullcontext(list[Statement]())
        with keeping as holding:
            is_new = is_new and added(named, document, holding)
            if holding and not is_new:
                database().write(holding)
    say(f"Published {named}." if is_new else f"{named} is already published.")
    if keep and not dry_run:
        say(f"Its bundle is kept in {bundles().name}.")
    if is_new:
        if known and not known["listed"]:
            say(f"{named.scope}/{named.name} is unlisted; flask relist shows it.")
        if known and document.widget["is_official"] not in (None, known["is_official"]):
            say("isOfficial stays as it was; flask official and flask unofficial change it.")
        say_latest(named)


def url_template(given: str | None, keep: bool) -> str:
    """Where the bundle is loaded, as it was given or, for one that is kept here, from here."""
    template: str = given or current_app.config["BUNDLE_URL"]
    public_url: str = current_app.config["PUBLIC_URL"]
    if not template and keep and public_url:
        return f"{public_url}{V1_PREFIX}{{scope}}/{{name}}/{{version}}/bundle.js"
    if not template:
        settings = "CATALOG_BUNDLE_URL or CATALOG_PUBLIC_URL" if keep else "CATALOG_BUNDLE_URL"
        raise CommandError(f"Give --bundle-url, or set {settings}: where is the bundle loaded?")
    return template


@contextmanager
def kept(named: WidgetName, version: Row, content: bytes) -> Iterator[list[Statement]]:
    """Keep the bundle; gives the statements that have the version loaded from here."""
    sha256, size = version["sha256_hash"], version["bundle_size"]
    held = mirror_writes.HeldBundle(named.scope, named.name, version["version"], sha256, size)
    with bundles().writing():
        is_new = not bundles().holds(sha256)
        bundles().add(sha256, size, [content])
        bundles().sync()
        try:
            yield mirror_writes.hold_bundles([held])
        except BaseException:
            if is_new:
                bundles().remove(sha256)
            raise


def added(named: WidgetName, document: Document, holding: list[Statement]) -> bool:
    """Add the version; False where another process has published just this since we looked."""
    try:
        database().write([*writes.publish(document), *holding])
    except sqlite3.IntegrityError:
        if not is_published(named, document):
            raise
        return False
    return True


def as_json(table: str, row: Row) -> Json:
    """How a row that is not stored yet would be shown."""
    shape = {"widget": json_sql.WIDGET, "version": json_sql.DOCUMENT_VERSION}[table]
    columns = ", ".join(f":{column} AS {column}" for column in row)
    with database().read() as connection:
        (text,) = connection.execute(
            f"SELECT {shape} FROM (SELECT {columns}) AS {table}", row
        ).fetchone()
    shown_as: Json = json.loads(text)
    return shown_as


def known_widget(described: Any) -> sqlite3.Row | None:
    try:
        sought = {key: check_identifier(described[key]) for key in ("scope", "name")}
    except (TypeError, LookupError, ValueError):
        return None  # what is wrong with it is said later, with all else that is
    with database().read() as connection:
        known: sqlite3.Row | None = connection.execute(FIND_WIDGET, sought).fetchone()
    return known


COUNT_VERSIONS = """
SELECT count(*) FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name
"""


def refuse_one_too_many(named: WidgetName) -> None:
    """Refuse where the widget has as many versions as flask import and flask mirror take."""
    with database().read() as connection:
        (count,) = connection.execute(COUNT_VERSIONS, named._asdict()).fetchone()
    if count >= MAX_VERSIONS:
        raise CommandError(
            f"{named.scope}/{named.name} has {count} versions, "
            "which is as many as a widget may have."
        )


STORED_VERSION = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND version = :version
"""


DELETED_WITH_OTHER_BYTES = """
SELECT 1 FROM deleted_version
WHERE scope = :scope AND name = :name AND version = :version AND sha256_hash <> :sha256_hash
"""


def is_published(named: WidgetName, document: Document) -> bool:
    """Whether just this version is there; refuses where it is or was there with other content."""
    with database().read() as connection:
        stored = connection.execute(STORED_VERSION, named._asdict()).fetchone()
        values = {**named._asdict(), "sha256_hash": document.versions[0]["sha256_hash"]}
        deleted = connection.execute(DELETED_WITH_OTHER_BYTES, values).fetchone()
    if stored is None:
        if deleted:
            raise CommandError(
                f"{named} was published with another bundle and deleted; clients may have that "
                "one cached, so publish this one as a new version."
            )
        return False
    differing = differences(stored, document.versions[0])
    if differing:
        raise CommandError(
            f"{named} is published already with a different {', '.join(differing)}; "
            "publish the change as a new version."
        )
    return True
