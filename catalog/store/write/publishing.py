"""Publishing: adds a version of a widget, and stores its bundle.

Commands and the internal API call publish(), so that both have the same effect.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from catalog.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_VERSION_BYTES,
    MAX_VERSIONS,
    Document,
    Json,
    Row,
)
from catalog.store.bundles import Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Statement
from catalog.store.read import json_sql
from catalog.store.write import held_bundles as bundle_writes
from catalog.store.write import writes
from catalog.store.write.audit import RECORD, Actor, record, record_values
from catalog.store.write.held_bundles import HeldBundle
from catalog.store.write.lookup import (
    ChangeError,
    ConflictError,
    WidgetName,
    find_latest,
    find_widget,
)
from catalog.store.write.manifests import (
    BundleSummary,
    build_document,
    find_differences,
    find_warnings,
)
from catalog.validators import check_identifier


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
    is_stored = upload.content is not None
    served_url = bundle_writes.served_url_template(settings) if is_stored else None
    publication = prepare(
        database,
        upload.manifest,
        upload.bundle,
        given_url or served_url,
        compare_url=bool(given_url),
    )
    is_new, planned = publication.is_new, None
    if not dry_run:
        is_new = commit(database, bundles, actor, publication, upload.content)
    elif is_new:
        planned = stored_document(database, publication)
    existing, official = publication.existing, publication.document.widget["is_official"]
    return PublishResult(
        publication.target,
        is_new,
        is_stored,
        publication.warnings,
        is_unlisted=existing is not None and not existing["listed"],
        is_official_ignored=existing is not None
        and official not in (None, existing["is_official"]),
        latest_before=publication.latest,
        latest=find_latest(database, publication.target),
        document=planned,
    )


class Publication(NamedTuple):
    """A valid version that may be written."""

    target: WidgetName
    document: Document
    # The row of its widget, if that exists.
    existing: sqlite3.Row | None
    # False if the same version is stored already.
    is_new: bool
    # The latest version of the widget before this one is written.
    latest: str | None
    warnings: list[str]
    # Whether another URL of the bundle makes it another version.
    compare_url: bool


def prepare(
    database: Database,
    manifest: Any,
    bundle: BundleSummary,
    url_template: str | None,
    *,
    compare_url: bool,
) -> Publication:
    """Return what publishing the manifest with the bundle would write."""
    existing = _find_manifest_widget(database, manifest)
    display_name = existing["display_name"] if existing else None
    document = build_document(manifest, bundle, url_template, display_name)
    if not bundle.size:
        raise ChangeError(f"{bundle.label} is empty.")
    widget, (version,) = document.widget, document.versions
    target = WidgetName(widget["scope"], widget["name"], version["version"])
    publication = Publication(
        target, document, existing, True, find_latest(database, target), [], compare_url
    )
    if _is_published(database, publication):
        return publication._replace(is_new=False)
    _check_version_limit(database, target)
    warnings = find_warnings(document, is_new_widget=existing is None)
    return publication._replace(warnings=warnings)


def _find_manifest_widget(database: Database, manifest: Any) -> sqlite3.Row | None:
    """Return the row of the widget that the manifest names, if it exists."""
    try:
        scope, name = (check_identifier(manifest[key]) for key in ("scope", "name"))
    except (TypeError, LookupError, ValueError):
        # build_document() reports an invalid name together with all other problems.
        return None
    return find_widget(database, scope, name)


def commit(
    database: Database,
    bundles: Bundles,
    actor: Actor,
    publication: Publication,
    content: Iterable[bytes] | None,
) -> bool:
    """Insert the version if it is new, and store its bundle if content is given.

    Return False if the version was published already, perhaps by another process just now.
    """
    is_new = publication.is_new
    if content is None:
        return is_new and _insert_version(database, actor, publication, [])
    with _store_bundle(bundles, publication, content) as held:
        hold = bundle_writes.hold_bundles([held])
        if is_new and _insert_version(database, actor, publication, hold):
            return True
        ((_, values),) = hold
        database.write([record(RECORD_HELD, actor, "store", **values), *hold])
        if not _is_published(database, publication):
            raise ConflictError(f"{publication.target} was deleted at the same time; try again.")
        return False


RECORD_HELD = f"""{RECORD}
    scope, name, version, json_object('bundlePath', bundle_path), json_object('bundlePath', :path)
