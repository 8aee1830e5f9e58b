"""The versions that a test publishes: fields that the test omits default to valid values."""

from datetime import datetime, timedelta

from ..domain.changes import BundleSummary, WidgetName
from ..domain.documents import (
    ABOUT_FIELDS,
    ABOUT_KEYS,
    VERSION_FIELDS,
    WIDGET_FIELDS,
    DocumentError,
    Json,
    Row,
)
from ..domain.messages import NotAllowedError, quoted
from ..domain.timestamps import format_timestamp
from ..store.write.stored_bundles import bundle_path

SETTABLE_OF_WIDGET = {field.key for field in WIDGET_FIELDS} - {"scope", "name"}
SETTABLE_OF_VERSION = {field.key for field in VERSION_FIELDS} - {"version"}
# The fields that the describe action can set, except the picture.
DESCRIPTION_KEYS = {"displayName", "description", "icon", *ABOUT_KEYS} - {"picture"}
DESCRIPTION_CHECKS = {
    field.key: field.check
    for field in WIDGET_FIELDS + ABOUT_FIELDS
    if field.key in DESCRIPTION_KEYS
}
FIRST_PUBLISHED = "2025-01-01T00:00:00.000Z"


def next_timestamp(last: str | None) -> str:
    """Return a time after the last one; ignore the clock, so that test runs are reproducible."""
    if last is None:
        return FIRST_PUBLISHED
    return format_timestamp(datetime.fromisoformat(last) + timedelta(seconds=1))


def check_description(fields: Json) -> Row:
    """Return the new fields, where None removes a field; raise ValueError if one is invalid."""
    if unknown := sorted(fields.keys() - DESCRIPTION_CHECKS.keys()):
        allowed = ", ".join(sorted(DESCRIPTION_CHECKS))
        raise ValueError(f"describe can set {allowed} and pictureBase64, not {quoted(unknown[0])}.")
    changes: Row = {}
    for key, value in fields.items():
        is_removed = value is None and key != "displayName"
        try:
            changes[key] = None if is_removed else DESCRIPTION_CHECKS[key](value)
        except NotAllowedError as error:
            raise ValueError(f"{error.about(key, value)}.") from None
    return changes


def build_publication(
    target: WidgetName,
    version: str,
    bundle: BundleSummary,
    stored: Json | None,
    published_at: str,
    fields: Json,
) -> Json:
    """Return a widget document with one version; the given fields override the defaults.

    A stored widget keeps its properties. Raise DocumentError if a field cannot be set.
    """
    settable = SETTABLE_OF_VERSION if stored else SETTABLE_OF_VERSION | SETTABLE_OF_WIDGET
    if "bundleUrl" not in fields:
        # These fields are computed from the stored bundle.
        settable = settable - {"bundleSize", "sha256Hash"}
    if unknown := sorted(fields.keys() - settable):
        names, allowed = ", ".join(map(quoted, unknown)), ", ".join(sorted(settable))
        which = "a later" if stored else "the first"
        raise DocumentError([f"{names} cannot be set in {which} version; use {allowed}"])
    widget: Json = {
        "scope": target.scope,
        "name": target.name,
        "displayName": target.name.replace("-", " ").title(),
        "description": f"The widget {target.widget}.",
        "icon": "mdi:puzzle-outline",
        "isOfficial": False,
        "downloadCount": 0,
    }
    entry = {
        "version": version,
        # Clients get the URL of this service instead, because it stores the bundle.
        "bundleUrl": f"http://localhost{bundle_path(target.scope, target.name, version)}",
        "bundleSize": bundle.size,
        "sha256Hash": bundle.sha256,
        "publishedAt": published_at,
        "sdkVersion": "^1.0.0",
        "releaseNotes": f"Version {version}.",
        "configVersion": 1,
        "license": "MIT",
    }
    own: Json = {key: fields[key] for key in fields if key in SETTABLE_OF_VERSION}
    widget |= {key: fields[key] for key in fields if key in SETTABLE_OF_WIDGET}
    return {"widget": stored or widget, "versions": [{**entry, **own}]}
