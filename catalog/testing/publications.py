"""Versions that a test publishes: every field that the test does not set has a valid value."""

import hashlib
from collections.abc import Set
from datetime import UTC, datetime, timedelta

from ..documents import VERSION_FIELDS, WIDGET_FIELDS, DocumentError, Json
from ..store.write.held_bundles import HeldBundle, bundle_path
from ..text import quoted
from ..validators import format_timestamp

WIDGET_KEYS = {field.key for field in WIDGET_FIELDS} - {"scope", "name"}
VERSION_KEYS = {field.key for field in VERSION_FIELDS} - {"version"}
# Computed from the bundle, unless the test gives a bundleUrl.
BUNDLE_KEYS = {"bundleSize", "sha256Hash"}
FIRST_PUBLISHED = "2025-01-01T00:00:00.000Z"


def next_timestamp(last: str | None) -> str:
    """Return a time after the last one: not the clock's, so that each run has the same order."""
    if last is None:
        return FIRST_PUBLISHED
    moment = datetime.fromisoformat(last).astimezone(UTC)
    return format_timestamp(moment + timedelta(seconds=1))


def check_keys(fields: Set[str], *, is_new_widget: bool) -> None:
    """Raise DocumentError if there is no such field, or it cannot be set."""
    problems = []
    if unknown := sorted(fields - WIDGET_KEYS - VERSION_KEYS):
        allowed = ", ".join(sorted(WIDGET_KEYS | VERSION_KEYS))
        problems.append(f"There is no field {', '.join(map(quoted, unknown))}; use {allowed}")
    if "bundleUrl" not in fields and fields & BUNDLE_KEYS:
        problems.append("bundleSize and sha256Hash are computed, unless bundleUrl is given")
    if not is_new_widget and (late := sorted(fields - VERSION_KEYS & WIDGET_KEYS)):
        problems.append(f"{', '.join(late)}: only with the first version of a widget")
    if problems:
        raise DocumentError(problems)


def build_publication(held: HeldBundle, base_url: str, published_at: str, fields: Json) -> Json:
    """Return the widget document of one version with this bundle; fields take precedence."""
    widget = {
        "scope": held.scope,
        "name": held.name,
        "displayName": held.name.replace("-", " ").title(),
        "description": f"The widget {held.scope}/{held.name}.",
        "icon": "mdi:puzzle-outline",
        "isOfficial": False,
        "downloadCount": 0,
    }
    version = {
        "version": held.version,
        "bundleUrl": base_url + bundle_path(held),
        "bundleSize": held.size,
        "sha256Hash": held.sha256,
        "publishedAt": published_at,
        "sdkVersion": "^1.0.0",
        "releaseNotes": f"Version {held.version}.",
        "configVersion": 1,
        "license": "MIT",
    }
    return {
        "widget": widget | {key: fields[key] for key in fields if key in WIDGET_KEYS},
        "versions": [version | {key: fields[key] for key in fields if key in VERSION_KEYS}],
    }


def make_bundle(
    scope: str, name: str, version: str, content: bytes | None
) -> tuple[HeldBundle, bytes]:
    """Return the bundle of a version, with its content: a small module if none is given."""
    if content is None:
        content = f'export default "{scope}/{name}@{version}";\n'.encode()
    sha256 = hashlib.sha256(content).hexdigest()
    return HeldBundle(scope, name, version, sha256, len(content)), content
