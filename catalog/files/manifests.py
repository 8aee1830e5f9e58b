"""A manifest and a bundle, as the widget document that publishing them adds."""

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


def publication(
    manifest: object, bundle: bytes, bundle_url: str, known_display_name: str | None
) -> Document:
    """The document of one version published now; raises DocumentError with all its problems.

    A widget that is known keeps its own name, so that a later manifest may leave its own out.
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
    return _checked(
        {
            "widget": widget | {"displayName": known_display_name or widget.get("displayName")},
            "versions": [
                version
                | {
                    "bundleUrl": _filled(bundle_url, manifest),
                    "bundleSize": len(bundle),
                    "sha256Hash": hashlib.sha256(bundle).hexdigest(),
                    "publishedAt": datetime.now(UTC).isoformat(),
                }
            ],
        }
    )


def _checked(given: Row) -> Document:
    """The document, with its problems told as a manifest has them: flat, and each once."""
    try:
        document = check_document(given)
        # Others' catalogs may hold what no SDK matches; ours begin right.
        problems = document.warnings
    except DocumentError as error:
        problems = error.problems
    if problems:
        flat = dict.fromkeys(re.sub(r"^versions?( \S+|\[0\]): ", "", each) for each in problems)
        raise DocumentError(list(flat))
    return document


# What later commands change, and the moment, make no other version of it.
CHANGING = {"published_at", "yanked", "yanked_reason", "deprecation_message"}
SIZES = {"min_w": "minSize", "min_h": "minSize", "max_w": "maxSize", "max_h": "maxSize"}
KEYS = {field.column: field.key for field in VERSION_FIELDS} | SIZES


def differences(stored: Mapping[str, object], published: Row) -> list[str]:
    """The keys in which a version to be published differs from the one that is stored."""
    columns = published.keys() - CHANGING
    return sorted({KEYS[column] for column in columns if stored[column] != published[column]})


def _filled(template: str, manifest: Mapping[str, object]) -> str:
    for key in ("scope", "name", "version"):
        template = template.replace(
            f"{{{key}}}", quote(str(manifest.get(key)), safe="", errors="replace")
        )
    return template
