"""The statements of every write. These functions return them, and Database.write() runs them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from catalog.documents import Document, Row
from catalog.semver_ranges import MAX_SAFE_INTEGER, precedence
from catalog.store.connection.sqlite import Statement
from catalog.store.schema.sdk_intervals import sdk_intervals
from catalog.text import fold

_ADD_WIDGET = """
INSERT INTO widget (
    scope, name, display_name, description, icon, is_official, download_count,
    created_at, listed, folded_name, folded_text
) VALUES (
    :scope, :name, :display_name, :description, :icon, :is_official, :download_count,
    coalesce(:created_at, :default_created_at), {listed}, :folded_name, :folded_text
)
"""
ADD_WIDGET = _ADD_WIDGET.format(listed="coalesce(:listed, 1)")

# If the document has no downloadCount, createdAt or listed, the stored value stays: an import must
# not reset a count or list a widget that was unlisted. An unchanged row is not written. If the
# document has listed, PUT_LISTED sets it, after the versions: they cost less while the widget is
# unlisted.
PUT_WIDGET = f"""{_ADD_WIDGET.format(listed=":listed IS NULL")}
ON CONFLICT (scope, name) DO UPDATE SET
    display_name = :display_name, description = :description, icon = :icon,
    is_official = :is_official,
    download_count = iif(:has_download_count, :download_count, download_count),
    created_at = coalesce(:created_at, created_at),
    folded_name = :folded_name, folded_text = :folded_text
WHERE (
    display_name, description, icon, is_official, download_count, created_at,
    folded_name, folded_text
) IS NOT (
    :display_name, :description, :icon, :is_official,
    iif(:has_download_count, :download_count, download_count),
    coalesce(:created_at, created_at), :folded_name, :folded_text
)
"""

# One statement for many widgets: the text index writes the words of each statement to the file, and
# merges them later. With a statement for each widget, an import took a quarter longer.
PUT_LISTED = """
UPDATE widget SET listed = given.value ->> 2 FROM json_each(:widgets) AS given
WHERE scope = given.value ->> 0 AND name = given.value ->> 1 AND listed <> given.value ->> 2
"""

_ADD_VERSION = """
INSERT INTO version (
    widget_id, version, precedence, bundle_url, bundle_size, sha256_hash, published_at,
    yanked, yanked_reason, deprecation_message, release_notes, display_name, description, icon,
    min_w, min_h, max_w, max_h, sdk_version, config_version, permissions, license
) VALUES (
    (SELECT id FROM widget WHERE scope = :scope AND name = :name{condition}),
    :version, :precedence, :bundle_url, :bundle_size, :sha256_hash, :published_at,
    :yanked, :yanked_reason, :deprecation_message, :release_notes, :display_name, :description,
    :icon, :min_w, :min_h, :max_w, :max_h, :sdk_version, :config_version, :permissions, :license
)
"""

# If the version was deleted with other bytes, widget_id is NULL and the transaction fails. In one
# statement, no other write can come between the check and the insert.
PUBLISH_VERSION = _ADD_VERSION.format(
    condition="""
        AND NOT EXISTS (
            SELECT 1 FROM deleted_version AS deleted
            WHERE (deleted.scope, deleted.name, deleted.version) = (:scope, :name, :version)
              AND deleted.sha256_hash <> :sha256_hash)"""
)

# If the bytes change, the held bundle is no longer the version's bundle.
PUT_VERSION = f"""{_ADD_VERSION.format(condition="")}
ON CONFLICT (widget_id, version) DO UPDATE SET
    precedence = :precedence, bundle_url = :bundle_url, bundle_size = :bundle_size,
    sha256_hash = :sha256_hash, published_at = :published_at, yanked = :yanked,
    yanked_reason = :yanked_reason, deprecation_message = :deprecation_message,
    release_notes = :release_notes, display_name = :display_name, description = :description,
    icon = :icon, min_w = :min_w, min_h = :min_h, max_w = :max_w, max_h = :max_h,
    sdk_version = :sdk_version, config_version = :config_version, permissions = :permissions,
    license = :license,
    bundle_path = iif(
        (sha256_hash, bundle_size) = (:sha256_hash, :bundle_size), bundle_path, NULL
    )
