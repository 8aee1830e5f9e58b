"""Rows as the JSON that the specification names: Widget, WidgetSummary, VersionEntry."""

import json
from typing import Any

Json = dict[str, Any]
Row = Any  # a sqlite3.Row, or a mapping of the same columns

# What version_entry() reads; a null display_name, description or icon falls back to the widget's.
VERSION_ENTRY_COLUMNS = """
    version.id, version.widget_id, widget.scope, widget.name, version.version, version.bundle_url,
    version.bundle_size, version.sha256_hash, version.published_at, version.yanked,
    version.yanked_reason, version.deprecation_message, version.release_notes,
    coalesce(version.display_name, widget.display_name) AS display_name,
    coalesce(version.description, widget.description) AS description,
    coalesce(version.icon, widget.icon) AS icon,
    version.min_w, version.min_h, version.max_w, version.max_h, version.sdk_version,
    version.config_version, version.permissions, version.license
"""


def widget(row: Row) -> Json:
    """The widget of a detail answer."""
    return {
        "scope": row["scope"],
        "name": row["name"],
        "displayName": row["display_name"],
        "description": row["description"],
        "icon": row["icon"],
        "isOfficial": boolean(row["is_official"]),
        "downloadCount": row["download_count"],
        "createdAt": row["created_at"],
    }


def widget_summary(row: Row, latest: Json | None) -> Json:
    """An element of a search answer, without the key that only compatSdk adds."""
    return {
        "scope": row["scope"],
        "name": row["name"],
        "displayName": row["display_name"],
        "description": row["description"],
        "icon": row["icon"],
        "isOfficial": boolean(row["is_official"]),
        "downloadCount": row["download_count"],
        "latestVersion": latest,
    }


def registry_widget(row: Row, versions: list[Json]) -> Json:
    """An element of a registry: nothing in it changes unless the widget itself does."""
    return {
        "scope": row["scope"],
        "name": row["name"],
        "displayName": row["display_name"],
        "description": row["description"],
        "icon": row["icon"],
        "isOfficial": boolean(row["is_official"]),
        "createdAt": row["created_at"],
        "latestVersion": latest_version(versions),
        "versions": versions,
    }


def version_entry(row: Row) -> Json:
    """A version as every endpoint shows it; the row has VERSION_ENTRY_COLUMNS."""
    return {
        "scope": row["scope"],
        "name": row["name"],
        "version": row["version"],
        "bundleUrl": row["bundle_url"],
        "bundleSize": row["bundle_size"],
        "sha256Hash": row["sha256_hash"],
        "publishedAt": row["published_at"],
        "yanked": bool(row["yanked"]),
        "yankedReason": row["yanked_reason"],
        "deprecationMessage": row["deprecation_message"],
        "releaseNotes": row["release_notes"],
        "displayName": row["display_name"],
        "description": row["description"],
        "icon": row["icon"],
        "minSize": {"w": row["min_w"], "h": row["min_h"]},
        "maxSize": {"w": row["max_w"], "h": row["max_h"]},
        "sdkVersion": row["sdk_version"],
        "configVersion": row["config_version"],
        "permissions": json.loads(row["permissions"]),
        "license": row["license"],
    }


def latest_version(newest_first: list[Json]) -> str | None:
    """The text of the newest version that is not yanked, or None."""
    return next((entry["version"] for entry in newest_first if not entry["yanked"]), None)


def boolean(value: int | None) -> bool | None:
    """SQLite's 0, 1 or null as JSON's false, true or null."""
    return None if value is None else bool(value)
