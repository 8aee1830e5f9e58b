"""The JSON of the specification's resources, as SQL that makes it of rows of widget and version.

SQLite writes the text itself: one statement gives a whole answer, and while it works, other threads
can too.
"""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

# What is newer, of the rows of version. The indexes of schema.sql are in this order.
NEWEST_FIRST = "published_at DESC, precedence DESC, version DESC"


def _boolean(column: str) -> str:
    return f"json(CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)"


_WIDGET_FIELDS = f"""
    'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
    'description', widget.description, 'icon', widget.icon,
    'isOfficial', {_boolean("widget.is_official")}"""

WIDGET = f"""json_object({_WIDGET_FIELDS},
    'downloadCount', widget.download_count, 'createdAt', widget.created_at)"""

# Without latestVersion and latestCompatibleVersion, and without latestVersion and versions.
WIDGET_SUMMARY = f"json_object({_WIDGET_FIELDS}, 'downloadCount', widget.download_count)"
REGISTRY_WIDGET = f"json_object({_WIDGET_FIELDS}, 'createdAt', widget.created_at)"

_VERSION_FIELDS = f"""
    'version', version.version, 'bundleUrl', version.bundle_url,
    'bundleSize', version.bundle_size, 'sha256Hash', version.sha256_hash,
    'publishedAt', version.published_at, 'yanked', {_boolean("version.yanked")},
    'yankedReason', version.yanked_reason, 'deprecationMessage', version.deprecation_message,
    'releaseNotes', version.release_notes,
    'displayName', {{display_name}}, 'description', {{description}}, 'icon', {{icon}},
    'minSize', json_object('w', version.min_w, 'h', version.min_h),
    'maxSize', json_object('w', version.max_w, 'h', version.max_h),
    'sdkVersion', version.sdk_version, 'configVersion', version.config_version,
    'permissions', json(version.permissions), 'license', version.license"""

# As the API shows a version: what its manifest leaves out is the widget's own.
VERSION_ENTRY = "json_object('scope', widget.scope, 'name', widget.name, {})".format(
    _VERSION_FIELDS.format(
        display_name="coalesce(version.display_name, widget.display_name)",
        description="coalesce(version.description, widget.description)",
        icon="coalesce(version.icon, widget.icon)",
    )
)

# As a widget document holds it: nothing in place of what the manifest leaves out.
DOCUMENT_VERSION = "json_object({})".format(
    _VERSION_FIELDS.format(
        display_name="version.display_name",
        description="version.description",
        icon="version.icon",
    )
)


def with_members(text: str, **members: str) -> str:
    """The JSON object of a text with further members at its end, each as JSON text."""
    return text[:-1] + "".join(f',"{key}":{value}' for key, value in members.items()) + "}"


def latest_version(newest_first: Iterable[Any]) -> str | None:
    """The text of the newest version that is not yanked, or None."""
    return next((version["version"] for version in newest_first if not version["yanked"]), None)
