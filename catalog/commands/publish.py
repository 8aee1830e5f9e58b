"""widget-catalog publish: adds a version of a widget, from its manifest and its bundle."""

import hashlib
from typing import Any, BinaryIO

import click

from ..domain.bundle_text import find_bundle_problem
from ..domain.changes import BundleSummary, NewVersion, Published, already_published
from ..domain.documents import DocumentError, parse_json
from ..domain.manifests import BundleUrlError
from .base import command
from .catalogs import open_catalog
from .options import CONTENT
from .output import STDIN, CommandError, file_name, print_json, print_latest, print_status


@command("publish", remote=True)
@click.argument("manifest", type=click.File("rb"))
@click.argument("bundle", type=click.File("rb"))
@click.option(
    "--bundle-url",
    metavar="URL",
    help="Do not store the bundle; dashboards load it from this URL. {scope}, {name} and {version} "
    "are filled in. Default: CATALOG_BUNDLE_URL.",
)
@click.option(
    "--store",
    is_flag=True,
    help="Store the bundle even if CATALOG_BUNDLE_URL is set, or if the published version has its "
    "bundle at another URL.",
)
@click.option(
    "--readme", type=CONTENT, metavar="FILE", help="Set the readme of the widget, in Markdown."
)
@click.option(
    "--picture",
    type=CONTENT,
    metavar="FILE",
    help="Set the picture of the widget: PNG, JPEG, WebP or AVIF.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be published.")
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

    MANIFEST is a JSON file that describes the version, and BUNDLE is its JavaScript file. One of
    them can be - for standard input. The first version creates the widget.

    The service stores the bundle and serves it, unless --bundle-url or CATALOG_BUNDLE_URL says
    where it is. Publishing the same version again changes nothing; if its content differs,
    the command fails.
    """
    if file_name(manifest) == file_name(bundle) == STDIN:
        raise click.UsageError("MANIFEST and BUNDLE cannot both be standard input.")
    manifest_json = read_manifest(manifest)
    content = bundle.read()
    sha256 = hashlib.sha256(content).hexdigest()
    label, problem = f"The bundle {file_name(bundle)}", find_bundle_problem(content)
    summary = BundleSummary(len(content), sha256, label, problem)
    catalog = open_catalog()
    is_stored = store or not (bundle_url or catalog.bundle_url)
    stored = [content] if is_stored else None
    new = NewVersion(
        manifest_json, summary, stored, bundle_url, readme, picture, stores_again=store
    )
    try:
        result = catalog.publish(new, dry_run=dry_run)
    except BundleUrlError:
        raise
    except DocumentError as error:
        raise CommandError(f"{file_name(manifest)}: {error}") from error
    for warning in result["warnings"]:
        print_status(f"Warning: {warning}.")
    if result["document"] is not None:
        print_json(result["document"])
        return
    version, is_new = result["version"], result["published"]
    print_status(f"Published {version}." if is_new else already_published(version))
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
    """Print which properties the new version left unchanged, and the new latest version."""
    widget, _, _ = result["version"].rpartition("@")
    if result["isUnlisted"]:
        print_status(f"{widget} is unlisted; use widget-catalog relist to show it.")
    if result["isOfficialIgnored"]:
        print_status("isOfficial is unchanged; use widget-catalog official to change it.")
    print_latest(widget, result)
