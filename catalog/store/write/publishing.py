"""Publishing: adds a version of a widget, and stores its bundle.

Commands and the internal API call publish(), so that both have the same effect.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, NamedTuple

from ...documents import (
    MAX_DOCUMENT_BYTES,
    MAX_VERSION_BYTES,
    MAX_VERSIONS,
    Document,
    Json,
    Row,
)
from ...text import is_mistakable, quoted
from ...validators import check_identifier
from ..bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction, now
from ..read import json_sql
from ..read.json_sql import latest_version
from .held_bundles import (
    bundle_path,
    held_bundles,
    hold_bundles,
    served_url_template,
)
from .imports import put_rows, version_rows, widget_row
from .lookup import (
    ChangeError,
    ConflictError,
    WidgetName,
    find_versions,
    find_widget,
    measure_versions,
)
from .manifests import (
    BundleSummary,
    build_document,
    find_differences,
    find_warnings,
)


class Upload(NamedTuple):
    """A manifest and a bundle to be published."""

    manifest: Any
    bundle: BundleSummary
    # The bundle in pieces; None if it is not to be stored.
    content: Iterable[bytes] | None
    # Where dashboards load the bundle, with {scope}, {name} and {version}. None is the setting
    # CATALOG_BUNDLE_URL or, if the bundle is stored, its URL at this service.
    url_template: str | None


class PublishResult(NamedTuple):
    """What publishing did, or would do."""

    target: WidgetName
    # False if the same version was published before.
    is_new: bool
    is_stored: bool
    warnings: list[str]
    # Properties of an existing widget that a new version does not change.
    is_unlisted: bool
    is_official_ignored: bool
    latest_before: str | None
    latest: str | None
    # In a dry run: the widget and the new version as they would be stored.
    document: Json | None


def publish(
    database: Database,
    bundles: Bundles,
    settings: Mapping[str, Any],
    actor: Actor,
    upload: Upload,
    *,
    dry_run: bool,
) -> PublishResult:
    """Add a version, and store its bundle if its content is given; the same one changes nothing.

    Raise DocumentError if the manifest is invalid, ConflictError if the version is stored, or was
    deleted, with other content.
    """
    given_url = upload.url_template or settings["BUNDLE_URL"]
    served_url = None if upload.content is None else served_url_template(settings)

    def put(transaction: Transaction) -> PublishResult:
        existing = _find_manifest_widget(transaction, upload.manifest)
        display_name = existing["display_name"] if existing else None
        url = given_url or served_url
        document = build_document(upload.manifest, upload.bundle, url, display_name)
        if not upload.bundle.size:
            raise ChangeError(f"{upload.bundle.label} is empty.")
        planned = _planned_document(transaction, document, existing) if dry_run else None
        stored = find_published(transaction, document, compare_url=bool(given_url))
        result = _put(transaction, document, existing, stored, upload.content is not None)
        return result._replace(document=planned if result.is_new else None)

    if upload.content is None or dry_run:
        return database.transact(put, actor, dry_run=dry_run)
    # A version that is refused leaves no bundle.
    database.transact(put, actor, dry_run=True)
    with _store_bundle(bundles, upload.bundle, upload.content):
        return database.transact(put, actor)


def _find_manifest_widget(transaction: Transaction, manifest: Any) -> sqlite3.Row | None:
    """Return the row of the widget that the manifest names, if it exists."""
    try:
        scope, name = (check_identifier(manifest[key]) for key in ("scope", "name"))
    except (TypeError, LookupError, ValueError):
        # build_document() reports an invalid name together with all other problems.
        return None
    return find_widget(transaction.read, scope, name)


def _put(
    transaction: Transaction,
    document: Document,
    existing: sqlite3.Row | None,
    stored: sqlite3.Row | None,
    is_stored: bool,
) -> PublishResult:
    """Add the version unless it is stored; existing is the row of its widget."""
    (version,) = version_rows(document)
    target = WidgetName(version["scope"], version["name"], version["version"])
    versions = find_versions(transaction.read, target)
    latest, official = latest_version(versions), document.widget["is_official"]
    is_new = stored is None
    # Before the first write: on a cluster, a transaction reads first.
    mistakable = _mistakable_names(transaction, target) if existing is None else []
    if stored is None:
        _check_limits(transaction, target)
        add_version(transaction, document, is_stored=is_stored)
    elif is_stored:
        _hold_again(transaction, document, target, stored["bundle_path"])
    available = [row for row in versions if not row["yanked"]] + [version] * is_new
    newest = max(available, key=itemgetter("published_at", "precedence", "version"), default=None)
    warnings = find_warnings(document, is_new_widget=existing is None) if is_new else []
    warnings += mistakable
    if is_new and newest and newest["published_at"] > now():
        warnings.append(
            f"{target.widget}@{newest['version']} has the publishedAt {newest['published_at']}, in "
            "the future, and stays the latest version until then"
        )
    return PublishResult(
        target,
        is_new,
        is_stored,
        warnings,
        is_unlisted=existing is not None and not existing["listed"],
        is_official_ignored=existing is not None
        and official not in (None, existing["is_official"]),
        latest_before=latest,
        latest=newest["version"] if newest else None,
        document=None,
    )


LISTED_NAMES = "SELECT scope, name FROM listing WHERE scope <> :scope ORDER BY scope, name"


def _mistakable_names(transaction: Transaction, target: WidgetName) -> list[str]:
    """Return a warning if widgets of other scopes have names that look like that of a new one."""
    rows = transaction.read(LISTED_NAMES, target._asdict())
    names = [f"{scope}/{name}" for scope, name in rows if is_mistakable(name, target.name)]
    shown = ", ".join(names[:3])
    return [f"name {quoted(target.name)} can be mistaken for {shown}"] if names else []


def _check_limits(transaction: Transaction, target: WidgetName) -> None:
    """Raise ConflictError if the widget is as large as import and mirror accept."""
    count, size = measure_versions(transaction.read, target)
    if count >= MAX_VERSIONS:
        raise ConflictError(
            f"{target.widget} has {count} versions, which is as many as a widget may have."
        )
    if size + MAX_VERSION_BYTES > MAX_DOCUMENT_BYTES:
        raise ConflictError(
            f"The versions of {target.widget} have {size} bytes as JSON, which leaves "
            f"no room for another: a widget may have {MAX_DOCUMENT_BYTES}."
        )


STORED_VERSION = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND version = :version
"""
DELETED_WITH_OTHER_BYTES = """
SELECT 1 FROM deleted_version
WHERE scope = :scope AND name = :name AND version = :version AND sha256_hash <> :sha256_hash
"""