FROM version JOIN widget ON widget.id = widget_id
WHERE (scope, name, version) = (:scope, :name, :version)
  AND (sha256_hash, bundle_size) = (:sha256, :size) AND bundle_path IS NOT :path
"""


@contextmanager
def _store_bundle(
    bundles: Bundles, publication: Publication, content: Iterable[bytes]
) -> Iterator[HeldBundle]:
    """Store the bundle for the block, in which a version must come to name it.

    If the catalog refuses the version, a bundle that was not stored before is removed again. After
    any other error the version may be written, and `gc` removes the bundle if it is not.
    """
    (version,) = publication.document.versions
    sha256, size = version["sha256_hash"], version["bundle_size"]
    scope, name, _ = publication.target
    with bundles.writing():
        is_new = not bundles.holds(sha256)
        bundles.add(sha256, size, content)
        bundles.sync()
        try:
            yield HeldBundle(scope, name, version["version"], sha256, size)
        except (ChangeError, sqlite3.IntegrityError):
            if is_new:
                bundles.remove(sha256)
            raise


def _insert_version(
    database: Database, actor: Actor, publication: Publication, hold: list[Statement]
) -> bool:
    """Insert the version; return False if another process has just published the same one."""
    target, document = publication.target, publication.document
    (version,) = document.versions
    after = {
        "bundleUrl": version["bundle_url"],
        "bundleSize": version["bundle_size"],
        "sha256Hash": version["sha256_hash"],
        "stored": bool(hold),
    }
    entry = record_values(actor, "publish", target, after=after)
    try:
        database.write([*writes.publish(document), *hold, entry])
    except sqlite3.IntegrityError:
        if not _is_published(database, publication):
            raise
        return False
    return True


def stored_document(database: Database, publication: Publication) -> Json:
    """Return the widget and the new version as they would be stored."""
    existing, document = publication.existing, publication.document
    (version,) = document.versions
    new_widget = {**document.widget, "created_at": version["published_at"]}
    widget = json.loads(existing["json"]) if existing else _row_json(database, "widget", new_widget)
    return {"widget": widget, "versions": [_row_json(database, "version", version)]}


def _row_json(database: Database, table: str, row: Row) -> Json:
    """Return the JSON of a row that is not stored."""
    expression = {"widget": json_sql.WIDGET, "version": json_sql.DOCUMENT_VERSION}[table]
    columns = ", ".join(f":{column} AS {column}" for column in row)
    sql = f"SELECT {expression} FROM (SELECT {columns}) AS {table}"
    with database.read() as connection:
        (text,) = connection.execute(sql, row).fetchone()
    value: Json = json.loads(text)
    return value


MEASURE_VERSIONS = """
SELECT count(*), sum(length(CAST(entry AS BLOB))) FROM widget
JOIN version_entry ON widget_id = widget.id WHERE scope = :scope AND name = :name
"""


def _check_version_limit(database: Database, target: WidgetName) -> None:
    """Raise ConflictError if import and mirror would not accept one version more."""
    with database.read() as connection:
        count, size = connection.execute(MEASURE_VERSIONS, target._asdict()).fetchone()
    if count >= MAX_VERSIONS:
        raise ConflictError(
            f"{target.scope}/{target.name} has {count} versions, "
            "which is as many as a widget may have."
        )
    if (size or 0) + MAX_VERSION_BYTES > MAX_DOCUMENT_BYTES:
        raise ConflictError(
            f"The versions of {target.scope}/{target.name} have {size} bytes as JSON, which leaves "
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


def _is_published(database: Database, publication: Publication) -> bool:
    """Return whether the same version is stored.

    Raise ConflictError if it is stored, or was deleted, with other content.
    """
    target, (version,) = publication.target, publication.document.versions
    with database.read() as connection:
        stored = connection.execute(STORED_VERSION, target._asdict()).fetchone()
        values = {**target._asdict(), "sha256_hash": version["sha256_hash"]}
        deleted = connection.execute(DELETED_WITH_OTHER_BYTES, values).fetchone()
    if stored is None:
        if deleted:
            raise ConflictError(
                f"{target} was published with another bundle and deleted; clients may have that "
                "one cached, so publish this one as a new version."
            )
        return False
    differences = find_differences(stored, version, compare_url=publication.compare_url)
    if differences:
        raise ConflictError(
            f"{target} is published already with a different {', '.join(differences)}; "
            "publish the change as a new version."
        )
    return True
