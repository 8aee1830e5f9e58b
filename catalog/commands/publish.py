"""flask publish: adds a version of a widget, from its manifest and its bundle."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from catalog import V1_PREFIX
from catalog.commands.base import (
    CommandError,
    WidgetName,
    bundles,
    command,
    database,
    print_status,
    program,
    setting,
)
from catalog.commands.lookup import find_latest, find_widget, print_latest
from catalog.commands.terminal import format_json
from catalog.documents import MAX_VERSIONS, Document, Json, Row
from catalog.files.manifests import build_document, find_differences, find_warnings
from catalog.store import bundle_writes, json_sql, writes
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
    "The default is the setting CATALOG_BUNDLE_URL.",
)
@click.option("--store", is_flag=True, help="Store the bundle in this service, and serve it.")
@click.option("--dry-run", is_flag=True, help="Only print what would be stored.")
def publish(
    manifest: BinaryIO, bundle: BinaryIO, bundle_url: str | None, store: bool, dry_run: bool
) -> None:
    """Add a version of a widget.

    MANIFEST is a JSON object that describes the version: scope, name, version, displayName,
    sdkVersion and the optional fields of a version. BUNDLE is its JavaScript file. The first
    version creates the widget; in later ones displayName, description and icon belong to the
    version only. With --store neither a CDN nor a URL is needed: responses contain the URL of the
    bundle at this service.
    """
    if {getattr(file, "name", STDIN) for file in (manifest, bundle)} == {STDIN}:
        raise click.UsageError("MANIFEST and BUNDLE cannot both be standard input.")
    manifest_json = read_manifest(manifest)
    existing = find_manifest_widget(manifest_json)
    content = bundle.read()
    display_name = existing["display_name"] if existing else None
    given_url = bundle_url or setting("BUNDLE_URL")
    url_template = given_url or (served_url_template() if store else None)
    document = build_document(manifest_json, content, url_template, display_name)
    if not content:
        raise CommandError(f"The bundle {bundle.name} is empty.")
    (version,) = document.versions
    target = WidgetName(document.widget["scope"], document.widget["name"], version["version"])

    is_new = not is_published(target, document, compare_url=bool(given_url))
    latest = find_latest(target)
    if is_new:
        check_version_limit(target)
        for warning in find_warnings(document, is_new_widget=existing is None):
            print_status(f"Warning: {warning}.")
    if is_new and dry_run:
        click.echo(format_json(stored_document(existing, document)))
        return
    if not dry_run:
        is_new = write_version(target, document, content if store else None, is_new)
    print_status(f"Published {target}." if is_new else f"{target} is already published.")
    if store and not dry_run:
        print_status(f"Its bundle is stored in {bundles().name}.")
    if is_new:
        if existing:
            print_unchanged(existing, document)
        print_latest(target, latest, find_latest(target))


# Clients cannot connect to these.
WILDCARD_HOSTS = ("0.0.0.0", "::", "*")  # noqa: S104


def served_url_template() -> str:
    """Return the URL template of bundles at this service.

    Only exports contain the host: a response takes it from CATALOG_PUBLIC_URL or its request.
    """
    host, port = setting("HOST"), setting("PORT")
    if host in WILDCARD_HOSTS:
        host = "localhost"
    if ":" in host:
        host = f"[{host}]"
    base_url = setting("PUBLIC_URL") or f"http://{host}" + (f":{port}" if port else "")
    return f"{base_url}{V1_PREFIX}{{scope}}/{{name}}/{{version}}/bundle.js"


def read_manifest(file: BinaryIO) -> Any:
    """Return the JSON value in the file; raise CommandError if it is not JSON."""
    try:
        return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{file.name} is not JSON in UTF-8: {error}.") from error


def find_manifest_widget(manifest: Any) -> sqlite3.Row | None:
    """Return the row of the widget that the manifest names, if it exists."""
    try:
        scope, name = (check_identifier(manifest[key]) for key in ("scope", "name"))
    except (TypeError, LookupError, ValueError):
        # build_document() reports an invalid name together with all other problems.
        return None
    return find_widget(scope, name)


def write_version(
    target: WidgetName, document: Document, content: bytes | None, is_new: bool
) -> bool:
    """Insert the version if it is new, and store its bundle if content is given.

    Return False if the version was published already, perhaps by another process just now.
    """
    if content is None:
        return is_new and insert_version(target, document, [])
    with store_bundle(target, document.versions[0], content) as hold_statements:
        if is_new and insert_version(target, document, hold_statements):
            return True
        database().write(hold_statements)
        return False


@contextmanager
def store_bundle(target: WidgetName, version: Row, content: bytes) -> Iterator[list[Statement]]:
    """Store the bundle, and yield the statements that mark it as held by this service.

    If the block raises, a bundle that was not stored before is removed again.
    """
    sha256, size = version["sha256_hash"], version["bundle_size"]
    held = bundle_writes.HeldBundle(target.scope, target.name, version["version"], sha256, size)
    with bundles().writing():
        is_new = not bundles().holds(sha256)
        bundles().add(sha256, size, [content])
        bundles().sync()
        try:
            yield bundle_writes.hold_bundles([held])
        except BaseException:
            if is_new:
                bundles().remove(sha256)
            raise


def insert_version(
    target: WidgetName, document: Document, hold_statements: list[Statement]
) -> bool:
    """Insert the version; return False if another process has just published the same one."""
    try:
        database().write([*writes.publish(document), *hold_statements])
    except sqlite3.IntegrityError:
        if not is_published(target, document):
            raise
        return False
    return True


def stored_document(existing: sqlite3.Row | None, document: Document) -> Json:
    """Return the widget and the new version as they would be stored."""
    (version,) = document.versions
    new_widget = {**document.widget, "created_at": version["published_at"]}
    return {
        "widget": json.loads(existing["json"]) if existing else row_json("widget", new_widget),
        "versions": [row_json("version", version)],
    }


def row_json(table: str, row: Row) -> Json:
    """Return the JSON of a row that is not stored."""
    expression = {"widget": json_sql.WIDGET, "version": json_sql.DOCUMENT_VERSION}[table]
    columns = ", ".join(f":{column} AS {column}" for column in row)
    sql = f"SELECT {expression} FROM (SELECT {columns}) AS {table}"
    with database().read() as connection:
        (text,) = connection.execute(sql, row).fetchone()
    value: Json = json.loads(text)
    return value


def print_unchanged(existing: sqlite3.Row, document: Document) -> None:
    """Print which properties of an existing widget a new version does not change."""
    if not existing["listed"]:
        print_status(f"{document.path} is unlisted; {program()} relist shows it.")
    if document.widget["is_official"] not in (None, existing["is_official"]):
        print_status(
            f"isOfficial is unchanged; use {program()} official or {program()} unofficial to "
            "change it."
        )


COUNT_VERSIONS = """
SELECT count(*) FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name
"""


def check_version_limit(target: WidgetName) -> None:
    """Raise CommandError if the widget has MAX_VERSIONS: import and mirror accept no more."""
    with database().read() as connection:
        (count,) = connection.execute(COUNT_VERSIONS, target._asdict()).fetchone()
    if count >= MAX_VERSIONS:
        raise CommandError(
            f"{target.scope}/{target.name} has {count} versions, "
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


def is_published(target: WidgetName, document: Document, *, compare_url: bool = True) -> bool:
    """Return whether the same version is stored.

    Raise CommandError if it is stored, or was deleted, with other content.
    """
    with database().read() as connection:
        stored = connection.execute(STORED_VERSION, target._asdict()).fetchone()
        values = {**target._asdict(), "sha256_hash": document.versions[0]["sha256_hash"]}
        deleted = connection.execute(DELETED_WITH_OTHER_BYTES, values).fetchone()
    if stored is None:
        if deleted:
            raise CommandError(
                f"{target} was published with another bundle and deleted; clients may have that "
                "one cached, so publish this one as a new version."
            )
        return False
    differences = find_differences(stored, document.versions[0], compare_url=compare_url)
    if differences:
        raise CommandError(
            f"{target} is published already with a different {', '.join(differences)}; "
            "publish the change as a new version."
        )
    return True
