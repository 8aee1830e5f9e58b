"""The JSON of the specification's resources, as SQL that makes it of rows of widget and version.

SQLite writes the text itself: one statement gives a whole answer in one row. While it works other
threads can too, and each further row would be one more turn at the interpreter's lock.
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

# As the API shows a version: what its manifest leaves out is the widget's own, and a bundle that is
# held here is loaded from here, where the caller's way here is known.
VERSION_ENTRY = "json_object('scope', widget.scope, 'name', widget.name, {})".format(
    _VERSION_FIELDS.format(
        bundle_url="coalesce(:public_url || version.bundle_path, version.bundle_url)",
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


_OFFERED = "FROM version WHERE widget_id = widget.id AND yanked = 0"
_NEWEST = f"ORDER BY {NEWEST_FIRST} LIMIT 1"

# Of a widget: its newest version that is not yanked, as text or as JSON, and all its versions.
LATEST_VERSION = f"json_quote((SELECT version {_OFFERED} {_NEWEST}))"
LATEST_ENTRY = f"coalesce((SELECT {VERSION_ENTRY} {_OFFERED} {_NEWEST}), 'null')"
LATEST_COMPATIBLE_ENTRY = f"""coalesce((
    SELECT {VERSION_ENTRY} {_OFFERED} AND satisfies(:compat_sdk, sdk_version) {_NEWEST}), 'null')"""
VERSION_ENTRIES = f"""'[' || coalesce((
    SELECT group_concat(entry) FROM (
        SELECT {VERSION_ENTRY} AS entry FROM version WHERE widget_id = widget.id
        ORDER BY {NEWEST_FIRST})), '') || ']'"""


def _object(fields: str, **members: str) -> str:
    """A JSON object of plain fields, and of members that are JSON text already."""
    # The braces are all that trim() can meet: no plain field is an object.
    texts = "".join(f""" || ',"{key}":' || {text}""" for key, text in members.items())
    return f"""'{{' || trim(json_object({fields}), '{{}}'){texts} || '}}'"""


WIDGET_SUMMARY = _object(
    f"{_WIDGET_FIELDS}, 'downloadCount', widget.download_count", latestVersion=LATEST_ENTRY
)
# Most often the latest version is compatible too: its text is made once.
COMPATIBLE_WIDGET_SUMMARY = """(
    WITH newest AS MATERIALIZED (SELECT {latest} AS entry) SELECT {summary} FROM newest)""".format(
    latest=LATEST_ENTRY,
    summary=_object(
        f"{_WIDGET_FIELDS}, 'downloadCount', widget.download_count",
        latestVersion="entry",
        latestCompatibleVersion=f"""iif(
            entry = 'null' OR satisfies(:compat_sdk, entry ->> 'sdkVersion'),
            entry, {LATEST_COMPATIBLE_ENTRY})""",
    ),
)
REGISTRY_WIDGET = _object(
    f"{_WIDGET_FIELDS}, 'createdAt', widget.created_at",
    latestVersion=LATEST_VERSION,
    versions=VERSION_ENTRIES,
)


def latest_version(newest_first: Iterable[Any]) -> str | None:
    """The text of the newest version that is not yanked, or None."""
    return next((version["version"] for version in newest_first if not version["yanked"]), None)
