"""Manifests: the widget document that publishing a manifest and a bundle adds."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from catalog.documents import (
    VERSION_FIELDS,
    Document,
    DocumentError,
    Row,
    check_document,
)
from catalog.text import quoted

WIDGET_KEYS = ("scope", "name", "displayName", "description", "icon", "isOfficial")
VERSION_KEYS = (
    *("version", "displayName", "description", "icon", "sdkVersion", "minSize", "maxSize"),
    *("configVersion", "permissions", "license", "releaseNotes"),
)
MANIFEST_KEYS = dict.fromkeys(WIDGET_KEYS + VERSION_KEYS)


def build_document(
    manifest: object, bundle: bytes, url_template: str, existing_display_name: str | None
) -> Document:
    """Return the document of a version that is published now; raise DocumentError if invalid.

    An existing widget keeps its display name, so that the manifest of a later version need not
    have one.
    """
    if not isinstance(manifest, Mapping):
        raise DocumentError(["The manifest must be one JSON object."])
    unknown = [key for key in manifest if key not in MANIFEST_KEYS]
    if unknown:
        raise DocumentError(
            [
                f"The manifest has {', '.join(map(quoted, unknown))}; "
                f"a manifest may have {', '.join(MANIFEST_KEYS)}."
            ]
        )
    widget: Row = {key: manifest[key] for key in WIDGET_KEYS if key in manifest}
    version: Row = {key: manifest[key] for key in VERSION_KEYS if key in manifest}
    return _check(
        {
            "widget": widget | {"displayName": existing_display_name or widget.get("displayName")},
            "versions": [
                version
                | {
                    "bundleUrl": _fill_template(url_template, manifest),
                    "bundleSize": len(bundle),
                    "sha256Hash": hashlib.sha256(bundle).hexdigest(),
                    "publishedAt": datetime.now(UTC).isoformat(),
                }
            ],
        }
    )


def _fill_template(template: str, manifest: Mapping[str, object]) -> str:
    for key in ("scope", "name", "version"):
        template = template.replace(
            f"{{{key}}}", quote(str(manifest.get(key)), safe="", errors="replace")
        )
    return template


def _check(document: Row) -> Document:
    """Return the checked document; raise DocumentError with its problems and its warnings.

    A manifest is flat, so a problem does not say whether it is in the widget or in the version.
    """
    try:
        checked = check_document(document)
        # A range that no SDK matches is only a warning on import, but an error on publish.
        problems = checked.warnings
    except DocumentError as error:
        problems = error.problems
    if problems:
        flat = dict.fromkeys(
            re.sub(r"^versions?( \S+|\[0\]): ", "", problem) for problem in problems
        )
        raise DocumentError(list(flat))
    return checked


# Columns that other commands change, and the time of publishing.
MUTABLE_COLUMNS = {"published_at", "yanked", "yanked_reason", "deprecation_message"}
SIZE_KEYS = {"min_w": "minSize", "min_h": "minSize", "max_w": "maxSize", "max_h": "maxSize"}
KEYS_BY_COLUMN = {field.column: field.key for field in VERSION_FIELDS} | SIZE_KEYS


def find_differences(stored: Mapping[str, object], published: Row) -> list[str]:
    """Return the keys in which a version to be published differs from the stored one."""
    columns = published.keys() - MUTABLE_COLUMNS
    return sorted(
        {KEYS_BY_COLUMN[column] for column in columns if stored[column] != published[column]}
    )
