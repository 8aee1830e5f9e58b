"""The JSON of the specification's resources, as SQL that makes it of rows of widget and version.

SQLite writes the text itself: a statement gives a whole answer in one row, or a whole part of one.
While it works other threads can too, and each further row would be one more turn at the
interpreter's lock.
"""

import json
from collections.abc import Iterable
from typing import Any

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

# A version as a widget document holds it: null where its manifest leaves a field out. As the API
# shows it, it is the view version_entry of schema.sql.
DOCUMENT_VERSION = f"""json_object(
    'version', version.version, 'bundleUrl', version.bundle_url,
    'bundleSize', version.bundle_size, 'sha256Hash', version.sha256_hash,
    'publishedAt', version.published_at, 'yanked', {_boolean("version.yanked")},
    'yankedReason', version.yanked_reason, 'deprecationMessage', version.deprecation_message,
    'releaseNotes', version.release_notes,
    'displayName', version.display_name, 'description', version.description, 'icon', version.icon,
    'minSize', json_object('w', version.min_w, 'h', version.min_h),
    'maxSize', json_object('w', version.max_w, 'h', version.max_h),
    'sdkVersion', version.sdk_version, 'configVersion', version.config_version,
    'permissions', json(version.permissions), 'license', version.license)"""

# Of a widget: the newest version that is not yanked, as a JSON string, and all versions.
LATEST_VERSION = f"""json_quote((
    SELECT version FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {NEWEST_FIRST} LIMIT 1))"""
VERSION_ENTRIES = f"""'[' || coalesce((
    SELECT group_concat(entry) FROM (
        SELECT entry FROM version_entry WHERE widget_id = widget.id
        ORDER BY {NEWEST_FIRST})), '') || ']'"""


# Whether a range admits the SDK. Its intervals are disjoint: only the last one that begins up to
# the SDK's key can contain it.
ADMITS = """
:sdk < (SELECT high FROM sdk_interval
        WHERE range_id = {range_id} AND low <= :sdk ORDER BY low DESC LIMIT 1)
"""
VERSION_ADMITS = ADMITS.format(range_id="(SELECT id FROM sdk_range WHERE range = sdk_version)")

# The braces are all that trim() can meet: no field of a widget is an object.
REGISTRY_WIDGET = f"""'{{'
    || trim(json_object({WIDGET_FIELDS}, 'createdAt', widget.created_at), '{{}}')
    || ',"latestVersion":' || {LATEST_VERSION} || ',"versions":' || {VERSION_ENTRIES} || '}}'"""


# No text in a JSON string can contain this, since its quotes would be escaped; and no bundle_url in
# the database begins with a slash. So it marks just the bundles that are held here.
HELD_BUNDLE_URL = b',"bundleUrl":"/'


def with_bundle_urls(text: bytes, public_url: str) -> bytes:
    """The JSON with the absolute URL of each held bundle in place of its path."""
    return text.replace(HELD_BUNDLE_URL, HELD_BUNDLE_URL[:-1] + json_escaped(public_url) + b"/")


def json_escaped(text: str) -> bytes:
    """The text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def latest_version(newest_first: Iterable[Any]) -> str | None:
    """The text of the newest version that is not yanked, or None."""
    return next((version["version"] for version in newest_first if not version["yanked"]), None)