WHERE (
    precedence, bundle_url, bundle_size, sha256_hash, published_at, yanked, yanked_reason,
    deprecation_message, release_notes, display_name, description, icon, min_w, min_h, max_w,
    max_h, sdk_version, config_version, permissions, license
) IS NOT (
    :precedence, :bundle_url, :bundle_size, :sha256_hash, :published_at, :yanked, :yanked_reason,
    :deprecation_message, :release_notes, :display_name, :description, :icon, :min_w, :min_h,
    :max_w, :max_h, :sdk_version, :config_version, :permissions, :license
)
"""

# A range that exists already has the same intervals.
ADD_RANGES = """
INSERT INTO sdk_range (range, intervals) SELECT key, value FROM json_each(:ranges) WHERE true
ON CONFLICT DO NOTHING
"""


def add_ranges(ranges: Iterable[str]) -> Statement:
    """Add the SDK ranges of versions; they must be added before the versions."""
    members = ",".join(map(_range_member, dict.fromkeys(ranges)))
    return ADD_RANGES, {"ranges": f"{{{members}}}"}


# Most versions use one of a few ranges.
@lru_cache(maxsize=256)
def _range_member(range_: str) -> str:
    return f"{json.dumps(range_)}:{json.dumps(sdk_intervals(range_))}"


# Documents whose SDK ranges are added in one statement, and whose widgets are listed in another.
BATCH = 1000


def in_batches(documents: Sequence[Document], size: int = BATCH) -> Iterator[Sequence[Document]]:
    """Yield the documents in lists of up to this size."""
    for start in range(0, len(documents), size):
        yield documents[start : start + size]


def put_documents(documents: Iterable[Document]) -> list[Statement]:
    """Add or update the widgets and versions of the documents."""
    batches = in_batches(list(documents))
    return [statement for batch in batches for statement in put_batch(batch)]


def put_document(document: Document) -> list[Statement]:
    """Add or update one widget and its versions."""
    return put_batch([document])


def put_batch(documents: Sequence[Document]) -> list[Statement]:
    """Add or update the widgets and versions of some documents."""
    ranges = (version["sdk_version"] for each in documents for version in each.versions)
    statements = [add_ranges(ranges)]
    for document in documents:
        statements.append((PUT_WIDGET, widget_row(document)))
        statements += ((PUT_VERSION, row) for row in version_rows(document))
    listed = [
        (widget["scope"], widget["name"], widget["listed"])
        for widget, *_ in documents
        if widget["listed"] is not None
    ]
    return [*statements, (PUT_LISTED, {"widgets": json.dumps(listed)})]


def count_changes(documents: Sequence[Document], counts: Iterator[int]) -> Iterator[int]:
    """Yield for each document how many rows changed, except widget.listed.

    counts has the rows that each statement of put_batch() changed.
    """
    next(counts)
    for document in documents:
        yield sum(islice(counts, 1 + len(document.versions)))
    next(counts)


def publish(document: Document) -> list[Statement]:
    """Add the document's versions, and its widget if it is new.

    The write raises IntegrityError if a version exists, or was deleted with other bytes.
    """
    return [
        add_ranges(version["sdk_version"] for version in document.versions),
        (f"{ADD_WIDGET} ON CONFLICT (scope, name) DO NOTHING", widget_row(document)),
        *((PUBLISH_VERSION, row) for row in version_rows(document)),
    ]


def widget_row(document: Document) -> Row:
    """Return the columns of the document's widget."""
    widget = document.widget
    return {**widget, **_folded_columns(widget["display_name"], widget["description"])}


def _folded_columns(display_name: str, description: str | None) -> Row:
    name = " ".join(fold(display_name).split())
    return {"folded_name": name, "folded_text": f"{name}\n{fold(description or '')}"}


def version_rows(document: Document) -> Iterator[Row]:
    """Yield the columns of each version, with the scope and name of its widget."""
    for version in document.versions:
        yield {
            **version,
            "scope": document.widget["scope"],
            "name": document.widget["name"],
            "precedence": precedence(version["version"]),
        }


REMOVE_OTHER_WIDGETS = """
DELETE FROM widget WHERE scope || '/' || name NOT IN (SELECT value FROM json_each(:paths))
"""

REMOVE_OTHER_VERSIONS = """
DELETE FROM version
WHERE widget_id = (SELECT id FROM widget WHERE scope = :scope AND name = :name)
  AND version NOT IN (SELECT value FROM json_each(:versions))
"""


