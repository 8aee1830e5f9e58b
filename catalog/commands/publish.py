"""widget-catalog publish: adds a version of a widget, from its manifest and its bundle."""

import hashlib
from typing import Any, BinaryIO

import click

from ..changes import BundleSummary, NewVersion, Published
from ..documents import DocumentError, parse_json
from ..manifests import BundleUrlError
from .base import CONTENT, STDIN, CommandError, command, file_name, print_latest, print_status
from .catalogs import open_catalog
from .terminal import format_json


@command("publish", remote=True)
@click.argument("manifest", type=click.File("rb"))
@click.argument("bundle", type=click.File("rb"))
@click.option(
    "--bundle-url",
    metavar="URL",
    help="Where dashboards load the bundle; {scope}, {name} and {version} are filled in. "
    "The default is the setting CATALOG_BUNDLE_URL.",
)
@click.option("--readme", type=CONTENT, help="A Markdown file about the widget.")
@click.option("--picture", type=CONTENT, help="A picture of the widget: PNG, JPEG, WebP or AVIF.")
@click.option("--store", is_flag=True, help="Store the bundle in this service, and serve it.")
@click.option("--dry-run", is_flag=True, help="Only print what would be stored.")
def publish(
    manifest: BinaryIO,
    bundle: BinaryIO,
    bundle_url: str | None,
    readme: bytes | None,
    picture: bytes | None,
    store: bool,
    dry_run: bool,
) -> None:
    """Add a version of a widget.

    MANIFEST is a JSON object that describes the version: scope, name, version, displayName,
    sdkVersion and the optional fields of a version. BUNDLE is its JavaScript file. The first
    version creates the widget; in later ones displayName, description and icon belong to the
    version only. With --store neither a CDN nor a URL is needed: responses contain the URL of the
    bundle at this service. With --server it is stored there, unless --bundle-url is given. Readme,
    picture, and the homepage, repository and issues of the manifest (https URLs) belong to the
    widget: each replaces the one before.
    """
    if file_name(manifest) == file_name(bundle) == STDIN:
        raise click.UsageError("MANIFEST and BUNDLE cannot both be standard input.")
    manifest_json = read_manifest(manifest)
    content = bundle.read()
    sha256 = hashlib.sha256(content).hexdigest()
    summary = BundleSummary(len(content), sha256, f"The bundle {file_name(bundle)}")
    catalog = open_catalog()
    is_stored = store or (catalog.stores_by_default and not bundle_url)
    stored = [content] if is_stored else None
    new = NewVersion(manifest_json, summary, stored, bundle_url, readme, picture)
    try:
        result = catalog.publish(new, dry_run=dry_run)
    except BundleUrlError:
        raise
    except DocumentError as error:
        raise CommandError(f"{file_name(manifest)}: {error}") from error
    for warning in result["warnings"]:
        print_status(f"Warning: {warning}.")
    if result["document"] is not None:
        click.echo(format_json(result["document"]))
        return
    version, is_new = result["version"], result["published"]
    print_status(f"Published {version}." if is_new else f"{version} is already published.")
    if result["stored"] and not dry_run:
        print_status(f"Its bundle is stored in {catalog.bundles_name}.")
    if is_new:
        print_consequences(result)


def read_manifest(file: BinaryIO) -> Any:
    """Return the JSON value in the file; raise CommandError if it is not JSON."""
    try:
        return parse_json(file.read())
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{file_name(file)} is not JSON in UTF-8: {error}.") from error


def print_consequences(result: Published) -> None:
    """Print what a new version does not change in its widget, and which one is the latest now."""
    widget, _, _ = result["version"].rpartition("@")
    if result["isUnlisted"]:
        print_status(f"{widget} is unlisted; widget-catalog relist shows it.")
    if result["isOfficialIgnored"]:
        print_status("isOfficial is unchanged; use widget-catalog official to change it.")
    print_latest(widget, result["previousLatestVersion"], result["latestVersion"])
