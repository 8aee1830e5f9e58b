"""Builds the widget document for a manifest and a bundle to publish."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from .changes import ChangeError, NewVersion
from .documents import Document, DocumentError, Row, check_new_document
from .messages import NotAllowedError, quoted
from .pictures import describe_picture
from .validators import check_markdown, check_url_template, is_icon_name

MANIFEST_WIDGET_KEYS = ("scope", "name", "displayName", "description", "icon", "isOfficial")
MANIFEST_VERSION_KEYS = (
    "version", "displayName", "description", "icon", "sdkVersion", "minSize", "maxSize",
    "configVersion", "permissions", "license", "releaseNotes",
)  # fmt: skip
LINK_KEYS = ("homepage", "repository", "issues")
MANIFEST_ABOUT_KEYS = (*LINK_KEYS, "keywords")
MANIFEST_KEYS = dict.fromkeys(MANIFEST_WIDGET_KEYS + MANIFEST_VERSION_KEYS + MANIFEST_ABOUT_KEYS)


# A placeholder for the URL of the bundle, so that problems in the manifest are reported first.
ANY_URL = "https://cdn.example.com/"


class BundleUrlError(DocumentError):
    """The manifest is valid, but the URL of the bundle is invalid or missing."""


def check_keys(manifest: object) -> Mapping[str, object]:
    """Return the manifest if it is an object with known keys; raise DocumentError otherwise."""
    if not isinstance(manifest, Mapping):
        raise DocumentError(["The manifest must be a JSON object."])
    unknown = [key for key in manifest if key not in MANIFEST_KEYS]
    if unknown:
        raise DocumentError(
            [
                f"The manifest has unknown keys: {', '.join(map(quoted, unknown))}; "
                f"allowed keys are {', '.join(MANIFEST_KEYS)}."
            ]
        )
    return manifest


def build_document(
    new: NewVersion, url_template: str | None, existing_display_name: str | None
) -> Document:
    """Return the document for a version to publish now; raise DocumentError if it is invalid.

    An existing widget keeps its display name, so the manifest of a later version may omit it.
    """
    manifest = check_keys(new.manifest)
    widget: Row = {key: manifest[key] for key in MANIFEST_WIDGET_KEYS if key in manifest}
    widget["displayName"] = existing_display_name or widget.get("displayName")
    version: Row = {key: manifest[key] for key in MANIFEST_VERSION_KEYS if key in manifest} | {
        "bundleSize": new.bundle.size,
        "sha256Hash": new.bundle.sha256,
        "publishedAt": datetime.now(UTC).isoformat(),
    }
    about: Row = {key: manifest.get(key) for key in MANIFEST_ABOUT_KEYS}
    if new.readme:
        about["readme"] = decode_readme(new.readme)
    if new.picture is not None:
        about["picture"] = check_new_picture(new.picture)
    _check({"widget": widget, "versions": [version | {"bundleUrl": ANY_URL}], "about": about})
    _check_filtered_texts(version)
    if not url_template:
        raise BundleUrlError(
            ["The bundle has no URL: use --bundle-url or --store, or set CATALOG_BUNDLE_URL."]
        )
    try:
        check_url_template(url_template)
    except NotAllowedError as error:
        raise BundleUrlError([error.about("bundleUrl", url_template)]) from None
    version["bundleUrl"] = _fill_template(url_template, manifest)
    try:
        return _check({"widget": widget, "versions": [version], "about": about})
    except DocumentError as error:
        raise BundleUrlError(error.problems) from error


# Strings that have a special meaning in search filters.
RESERVED_TEXT = re.compile(r"\(none\)|[-\\].*", re.DOTALL)


def _check_filtered_texts(version: Row) -> None:
    """Raise DocumentError if a permission or the licence looks like a filter operator."""
    texts = [("permissions", text) for text in version.get("permissions") or []]
    texts.append(("license", version.get("license") or ""))
    problems = [
        f"{key} must not contain {quoted(text)}, which has a special meaning in a search"
        for key, text in texts
        if RESERVED_TEXT.fullmatch(text)
    ]
    if problems:
        raise DocumentError(problems)


def decode_readme(content: bytes) -> str:
    """Return the text of a readme; raise ChangeError if it is not allowed."""
    try:
        return check_markdown(content.decode("utf-8-sig"))
    except UnicodeError as error:
        raise ChangeError(f"The readme is not in UTF-8: {error}.") from error
    except ValueError as allowed:
        raise ChangeError(f"The readme must be {allowed}.") from allowed


def check_new_picture(content: bytes) -> Row:
    """Return the description of a picture; raise ChangeError if it is not allowed."""
    try:
        return describe_picture(content)
    except ValueError as allowed:
        raise ChangeError(f"The picture must be {allowed}.") from allowed


def _fill_template(template: str, manifest: Mapping[str, object]) -> str:
    for key in ("scope", "name", "version"):
        template = template.replace(
            f"{{{key}}}", quote(str(manifest.get(key)), safe="", errors="replace")
        )
    return template


def _check(document: Row) -> Document:
    """Return the validated document; raise DocumentError if it has a problem or a warning.

    A manifest is flat, so its problems are reported without the prefix that names the version.
    """
    try:
        checked = check_new_document(document)
        # A range that matches no SDK is only a warning on import, but an error on publish.
        problems = checked.warnings
    except DocumentError as error:
        problems = error.problems
    if problems:
        flat = dict.fromkeys(
            re.sub(r"^versions?( \S+|\[0\]): ", "", problem) for problem in problems
        )
        raise DocumentError(list(flat))
    return checked


USUAL_NAME = re.compile("[a-z0-9._-]+")


def find_warnings(document: Document, *, is_new_widget: bool) -> list[str]:
    """Return warnings about valid but unusual values in a document to be published.

    The name of an existing widget cannot change, so it does not cause a warning.
    """
    (version,) = document.versions
    names = {key: document.widget[key] for key in ("scope", "name") if is_new_widget}
    warnings = [
        f"{key} {quoted(name)} has characters other than [a-z0-9._-], which clients may not expect"
        for key, name in names.items()
        if not USUAL_NAME.fullmatch(name)
    ]
    if version["icon"] is not None and not is_icon_name(version["icon"]):
        warnings.append(
            f"icon {quoted(version['icon'])} is not of the form set:name, such as mdi:clock"
        )
    return warnings