def remove_all_but(documents: Sequence[Document]) -> list[Statement]:
    """Remove every widget and every version that is not in the documents."""
    paths = json.dumps([document.path for document in documents])
    statements: list[Statement] = [(REMOVE_OTHER_WIDGETS, {"paths": paths})]
    return statements + [remove_other_versions(document) for document in documents]


def remove_other_versions(document: Document) -> Statement:
    """Remove the versions of the document's widget that are not in the document."""
    versions = json.dumps([row["version"] for row in document.versions])
    scope, name = document.widget["scope"], document.widget["name"]
    return REMOVE_OTHER_VERSIONS, {"scope": scope, "name": name, "versions": versions}


# Optimize the search index after a write of at least this many widgets.
OPTIMIZE_AFTER = 1000  # widgets
OPTIMIZE_SEARCH_INDEX = "INSERT INTO listing_text (listing_text) VALUES ('optimize')"


def optimize_search_index() -> list[Statement]:
    """Merge the segments of the text index into one.

    Each large write adds segments, and a search reads all of them: seven after an import of 10,000
    widgets.
    """
    return [(OPTIMIZE_SEARCH_INDEX, {})]


COUNT_INSTALL = f"""
UPDATE widget SET download_count = min(coalesce(download_count, 0) + 1, {MAX_SAFE_INTEGER})
WHERE scope = :scope AND name = :name
"""


def count_install(scope: str, name: str) -> list[Statement]:
    """Add one to the widget's download counter; changes no row if there is no such widget."""
    return [(COUNT_INSTALL, {"scope": scope, "name": name})]


# One statement for all versions: in a cluster, many would be several transactions.
NEW_REASON = "iif(:keeps_reason, yanked_reason, :reason)"
SET_YANKED = f"""
UPDATE version SET yanked = :yanked, yanked_reason = {NEW_REASON}
WHERE id IN (SELECT value FROM json_each(:ids))
  AND (yanked, yanked_reason) IS NOT (:yanked, {NEW_REASON})
"""


def set_yanked(
    version_ids: Sequence[int], yanked: bool, reason: str | None, *, keeps_reason: bool = False
) -> list[Statement]:
    """Yank versions, or make them available again."""
    values = {"ids": json.dumps(version_ids), "yanked": yanked}
    return [(SET_YANKED, {**values, "reason": reason, "keeps_reason": keeps_reason})]


SET_DEPRECATION = """
UPDATE version SET deprecation_message = :message
WHERE id IN (SELECT value FROM json_each(:ids)) AND deprecation_message IS NOT :message
"""


def set_deprecation(version_ids: Sequence[int], message: str | None) -> list[Statement]:
    """Set the warning of versions; None removes it."""
    return [(SET_DEPRECATION, {"ids": json.dumps(version_ids), "message": message})]


SET_LISTED = "UPDATE widget SET listed = :listed WHERE id = :id AND listed IS NOT :listed"


def set_listed(widget_id: int, listed: bool) -> list[Statement]:
    """List or unlist a widget."""
    return [(SET_LISTED, {"id": widget_id, "listed": listed})]


SET_OFFICIAL = """
UPDATE widget SET is_official = :official WHERE id = :id AND is_official IS NOT :official
"""


def set_official(widget_id: int, official: bool) -> list[Statement]:
    """Mark a widget as official or not."""
    return [(SET_OFFICIAL, {"id": widget_id, "official": official})]


DESCRIBE = """
UPDATE widget
SET display_name = :display_name, description = :description, icon = :icon,
    folded_name = :folded_name, folded_text = :folded_text
WHERE id = :id
  AND (display_name, description, icon) IS (:old_display_name, :old_description, :old_icon)
"""


def describe(widget_id: int, before: Row, after: Row) -> list[Statement]:
    """Set the name, description and icon of a widget, if they are still those of before."""
    old = {f"old_{key}": value for key, value in before.items()}
    folded = _folded_columns(after["display_name"], after["description"])
    return [(DESCRIBE, {"id": widget_id, **old, **after, **folded})]


def delete_widget(widget_id: int) -> list[Statement]:
    """Delete a widget with all its versions."""
    return [("DELETE FROM widget WHERE id = :id", {"id": widget_id})]


def delete_version(version_id: int) -> list[Statement]:
    """Delete one version."""
    return [("DELETE FROM version WHERE id = :id", {"id": version_id})]
