"""flask publish: adds a version of a widget, from its manifest and its bundle."""

import hashlib
import json
from typing import Any, BinaryIO

import click

from catalog.commands.base import (
    CommandError,
    application,
    bundles,
    command,
    database,
    print_status,
    program,
    setting,
)
from catalog.commands.lookup import find_latest, print_latest
from catalog.commands.terminal import format_json
from catalog.store import publishing
from catalog.store.audit import local_actor
from catalog.store.manifests import BundleSummary
from catalog.store.publishing import Publication

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
    content = bundle.read()
    sha256 = hashlib.sha256(content).hexdigest()
    summary = BundleSummary(len(content), sha256, f"The bundle {getattr(bundle, 'name', STDIN)}")
    given_url = bundle_url or setting("BUNDLE_URL")
    served_url = publishing.served_url_template(application().config) if store else None
    publication = publishing.prepare(
        database(), manifest_json, summary, given_url or served_url, compare_url=bool(given_url)
    )
    for warning in publication.warnings:
        print_status(f"Warning: {warning}.")
    is_new = publication.is_new
    if is_new and dry_run:
        click.echo(format_json(publishing.stored_document(database(), publication)))
        return
    if not dry_run:
        chunks = [content] if store else None
        is_new = publishing.commit(database(), bundles(), local_actor(), publication, chunks)
    target = publication.target
    print_status(f"Published {target}." if is_new else f"{target} is already published.")
    if store and not dry_run:
        print_status(f"Its bundle is stored in {bundles().name}.")
    if is_new:
        print_unchanged(publication)
        print_latest(target, publication.latest, find_latest(target))


def read_manifest(file: BinaryIO) -> Any:
    """Return the JSON value in the file; raise CommandError if it is not JSON."""
    try:
        return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{file.name} is not JSON in UTF-8: {error}.") from error


def print_unchanged(publication: Publication) -> None:
    """Print which properties of an existing widget a new version does not change."""
    existing, document = publication.existing, publication.document
    if existing is None:
        return
    if not existing["listed"]:
        print_status(f"{document.path} is unlisted; {program()} relist shows it.")
    if document.widget["is_official"] not in (None, existing["is_official"]):
        print_status(
            f"isOfficial is unchanged; use {program()} official or {program()} unofficial to "
            "change it."
        )
