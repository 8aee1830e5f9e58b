"""The JSON of the specification's resources, as SQL that makes it of rows of widget and version.

SQLite writes the text itself: a statement gives a whole answer in one row, or a whole part of one.
While it works other threads can too, and each further row would be one more turn at the
interpreter's lock.
"""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

# What is newer, of the rows of version. The indexes of schema.sql are in this order.
NEWEST_FIRST = "published_at DESC, precedence DESC, version DESC"


def _boolean(column: str) -> str:
    return f"json(CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)"


# Of a widget, all but what changes without it: its counter and its versions.
WIDGET_FIELDS = f"""
    'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
    'description', widget.description, 'icon', widget.icon,
    'isOfficial', {_boolean("widget.is_official")}"""

WIDGET = f"""json_object({WIDGET_FIELDS},
    'downloadCount', widget.download_count, 'createdAt', widget.created_at)"""

_VERSION_FIELDS = f"""
    'version', version.version, 'bundleUrl', {{bundle_url}},
    'bundleSize', version.bundle_size, 'sha256Hash', version.sha256_hash,
    'publishedAt', version.published_at, 'yanked', {_boolean("version.yanked")},
    'yankedReason', version.yanked_reason, 'deprecationMessage', version.deprecation_message,
    'releaseNotes', version.release_notes,
    'displayName', {{display_name}}, 'description', {{description}}, 'icon', {{icon}},
    'minSize', json_object('w', version.min_w, 'h', version.min_h),
    'maxSize', json_object('w', version.max_w, 'h', version.max_h),
    'sdkVersion', version.sdk_version, 'configVersion', version.config_version,
    'permissions', json(version.permissions), 'license', version.license"""

# As the API shows a version: what its manifest leaves out is the widget's own. The URL of a bundle
# that is held here is only a path, so that the same text serves every host name; see
# with_bundle_urls().
VERSION_ENTRY = "json_object('scope', widget.scope, 'name', widget.name, {})".format(
    _VERSION_FIELDS.format(
        bundle_url="coalesce(version.bundle_path, version.bundle_url)",
        display_name="coalesce(version.display_name, widget.display_name)",
        description="coalesce(version.description, widget.description)",
        icon="coalesce(version.icon, widget.icon)",
    )
)

# As a widget document holds it: nothing in place of what the manifest leaves out.
DOCUMENT_VERSION = "json_object({})".format(
    _VERSION_FIELDS.format(
        bundle_url="version.bundle_url",
        display_name="version.display_name",
        description="version.description",
        icon="version.icon",
    )
)


# The versions of a widget that are not yanked.
OFFERED_NEWEST_FIRST = (
    f"FROM version WHERE widget_id = widget.id AND yanked = 0 ORDER BY {NEWEST_FIRST}"
)

# Of a widget: its newest version that is not yanked, as text or as JSON, and all its versions.
LATEST_VERSION = f"json_quote((SELECT version {OFFERED_NEWEST_FIRST} LIMIT 1))"
LATEST_ENTRY = f"coalesce((SELECT {VERSION_ENTRY} {OFFERED_NEWEST_FIRST} LIMIT 1), 'null')"
VERSION_ENTRIES = f"""'[' || coalesce((
    SELECT group_concat(entry) FROM (
        SELECT {VERSION_ENTRY} AS entry FROM version WHERE widget_id = widget.id
        ORDER BY {NEWEST_FIRST})), '') || ']'"""


# The braces are all that trim() can meet: no field of a widget is an object.
REGISTRY_WIDGET = f"""'{{'
    || trim(json_object({WIDGET_FIELDS}, 'createdAt', widget.created_at), '{{}}')
    || ',"latestVersion":' || {LATEST_VERSION} || ',"versions":' || {VERSION_ENTRIES} || '}}'"""


# No text in a JSON string can contain this, since its quotes would be escaped; and no bundle_url in
# the database begins with a slash. So it marks just the bundles that are held here.
HELD_BUNDLE_URL = b',"bundleUrl":"/'


def with_bundle_urls(text: bytes, public_url: str) -> bytes:
    """The JSON with the absolute URL of each held bundle in place of its path."""
    url = json.dumps(public_url, ensure_ascii=False)[1:-1].encode()
    return text.replace(HELD_BUNDLE_URL, HELD_BUNDLE_URL[:-1] + url + b"/")


def latest_version(newest_first: Iterable[Any]) -> str | None:
    """The text of the newest version that is not yanked, or None."""
    return next((version["version"] for version in newest_first if not version["yanked"]), None)
