"""SQL expressions that render rows of widget and version as the JSON of the API.

SQLite writes the JSON text, so that a statement returns a whole response, or a large piece of one,
in one row. It runs without the GIL, and each further row would cost another GIL switch.
"""

import json
from collections.abc import Iterable
from typing import Any

# The order of versions. The indexes of schema.sql are in this order too.
NEWEST_FIRST = "published_at DESC, precedence DESC, version DESC"


def _boolean(column: str) -> str:
    return f"json(CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)"


# The members that the detail and the registry have in common.
_WIDGET_MEMBERS = f"""
    'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
    'description', widget.description, 'icon', widget.icon,
    'isOfficial', {_boolean("widget.is_official")}"""

WIDGET = f"""json_object({_WIDGET_MEMBERS},
    'downloadCount', widget.download_count, 'createdAt', widget.created_at)"""

# A version in a widget document: a field that its manifest does not have is null. The API takes
# these fields from the widget instead: see the view version_entry in schema.sql.
DOCUMENT_VERSION = f"""json_object(
    'version', version.version, 'bundleUrl', version.bundle_url,
    'bundleSize', version.bundle_size, 'sha256Hash', version.sha256_hash,
    'publishedAt', version.published_at, 'yanked', {_boolean("version.yanked")},
    'yankedReason', version.yanked_reason, 'deprecationMessage', version.deprecation_message,
    'releaseNotes', version.release_notes,
    'displayName', version.display_name, 'description', version.description, 'icon', version.icon,
    'minSize', json_object('w', version.min_w, 'h', version.min_h),
    'maxSize', json_object('w', version.max_w, 'h', version.max_h),
    'sdkVersion', version.sdk_version, 'configVersion', json(version.config_version),
    'permissions', json(version.permissions), 'license', version.license)"""

# The newest version of a widget that is not yanked, as a JSON string or null.
LATEST_VERSION = f"""json_quote((
    SELECT version FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {NEWEST_FIRST} LIMIT 1))"""
# All versions of a widget, as a JSON array.
VERSION_ENTRIES = f"""'[' || coalesce((
    SELECT group_concat(entry) FROM (
        SELECT entry FROM version_entry WHERE widget_id = widget.id
        ORDER BY {NEWEST_FIRST})), '') || ']'"""

# Whether a range admits the SDK. Its intervals are disjoint, so only the last one that begins at or
# before the SDK's key can contain the key.
ADMITS = """
:sdk < (SELECT high FROM sdk_interval
        WHERE range_id = {range_id} AND low <= :sdk ORDER BY low DESC LIMIT 1)
"""
VERSION_ADMITS = ADMITS.format(range_id="(SELECT id FROM sdk_range WHERE range = sdk_version)")

# The newest version of a widget that is not yanked and runs on the SDK, as JSON; NULL if none does.
LATEST_COMPATIBLE_ENTRY = f"""(
    SELECT entry FROM version_entry WHERE id = (
        SELECT id FROM version WHERE widget_id = {{widget_id}} AND yanked = 0 AND {VERSION_ADMITS}
        ORDER BY {NEWEST_FIRST} LIMIT 1))"""

# trim() removes only the outer braces, because no member of the widget is an object.
REGISTRY_WIDGET = f"""'{{'
    || trim(json_object({_WIDGET_MEMBERS}, 'createdAt', widget.created_at), '{{}}')
    || ',"latestVersion":' || {LATEST_VERSION} || ',"versions":' || {VERSION_ENTRIES} || '}}'"""

# This marks exactly the held bundles: quotes inside a JSON string are escaped, so no text can
# contain it, and a bundle_url in the database never begins with a slash.
HELD_BUNDLE_URL = b',"bundleUrl":"/'


def with_bundle_urls(text: bytes, public_url: str) -> bytes:
    """Return the JSON with the path of each held bundle replaced by its absolute URL."""
    return text.replace(HELD_BUNDLE_URL, HELD_BUNDLE_URL[:-1] + json_escaped(public_url) + b"/")


def json_escaped(text: str) -> bytes:
    """Return the text as it is written between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def latest_version(newest_first: Iterable[Any]) -> str | None:
    """Return the number of the newest version that is not yanked, or None."""
    return next((version["version"] for version in newest_first if not version["yanked"]), None)
