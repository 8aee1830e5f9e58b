"""Publishing: adds a version of a widget, and stores its bundle.

Commands and the internal API call publish(), so that both have the same effect.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...changes import (
    ChangeError,
    ConflictError,
    NewVersion,
    Published,
    WidgetName,
)
from ...documents import (
    VERSION_FIELDS,
    WIDGET_FIELDS,
    Document,
    Row,
    about_json,
    version_json,
    widget_json,
)
from ...manifests import build_document, find_warnings
from ...settings import served_url_template
from ...text import is_mistakable, quoted, without_separators
from ...validators import check_identifier
from ..bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from ..schema.sdk_intervals import sdk_intervals
from .about import (
    NOTHING,
    NewFile,
    changed_columns,
    edit_about,
    find_about,
    picture_file,
    store_files,
)
from .held_bundles import bundle_path, held_bundles, hold_bundles
from .imports import put_documents, version_rows, widget_row
from .lookup import Read, find_versions, find_widget, refuse_copy


def publish(
    database: Database,
    bundles: Bundles,
    settings: Mapping[str, Any],
    actor: Actor,
    new: NewVersion,
    *,
    dry_run: bool,
) -> Published:
    """Add a version, and store its bundle if its content is given; the same one changes nothing.

    Raise DocumentError if the manifest is invalid, ConflictError if the version is stored, or was
    deleted, with other content.
    """
    given_url = new.url_template or settings["BUNDLE_URL"]
    url = given_url or (None if new.content is None else served_url_template(settings))
    # Every name is compared, so not while other writes wait.
    name = _manifest_widget(new.manifest)
    mistakable = _mistakable_names(database.fetch, name) if name else []

    def put(transaction: Transaction) -> Published:
        widget = find_widget(transaction.read, name.scope, name.name) if name else None
        display_name = widget["display_name"] if widget else None
        document = build_document(new, url, display_name)
        if not new.bundle.size:
            raise ChangeError(f"{new.bundle.label} is empty.")
        if widget:
            kept = {field.column: widget[field.column] for field in WIDGET_FIELDS}
            document = document._replace(widget={**document.widget, **kept})
        stored = find_published(transaction, document, compare_url=bool(given_url))
        said = find_about(transaction, [widget["id"]]).get(widget["id"]) if widget else None
        # What the publication does not bring stays.
        brought = {key: text for key, text in (document.about or {}).items() if text is not None}
        result = _put(transaction, new, document._replace(about=None), widget, stored)
        if changes := changed_columns(said, brought):
            edit_about(transaction, WidgetName(*document.path.split("/")), said, changes)
        if result["published"]:
            result["warnings"] += [] if widget else mistakable
        if result["published"] and dry_run:
            planned = json.loads(widget["json"]) if widget else widget_json(widget_row(document))
            about = about_json({**(said or NOTHING), **brought})
            result["document"] = {
                "widget": planned,
                "versions": [version_json(document.versions[0])],
                **({"about": about} if about else {}),
            }
        return result

    if dry_run or (new.content is None and new.picture is None):
        return database.transact(put, actor, dry_run=dry_run)
    # A version that is refused leaves no bundle.
    database.transact(put, actor, dry_run=True)
    with store_files(bundles, _new_files(new)):
        return database.transact(put, actor)


def _new_files(new: NewVersion) -> Iterator[NewFile]:
    if new.content is not None:
        yield NewFile(new.bundle.sha256, new.bundle.size, new.content)
    if new.picture is not None:
        yield picture_file(new.picture)


def _manifest_widget(manifest: Any) -> WidgetName | None:
    """Return the widget that the manifest names; build_document() reports an invalid name."""
    try:
        return WidgetName(*(check_identifier(manifest[key]) for key in ("scope", "name")))
    except (TypeError, LookupError, ValueError):
        return None


# What orders versions; the greatest is the newest.
NEWNESS = itemgetter("published_at", "precedence", "version")


def _put(
    transaction: Transaction,
    new: NewVersion,
    document: Document,
    widget: sqlite3.Row | None,
    stored: sqlite3.Row | None,
) -> Published:
    """Add the version unless it is stored; widget is the row of its widget."""
    (version,) = version_rows(document)
    target = WidgetName(version["scope"], version["name"], version["version"])
    versions = find_versions(transaction.read, target)
    available = [row for row in versions if not row["yanked"]]
    before = available[0]["version"] if available else None
    is_latest = stored is None and not (available and NEWNESS(available[0]) > NEWNESS(version))
    official = new.manifest.get("isOfficial")
    result = Published(
        version=str(target),
        published=stored is None,
        stored=new.content is not None,
        warnings=[],
        isUnlisted=widget is not None and not widget["listed"],
        isOfficialIgnored=widget is not None and official not in (None, widget["is_official"]),
        previousLatestVersion=before,
        latestVersion=target.version if is_latest else before,
        document=None,
    )
    if stored is None:
        if widget:
            refuse_copy(widget)
        result["warnings"] += find_warnings(document, is_new_widget=widget is None)
        result["warnings"] += _order_warnings(target, version, available)
        _add(transaction, target, document, holds=result["stored"])
    elif result["stored"]:
        _hold_again(transaction, document, target, stored["bundle_path"])
    return result


def _add(transaction: Transaction, target: WidgetName, document: Document, *, holds: bool) -> None:
    put_documents(transaction, [document])
    if holds:
        hold_bundles(transaction, held_bundles(document))
    (version,) = document.versions
    after = {
        "bundleUrl": version["bundle_url"],
        "bundleSize": version["bundle_size"],
        "sha256Hash": version["sha256_hash"],
        "stored": holds,
    }
    transaction.record("publish", target, after=after)


def _order_warnings(
    target: WidgetName, version: Row, available: Sequence[sqlite3.Row]
) -> Iterator[str]:
    """Return what surprises people who expect the highest version to be the latest.

    The available versions are not yanked, and the first of them is the latest.
    """
    if not available:
        return
    latest = available[0]
    if latest["published_at"] > version["published_at"]:
        yield (
            f"{target.widget}@{latest['version']} has the publishedAt {latest['published_at']}, in "
            "the future, and stays the latest version until then"
        )
        return
    highest = max(available, key=itemgetter("precedence"))
    if highest["precedence"] <= version["precedence"]:
        return
    yield (
        f"{highest['version']} is higher; dashboards now get {target.version}, because the latest "
        "is the one published last"
    )
    if highest is latest and _admits_more(highest["sdk_version"], version["sdk_version"]):
        yield (
            f"dashboards that send a compatSdk of {highest['sdk_version']} still get "
            f"{highest['version']}"
        )


def _admits_more(range_: str, other: str) -> bool:
    """Return whether a range admits an SDK that the other one does not."""
    intervals = sdk_intervals(other)
    return any(
        not any(begin <= low and high <= end for begin, end in intervals)
        for low, high in sdk_intervals(range_)
    )


# Folding can change the length of names with other characters than ASCII.
SIMILAR_NAMES = """
SELECT scope, name FROM listing
WHERE scope <> :scope AND (
    length(CAST(name AS BLOB)) > length(name)
    OR length(replace(replace(replace(replace(name, '-', ''), '_', ''), '.', ''), ' ', ''))
        BETWEEN :length - 1 AND :length + 1)
