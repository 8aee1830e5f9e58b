"""Validates every field of a widget document, and converts the document to rows to store."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from .messages import NotAllowedError, quoted
from .pictures import check_picture
from .semver_ranges import is_range, is_version
from .timestamps import format_timestamp
from .validators import (
    check_boolean,
    check_grid_size,
    check_http_url,
    check_https_url,
    check_identifier,
    check_keywords,
    check_markdown,
    check_new_name,
    check_nonempty_text,
    check_number,
    check_permissions,
    check_sha256,
    check_text,
    check_timestamp,
    check_version,
    check_whole_number,
)

# The widget_too_large trigger in schema.sql enforces MAX_VERSIONS and MAX_DOCUMENT_BYTES.
MAX_VERSIONS = 10_000
# A publishedAt may be this far in the future, because clocks differ between machines.
MAX_CLOCK_ERROR = timedelta(days=1)
# The maximum size of the versions in a detail response, including inherited text fields.
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
# The maximum number of problems to report: every value in an unrelated file may be a problem.
MAX_PROBLEMS = 20
# The maximum number of commas and brackets: seven times as many as in a document with MAX_VERSIONS
# versions. This limits the memory for parsing: three bytes can become an object of 100 bytes.
MAX_JSON_SEPARATORS = 2_000_000

Json = dict[str, Any]
Row = dict[str, Any]


class Document(NamedTuple):
    """A valid document, as columns for its widget and for each of its versions."""

    widget: Row
    versions: list[Row]
    warnings: list[str]
    # The columns of the about table; None keeps the stored row.
    about: Row | None = None

    @property
    def path(self) -> str:
        """The widget as scope/name."""
        return f"{self.widget['scope']}/{self.widget['name']}"


class DocumentError(ValueError):
    """A document is invalid; the problems attribute lists up to MAX_PROBLEMS reasons."""

    def __init__(self, problems: Sequence[str]) -> None:
        text = "; ".join(problems)
        super().__init__(text if text.endswith(".") else f"{text}.")
        self.problems = list(problems)


def parse_json(content: bytes) -> object:
    """Parse JSON; raise ValueError if it is invalid, or RecursionError if nested too deeply."""
    # Only a string longer than the maximum can have too many separators.
    is_long = len(content) > MAX_JSON_SEPARATORS
    if is_long and sum(map(content.count, (b",", b"[", b"{"))) > MAX_JSON_SEPARATORS:
        raise DocumentError([f"has more than {MAX_JSON_SEPARATORS} commas and brackets"])
    # RFC 8259 allows parsers to ignore a byte order mark.
    return json.loads(content.decode("utf-8-sig"))


@dataclass(frozen=True)
class Field:
    """A key in a document: its column, its validator, and the default for null or a missing key."""

    key: str
    column: str
    check: Callable[[object], Any]
    default: Any = None
    required: bool = False


WIDGET_FIELDS = (
    Field("scope", "scope", check_identifier, required=True),
    Field("name", "name", check_identifier, required=True),
    Field("displayName", "display_name", check_nonempty_text, required=True),
    Field("description", "description", check_text),
    Field("icon", "icon", check_text),
    Field("isOfficial", "is_official", check_boolean),
    Field("downloadCount", "download_count", check_whole_number),
    Field("createdAt", "created_at", check_timestamp),
    Field("listed", "listed", check_boolean),
)

VERSION_FIELDS = (
    Field("version", "version", check_version, required=True),
    Field("bundleUrl", "bundle_url", check_http_url, required=True),
    Field("bundleSize", "bundle_size", check_whole_number, required=True),
    Field("sha256Hash", "sha256_hash", check_sha256, required=True),
    Field("publishedAt", "published_at", check_timestamp, required=True),
    Field("yanked", "yanked", check_boolean, default=False),
    Field("yankedReason", "yanked_reason", check_text),
    Field("deprecationMessage", "deprecation_message", check_text),
    Field("releaseNotes", "release_notes", check_markdown),
    Field("displayName", "display_name", check_nonempty_text),
    Field("description", "description", check_text),
    Field("icon", "icon", check_text),
    Field("minSize", "min_size", check_grid_size, default=(1, 1)),
    Field("maxSize", "max_size", check_grid_size, default=(12, 12)),
    Field("sdkVersion", "sdk_version", check_text, required=True),
    Field("configVersion", "config_version", check_number),
    Field("permissions", "permissions", check_permissions, default="[]"),
    Field("license", "license", check_text),
)


ABOUT_FIELDS = (
    Field("readme", "readme", check_markdown),
    Field("homepage", "homepage", check_https_url),
    Field("repository", "repository", check_https_url),
    Field("issues", "issues", check_https_url),
    Field("keywords", "keywords", check_keywords),
    Field("picture", "picture", check_picture),
)
ABOUT_KEYS = tuple(field.key for field in ABOUT_FIELDS)


def check_document(document: object) -> Document:
    """Return the rows for a widget document; raise DocumentError if it is invalid."""
    if not isinstance(document, dict) or not isinstance(document.get("widget"), dict):
        raise DocumentError(['must be an object {"widget": {...}, "versions": [...]}'])
    entries = document.get("versions")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise DocumentError([f"versions must be an array, not {quoted(entries)}"])
    if len(entries) > MAX_VERSIONS:
        raise DocumentError(
            [f"versions has {len(entries)} entries, more than the {MAX_VERSIONS} allowed"]
        )

    problems: list[str] = []
    widget = _check_fields(document["widget"], WIDGET_FIELDS, "", problems)
    versions: list[Row] = []
    for index, entry in enumerate(entries):
        if len(problems) >= MAX_PROBLEMS:
            break
        versions.append(_check_version_entry(entry, widget, index, problems))
    counts = Counter(row.get("version") for row in versions)
    problems += [f"version {text} appears twice" for text in counts if text and counts[text] > 1]
    about = check_about(document.get("about"), problems)
    if problems:
        raise DocumentError(problems[:MAX_PROBLEMS])

    widget["has_download_count"] = "downloadCount" in document["widget"]
    oldest = min((row["published_at"] for row in versions), default=None)
    widget["default_created_at"] = oldest or format_timestamp(datetime.now(UTC))
    return Document(widget, versions, list(version_warnings(versions)), about)


def check_about(value: object, problems: list[str]) -> Row | None:
    """Return the columns of the about table, and append a problem for each invalid field."""
    if isinstance(value, dict):
        return _check_fields(value, ABOUT_FIELDS, "", problems)
    if value is not None:
        problems.append(f"about must be an object, not {quoted(value)}")
    return None


def check_new_document(document: object) -> Document:
    """Return the rows for a document to publish or import; raise DocumentError if it is invalid.

    Unlike check_document(), this rejects names that only earlier releases allowed.
    """
    checked = check_document(document)
    try:
        check_new_name(checked.widget["name"])
    except NotAllowedError as error:
        raise DocumentError([error.about("name", checked.widget["name"])]) from None
    return checked


def version_warnings(rows: Iterable[Any]) -> Iterator[str]:
    """Yield a warning for each value that is valid but probably a mistake."""
    tomorrow = format_timestamp(datetime.now(UTC) + MAX_CLOCK_ERROR)
    for row in rows:
        version, sdk, time = row["version"], row["sdk_version"], row["published_at"]
        if not is_range(sdk):
            problem = f"sdkVersion {quoted(sdk)} is not an npm range; no SDK will match it"
            yield f"version {version}: {problem}"
        if time > tomorrow:
            problem = f"publishedAt {time} is in the future"
            yield f"version {version}: {problem}; until then no other version will be the latest"


def _check_fields(
    values: Mapping[str, object], fields: Sequence[Field], prefix: str, problems: list[str]
) -> Row:
    """Return the columns of the valid fields, and append a problem for each invalid field."""
    row: Row = {}
    for field in fields:
        value = values.get(field.key)
        if value is None and not field.required:
            row[field.column] = field.default
        elif value is None:
            problems.append(f"{prefix}{field.key} is missing")
        else:
            try:
                row[field.column] = field.check(value)
            except NotAllowedError as error:
                problems.append(error.about(f"{prefix}{field.key}", value))
    return row


def _check_version_entry(entry: object, widget: Row, index: int, problems: list[str]) -> Row:
    if not isinstance(entry, dict):
        problems.append(f"versions[{index}] must be an object, not {quoted(entry)}")
        return {}
    version = entry.get("version")
    is_valid = isinstance(version, str) and is_version(version)
    prefix = f"version {version}: " if is_valid else f"versions[{index}]: "
    row = _check_fields(entry, VERSION_FIELDS, prefix, problems)
    for key in ("scope", "name"):
        if entry.get(key) is not None and entry[key] != widget.get(key, entry[key]):
            problems.append(
                f"{prefix}{key} must match the widget's {key} {quoted(widget[key])}, "
                f"not {quoted(entry[key])}"
            )
    if "min_size" in row and "max_size" in row:
        row["min_w"], row["min_h"] = row.pop("min_size")
        row["max_w"], row["max_h"] = row.pop("max_size")
        if row["min_w"] > row["max_w"] or row["min_h"] > row["max_h"]:
            problems.append(
                f"{prefix}minSize, {row['min_w']} by {row['min_h']}, must not exceed "
                f"maxSize, {row['max_w']} by {row['max_h']}"
            )
    return row


def widget_json(row: Row) -> Json:
    """Return the widget of a document as the API shows it."""
    return {field.key: row[field.column] for field in WIDGET_FIELDS if field.key != "listed"}


def about_json(row: Any) -> Json | None:
    """Return the "about" object of a document from its columns; None if every column is null."""
    about = {key: row[key] for key in ABOUT_KEYS}
    if all(value is None for value in about.values()):
        return None
    about["keywords"] = json.loads(about["keywords"] or "[]")
    if about["picture"] is not None:
        about["picture"] = json.loads(about["picture"])
    return about


def version_json(row: Row) -> Json:
    """Return a version in the form that exports use."""
    parsed: Json = {
        "min_size": {"w": row["min_w"], "h": row["min_h"]},
        "max_size": {"w": row["max_w"], "h": row["max_h"]},
        "permissions": json.loads(row["permissions"]),
    }
    if isinstance(row["config_version"], str):
        parsed["config_version"] = float(row["config_version"])
    columns = {**row, **parsed}
    return {field.key: columns[field.column] for field in VERSION_FIELDS}
