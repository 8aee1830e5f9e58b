"""Versions that a test publishes: every field that the test does not set has a valid value."""

from datetime import datetime, timedelta

from ..documents import VERSION_FIELDS, WIDGET_FIELDS, DocumentError, Json
from ..store.write.held_bundles import HeldBundle, bundle_path
from ..text import quoted
from ..validators import format_timestamp

SETTABLE_OF_WIDGET = {field.key for field in WIDGET_FIELDS} - {"scope", "name"}
SETTABLE_OF_VERSION = {field.key for field in VERSION_FIELDS} - {"version"}
FIRST_PUBLISHED = "2025-01-01T00:00:00.000Z"


def next_timestamp(last: str | None) -> str:
    """Return a time after the last one: not the clock's, so that each run has the same order."""
    if last is None:
        return FIRST_PUBLISHED
    return format_timestamp(datetime.fromisoformat(last) + timedelta(seconds=1))


def build_publication(
    held: HeldBundle, stored: Json | None, published_at: str, fields: Json
) -> Json:
    """Return the widget document of one version; fields take precedence.

    A widget that is stored keeps its properties. Raise DocumentError if a field cannot be set.
    """
    settable = SETTABLE_OF_VERSION if stored else SETTABLE_OF_VERSION | SETTABLE_OF_WIDGET
    if "bundleUrl" not in fields:
        # Computed from the bundle, which is stored.
        settable = settable - {"bundleSize", "sha256Hash"}
    if unknown := sorted(fields.keys() - settable):
        names, allowed = ", ".join(map(quoted, unknown)), ", ".join(sorted(settable))
        which = "a later" if stored else "the first"
        raise DocumentError([f"{names} cannot be set in {which} version; use {allowed}"])
    widget: Json = {
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
        # Clients get the address of this service, which holds the bundle.
        "bundleUrl": f"http://localhost{bundle_path(held)}",
        "bundleSize": held.size,
        "sha256Hash": held.sha256,
        "publishedAt": published_at,
        "sdkVersion": "^1.0.0",
        "releaseNotes": f"Version {held.version}.",
        "configVersion": 1,
        "license": "MIT",
    }
    own: Json = {key: fields[key] for key in fields if key in SETTABLE_OF_VERSION}
    widget |= {key: fields[key] for key in fields if key in SETTABLE_OF_WIDGET}
    return {"widget": stored or widget, "versions": [{**version, **own}]}
