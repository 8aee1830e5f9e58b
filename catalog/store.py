"""Every write, as statements for Database.write(). Nothing here reads or runs anything."""

from collections.abc import Iterable

from catalog.db import Statement
from catalog.documents import Document
from catalog.folding import fold
from catalog.semver_ranges import precedence

# A document that says nothing of downloadCount, createdAt or listed leaves them as they are:
# importing an old description must not lose a count or show what was unlisted. A row that would
# not change is not written.
PUT_WIDGET = """
INSERT INTO widget (
    scope, name, display_name, description, icon, is_official, download_count,
    created_at, listed, folded_name, folded_text
) VALUES (
    :scope, :name, :display_name, :description, :icon, :is_official, :download_count,
    coalesce(:created_at, :default_created_at), coalesce(:listed, 1), :folded_name, :folded_text
)
ON CONFLICT (scope, name) DO UPDATE SET
    display_name = :display_name, description = :description, icon = :icon,
    is_official = :is_official,
    download_count = iif(:states_download_count, :download_count, download_count),
    created_at = coalesce(:created_at, created_at), listed = coalesce(:listed, listed),
    folded_name = :folded_name, folded_text = :folded_text
WHERE (
    display_name, description, icon, is_official, download_count, created_at, listed,
    folded_name, folded_text
) IS NOT (
    :display_name, :description, :icon, :is_official,
    iif(:states_download_count, :download_count, download_count),
    coalesce(:created_at, created_at), coalesce(:listed, listed), :folded_name, :folded_text
)
"""

PUT_VERSION = """
INSERT INTO version (
    widget_id, version, precedence, bundle_url, bundle_size, sha256_hash, published_at,
    yanked, yanked_reason, deprecation_message, release_notes, display_name, description, icon,
    min_w, min_h, max_w, max_h, sdk_version, config_version, permissions, license
) VALUES (
    (SELECT id FROM widget WHERE scope = :scope AND name = :name),
    :version, :precedence, :bundle_url, :bundle_size, :sha256_hash, :published_at,
    :yanked, :yanked_reason, :deprecation_message, :release_notes, :display_name, :description,
    :icon, :min_w, :min_h, :max_w, :max_h, :sdk_version, :config_version, :permissions, :license
)
ON CONFLICT (widget_id, version) DO UPDATE SET
    precedence = :precedence, bundle_url = :bundle_url, bundle_size = :bundle_size,
    sha256_hash = :sha256_hash, published_at = :published_at, yanked = :yanked,
    yanked_reason = :yanked_reason, deprecation_message = :deprecation_message,
    release_notes = :release_notes, display_name = :display_name, description = :description,
    icon = :icon, min_w = :min_w, min_h = :min_h, max_w = :max_w, max_h = :max_h,
    sdk_version = :sdk_version, config_version = :config_version, permissions = :permissions,
    license = :license
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


def put_documents(documents: Iterable[Document]) -> list[Statement]:
    """Add what the documents hold and update what is there already."""
    return [statement for document in documents for statement in put_document(document)]


def put_document(document: Document) -> list[Statement]:
    """Add one widget with its versions, or update those that are there already."""
    widget = document.widget
    folded_name = " ".join(fold(widget["display_name"]).split())
    folded_text = folded_name + "\n" + fold(widget["description"] or "")
    row = {**widget, "folded_name": folded_name, "folded_text": folded_text}
    statements: list[Statement] = [(PUT_WIDGET, row)]
    for version in document.versions:
        statements.append(
            (
                PUT_VERSION,
                {
                    **version,
                    "scope": widget["scope"],
                    "name": widget["name"],
                    "precedence": precedence(version["version"]),
                },
            )
        )
    return statements


# Up to the greatest whole number that JavaScript holds exactly.
COUNT_INSTALL = """
UPDATE widget SET download_count = min(coalesce(download_count, 0) + 1, 9007199254740991)
WHERE scope = :scope AND name = :name
"""


def count_install(scope: str, name: str) -> list[Statement]:
    """Add one to the widget's download counter; changes no row where there is no such widget."""
    return [(COUNT_INSTALL, {"scope": scope, "name": name})]
