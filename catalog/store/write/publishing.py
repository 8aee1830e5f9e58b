"""Publishes a version of a widget, and stores its bundle.

Commands and the internal API call publish(), so both have the same effect.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from ...domain.changes import (
    ConflictError,
    NewVersion,
    Published,
    WidgetName,
    already_published,
)
from ...domain.documents import (
    WIDGET_FIELDS,
    Document,
    about_json,
    version_json,
    widget_json,
)
from ...domain.manifests import build_document, find_warnings
from ...domain.validators import check_identifier
from ...settings import served_url_template
from ..bundles.bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..read.json_sql import latest_versions
from ..read.lookup import check_is_local, find_versions, find_widget
from .about import (
    NOTHING,
    NewFile,
    changed_columns,
    edit_about,
    find_about_rows,
    picture_file,
    store_files,
)
from .documents import put_documents, version_rows, widget_row
from .publish_warnings import find_mistakable_names, find_order_warnings
from .stored_bundles import bundle_path


def publish(
    database: Database,
    bundles: Bundles,
    settings: Mapping[str, Any],
    actor: Actor,
    new: NewVersion,
    *,
    dry_run: bool,
) -> Published:
    """Add a version, and store its bundle if the bundle's content is given.

    If the version exists with the same content, its widget does not change, and its bundle stays
    where it is unless new.stores_again is true. Raise DocumentError if the manifest is invalid.
    Raise ConflictError if the widget is a copy, or if the version exists, or was deleted, with
    different content.
    """
    given_url = new.url_template or settings["BUNDLE_URL"]
    url = given_url or (None if new.content is None else served_url_template(settings))
    # Compare all names before the transaction, so that other writes do not have to wait.
    name = _manifest_widget(new.manifest)
    mistakable = find_mistakable_names(database.fetch, name) if name else []

    def put(transaction: Transaction) -> Published:
        widget = find_widget(transaction.read, name.scope, name.name) if name else None
        display_name = widget["display_name"] if widget else None
        document = build_document(new, url, display_name)
        new.bundle.check_size()
        if widget:
            kept = {field.column: widget[field.column] for field in WIDGET_FIELDS}
            document = document._replace(widget={**document.widget, **kept})
            check_is_local(widget)
        stored = find_published(transaction, document, compare_url=bool(new.url_template))
        if stored is None:
            new.bundle.check_content()
        about = find_about_rows(transaction, [widget["id"]]).get(widget["id"]) if widget else None
        result = _put(transaction, new, document._replace(about=None), widget, stored)
        if not result["published"]:
            return result
        # Omitted fields keep their stored values.
        new_about = {key: text for key, text in (document.about or {}).items() if text is not None}
        if changes := changed_columns(about, new_about):
            edit_about(transaction, WidgetName(*document.path.split("/")), about, changes)
        result["warnings"] += [] if widget else mistakable
        if dry_run:
            planned = json.loads(widget["json"]) if widget else widget_json(widget_row(document))
            planned_about = about_json({**(about or NOTHING), **new_about})
            result["document"] = {
                "widget": planned,
                "versions": [version_json(document.versions[0])],
                **({"about": planned_about} if planned_about else {}),
            }
        return result

    if dry_run or (new.content is None and new.picture is None):
        return database.transact(put, actor, dry_run=dry_run)
    # If the version is refused, its bundle is removed again.
    planned = database.transact(put, actor, dry_run=True)
    with store_files(bundles, _new_files(new, planned)):
        return database.transact(put, actor)


def _new_files(new: NewVersion, planned: Published) -> Iterator[NewFile]:
    """Return the files to store: the bundle and, only for a new version, the picture."""
    if new.content is not None and planned["stored"]:
        yield NewFile(new.bundle.sha256, new.bundle.size, new.content, is_bundle=True)
    if new.picture is not None and planned["published"]:
        yield picture_file(new.picture)


def _manifest_widget(manifest: Any) -> WidgetName | None:
    """Return the widget that the manifest names; build_document() reports an invalid name."""
    try:
        return WidgetName(*(check_identifier(manifest[key]) for key in ("scope", "name")))
    except (TypeError, LookupError, ValueError):
        return None


# The sort key for versions; the newest version has the greatest key.
NEWNESS = itemgetter("published_at", "precedence", "version")


def _put(
    transaction: Transaction,
    new: NewVersion,
    document: Document,
    widget: sqlite3.Row | None,
    stored: sqlite3.Row | None,
) -> Published:
    """Add the version unless it is already stored; widget is the row for its widget."""
    (version,) = version_rows(document)
    target = WidgetName(version["scope"], version["name"], version["version"])
    versions = find_versions(transaction.read, target)
    available = [row for row in versions if not row["yanked"]]
    after: list[Any] = [*available, *([] if stored else [version])]
    after.sort(key=NEWNESS, reverse=True)
    official = new.manifest.get("isOfficial")
    result = Published(
        version=str(target),
        published=stored is None,
        message=None if stored is None else already_published(str(target)),
        stored=new.content is not None
        and (stored is None or stored["bundle_path"] is not None or new.stores_again),
        warnings=[],
        isUnlisted=widget is not None and not widget["listed"],
        isOfficialIgnored=widget is not None and official not in (None, widget["is_official"]),
        **latest_versions(available, after),
        document=None,
    )
    path = bundle_path(target.scope, target.name, version["version"])
    if stored is None:
        result["warnings"] += find_warnings(document, is_new_widget=widget is None)
        result["warnings"] += find_order_warnings(target, version, available)
        published = {
            "bundleUrl": version["bundle_url"],
            "bundleSize": version["bundle_size"],
            "sha256Hash": version["sha256_hash"],
            "stored": result["stored"],
        }
        transaction.record("publish", target, after=published)
    elif result["stored"] and stored["bundle_path"] != path:
        before = {"bundlePath": stored["bundle_path"]}
        transaction.record("store", target, before=before, after={"bundlePath": path})
        document = document._replace(versions=[dict(stored)])
    else:
        return result
    put_documents(transaction, [document], has_bundle=lambda *bundle: result["stored"])
    return result


STORED_VERSION = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND widget.name = :name AND version = :version
"""
# Other commands change these fields, and publishedAt differs each time.
MUTABLE_KEYS = {"publishedAt", "yanked", "yankedReason", "deprecationMessage"}
DELETED_WITH_OTHER_BYTES = """
SELECT 1 FROM deleted_version
WHERE scope = :scope AND name = :name AND version = :version AND sha256_hash <> :sha256_hash
"""


def find_published(
    transaction: Transaction, document: Document, *, compare_url: bool
) -> sqlite3.Row | None:
    """Return the row for the document's only version if it is stored, or None.

    Raise ConflictError if it is stored, or was deleted, with different content. With compare_url, a
    different bundle URL counts as different content.
    """
    (version,) = version_rows(document)
    target = WidgetName(version["scope"], version["name"], version["version"])
    rows = transaction.read(STORED_VERSION, version)
    if not rows:
        if transaction.read(DELETED_WITH_OTHER_BYTES, version):
            raise ConflictError(
                f"{target} was published with a different bundle and deleted; clients may "
                "have cached that bundle, so publish this one as a new version."
            )
        return None
    before, after = version_json(dict(rows[0])), version_json(version)
    compared = after.keys() - MUTABLE_KEYS - (set() if compare_url else {"bundleUrl"})
    if differences := sorted(key for key in compared if before[key] != after[key]):
        raise ConflictError(
            f"{target} is already published with a different {', '.join(differences)}; "
            "publish the change as a new version."
        )
    return rows[0]