def find_published(
    transaction: Transaction, document: Document, *, compare_url: bool
) -> sqlite3.Row | None:
    """Return the row of the document's only version if it is stored, or None.

    Raise ConflictError if it is stored, or was deleted, with other content. With compare_url,
    another URL of the bundle is other content.
    """
    (version,) = version_rows(document)
    target = WidgetName(version["scope"], version["name"], version["version"])
    rows = transaction.read(STORED_VERSION, version)
    if not rows:
        if transaction.read(DELETED_WITH_OTHER_BYTES, version):
            raise ConflictError(
                f"{target} was published with another bundle and deleted; clients may have that "
                "one cached, so publish this one as a new version."
            )
        return None
    differences = find_differences(rows[0], document.versions[0], compare_url=compare_url)
    if differences:
        raise ConflictError(
            f"{target} is published already with a different {', '.join(differences)}; "
            "publish the change as a new version."
        )
    return rows[0]


def add_version(transaction: Transaction, document: Document, *, is_stored: bool) -> None:
    """Add the only version of a document, and its widget if it is new, and record it."""
    (version,) = version_rows(document)
    widget = widget_row(document)
    exists = find_widget(transaction.read, widget["scope"], widget["name"])
    put_rows(transaction, [] if exists else [widget], [version])
    if is_stored:
        hold_bundles(transaction, held_bundles(document))
    after = {
        "bundleUrl": version["bundle_url"],
        "bundleSize": version["bundle_size"],
        "sha256Hash": version["sha256_hash"],
        "stored": is_stored,
    }
    target = widget["scope"], widget["name"], version["version"]
    transaction.record("publish", target, after=after)


def _hold_again(
    transaction: Transaction, document: Document, target: WidgetName, before: str | None
) -> None:
    """Make clients load the bundle of a stored version from here, unless they do."""
    (held,) = held_bundles(document)
    path = bundle_path(held)
    if before != path:
        hold_bundles(transaction, [held])
        transaction.record(
            "store", target, before={"bundlePath": before}, after={"bundlePath": path}
        )


@contextmanager
def _store_bundle(
    bundles: Bundles, bundle: BundleSummary, content: Iterable[bytes]
) -> Iterator[None]:
    """Store the bundle for the block, in which a version must come to name it.

    If the catalog refuses the version, a bundle that was not stored before is removed again. After
    any other error the version may be written, and `gc` removes the bundle if it is not.
    """
    with bundles.writing():
        is_new = not bundles.holds(bundle.sha256)
        bundles.add(bundle.sha256, bundle.size, content)
        bundles.sync()
        try:
            yield
        except ChangeError:
            if is_new:
                bundles.remove(bundle.sha256)
            raise


def _planned_document(
    transaction: Transaction, document: Document, existing: sqlite3.Row | None
) -> Json:
    """Return the widget and the new version as they would be stored."""
    widget = json.loads(existing["json"]) if existing else None
    if widget is None:
        widget = _row_json(transaction, json_sql.WIDGET, "widget", widget_row(document))
    version = document.versions[0]
    version_json = _row_json(transaction, json_sql.DOCUMENT_VERSION, "version", version)
    return {"widget": widget, "versions": [version_json]}


def _row_json(transaction: Transaction, expression: str, table: str, row: Row) -> Json:
    """Return the JSON of a row that is not stored."""
    columns = ", ".join(f":{column} AS {column}" for column in row)
    ((text,),) = transaction.read(f"SELECT {expression} FROM (SELECT {columns}) AS {table}", row)
    value: Json = json.loads(text)
    return value