ORDER BY scope, name
"""


def _mistakable_names(read: Read, new: WidgetName) -> list[str]:
    """Return a warning if widgets of other scopes have names that look like that of a new one."""
    if find_widget(read, new.scope, new.name):
        return []
    rows = read(SIMILAR_NAMES, {"scope": new.scope, "length": len(without_separators(new.name))})
    names = [WidgetName(*row) for row in rows if is_mistakable(row["name"], new.name)]
    shown = ", ".join(map(str, names[:3]))
    return [f"name {quoted(new.name)} can be mistaken for {shown}"] if names else []


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
    differences = _find_differences(rows[0], document.versions[0], compare_url=compare_url)
    if differences:
        raise ConflictError(
            f"{target} is published already with a different {', '.join(differences)}; "
            "publish the change as a new version."
        )
    return rows[0]


# Columns that other commands change, and the time of publishing.
MUTABLE_COLUMNS = {"published_at", "yanked", "yanked_reason", "deprecation_message"}
SIZE_KEYS = {"min_w": "minSize", "min_h": "minSize", "max_w": "maxSize", "max_h": "maxSize"}
KEYS_BY_COLUMN = {field.column: field.key for field in VERSION_FIELDS} | SIZE_KEYS


def _find_differences(stored: sqlite3.Row, published: Row, *, compare_url: bool) -> list[str]:
    """Return the keys in which a version to be published differs from the stored one."""
    columns = published.keys() - MUTABLE_COLUMNS - (set() if compare_url else {"bundle_url"})
    return sorted(
        {KEYS_BY_COLUMN[column] for column in columns if stored[column] != published[column]}
    )


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
