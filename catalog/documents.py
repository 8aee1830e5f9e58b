"""A widget document on its way in, checked field by field into the rows it will become."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from catalog.semver_ranges import MAX_SAFE_INTEGER, is_range, is_version
from catalog.text import quoted

MAX_IDENTIFIER_LENGTH = 214
MAX_URL_LENGTH = 8192
# A host name has at most 253 characters; a port and a user may stand beside it.
MAX_AUTHORITY_LENGTH = 512
MAX_VERSIONS = 10_000
# Enough to correct a document by. One of another kind has as many as it has values.
MAX_PROBLEMS = 20
# About seven times what a document of MAX_VERSIONS has. Each of them takes up to 100 bytes of
# memory when it is parsed, and as few as 3 before.
MAX_JSON_SEPARATORS = 2_000_000

Json = dict[str, Any]
Row = dict[str, Any]


class Document(NamedTuple):
    """A checked document: the columns of its widget and of each of its versions."""

    widget: Row
    versions: list[Row]
    warnings: list[str]

    @property
    def path(self) -> str:
        """The widget's name as people write it."""
        return f"{self.widget['scope']}/{self.widget['name']}"


class DocumentError(ValueError):
    """The document cannot be stored; problems holds a sentence each, for up to MAX_PROBLEMS."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


def parse_json(content: bytes) -> object:
    """The JSON value in these bytes of UTF-8; raises ValueError, or RecursionError if too deep."""
    separators = sum(map(content.count, (b",", b"[", b"{")))
    if separators > MAX_JSON_SEPARATORS:
        raise DocumentError([f"has more than {MAX_JSON_SEPARATORS} commas and brackets"])
    # RFC 8259 lets a reader ignore a byte order mark.
    return json.loads(content.decode("utf-8-sig"))


def check_document(document: object) -> Document:
    """The rows that a widget document stands for; raises DocumentError with its problems."""
    if not isinstance(document, Mapping) or not isinstance(document.get("widget"), Mapping):
        raise DocumentError(['must be an object {"widget": {...}, "versions": [...]}'])
    given_versions = document.get("versions")
    if given_versions is None:
        given_versions = []
    if not isinstance(given_versions, list):
        raise DocumentError([f"versions must be an array, not {quoted(given_versions)}"])
    if len(given_versions) > MAX_VERSIONS:
        raise DocumentError(
            [f"versions has {len(given_versions)} entries, more than the {MAX_VERSIONS} allowed"]
        )

    problems: list[str] = []
    widget = _columns(document["widget"], WIDGET_FIELDS, "", problems)
    versions: list[Row] = []
    for index, given in enumerate(given_versions):
        if len(problems) >= MAX_PROBLEMS:
            break
        versions.append(_version_columns(given, widget, index, problems))
    problems += _repeated(row.get("version") for row in versions)
    if problems:
        raise DocumentError(problems[:MAX_PROBLEMS])

    widget["states_download_count"] = "downloadCount" in document["widget"]
    widget["default_created_at"] = min(
        (row["published_at"] for row in versions), default=_canonical(datetime.now(UTC))
    )
    warnings = [
        f"version {row['version']}: sdkVersion {quoted(row['sdk_version'])} is not an npm range; "
        "no SDK will match it"
        for row in versions
        if not is_range(row["sdk_version"])
    ]
    return Document(widget, versions, warnings)


def identifier(value: object) -> str:
    """A scope or name: one segment of a path, as it stands in every address."""
    if not (
        isinstance(value, str)
        and 0 < len(value) <= MAX_IDENTIFIER_LENGTH
        and value not in (".", "..")
        and "/" not in value
        and value.isprintable()
    ):
        raise ValueError(
            f"1 to {MAX_IDENTIFIER_LENGTH} printable characters without a slash, not . or .."
        )
    return value


def text(value: object) -> str:
    """Any text that SQLite and JSON can carry."""
    if isinstance(value, str) and "\0" not in value and _is_unicode(value):
        return value
    raise ValueError("a string of Unicode text without NUL")


def filled_text(value: object) -> str:
    if value == "":
        raise ValueError("a string that is not empty")
    return text(value)


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def whole_number(value: object) -> int:
    """A whole number from 0; 5.0 counts, since JavaScript makes no difference."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
        raise ValueError(f"a whole number from 0 to {MAX_SAFE_INTEGER}")
    return value


def number(value: object) -> int | float:
    if isinstance(value, float) and not value.is_integer() and math.isfinite(value):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > MAX_SAFE_INTEGER:
        raise ValueError(f"a number of at most {MAX_SAFE_INTEGER}")
    return value


def timestamp(value: object) -> str:
    """Any ISO 8601 time with an offset, as UTC in the form of JavaScript's toISOString."""
    try:
        # fromisoformat() takes any sign between date and time, and no small z.
        if not isinstance(value, str) or not re.search("[0-9][Tt ][0-9]", value):
            raise ValueError
        moment = datetime.fromisoformat(value.upper())
        if moment.tzinfo is None:
            raise ValueError
        return _canonical(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        raise ValueError(
            "an ISO 8601 time with an offset, such as 2025-01-02T03:04:05.000Z"
        ) from None


def version(value: object) -> str:
    if not isinstance(value, str) or not is_version(value):
        raise ValueError("a SemVer version such as 1.4.0")
    return value


def web_address(value: object) -> str:
    """An absolute http or https URL: anything else could run in a page that links it."""
    if isinstance(value, str) and len(value) > MAX_URL_LENGTH:
        raise ValueError(f"an absolute http or https URL of at most {MAX_URL_LENGTH} characters")
    try:
        url = text(value)
        _, _, rest = url.partition("//")
        # urlsplit() needs time by the square of the authority's length.
        if len(re.split("[/?#]", rest, maxsplit=1)[0]) > MAX_AUTHORITY_LENGTH:
            raise ValueError
        if not url.isprintable() or " " in url:
            raise ValueError
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
    except ValueError:
        raise ValueError("an absolute http or https URL") from None
    return url


def sha256_hash(value: object) -> str:
    digest = value.lower() if isinstance(value, str) else ""
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError("64 hexadecimal digits")
    return digest


def size(value: object) -> tuple[int, int]:
    """A width and a height, in cells of the grid."""
    try:
        if isinstance(value, Mapping):
            return whole_number(value.get("w")), whole_number(value.get("h"))
        raise ValueError
    except ValueError:
        raise ValueError('an object {"w": 1, "h": 1} of whole numbers') from None


def permissions(value: object) -> str:
    """An array of strings, as the JSON text that is stored."""
    try:
        if isinstance(value, list):
            return json.dumps([text(item) for item in value], ensure_ascii=False)
        raise ValueError
    except ValueError:
        raise ValueError("an array of strings") from None


@dataclass(frozen=True)
class Field:
    """One key of a document: its column, what it may hold, and what stands for null or nothing."""

    key: str
    column: str
    check: Callable[[object], Any]
    default: Any = None
    required: bool = False


WIDGET_FIELDS = (
    Field("scope", "scope", identifier, required=True),
    Field("name", "name", identifier, required=True),
    Field("displayName", "display_name", filled_text, required=True),
    Field("description", "description", text),
    Field("icon", "icon", text),
    Field("isOfficial", "is_official", boolean),
    Field("downloadCount", "download_count", whole_number),
    Field("createdAt", "created_at", timestamp),
    Field("listed", "listed", boolean),
)

VERSION_FIELDS = (
    Field("version", "version", version, required=True),
    Field("bundleUrl", "bundle_url", web_address, required=True),
    Field("bundleSize", "bundle_size", whole_number, required=True),
    Field("sha256Hash", "sha256_hash", sha256_hash, required=True),
    Field("publishedAt", "published_at", timestamp, required=True),
    Field("yanked", "yanked", boolean, default=False),
    Field("yankedReason", "yanked_reason", text),
    Field("deprecationMessage", "deprecation_message", text),
    Field("releaseNotes", "release_notes", text),
    Field("displayName", "display_name", filled_text),
    Field("description", "description", text),
    Field("icon", "icon", text),
    Field("minSize", "min_size", size, default=(1, 1)),
    Field("maxSize", "max_size", size, default=(12, 12)),
    Field("sdkVersion", "sdk_version", text, required=True),
    Field("configVersion", "config_version", number),
    Field("permissions", "permissions", permissions, default="[]"),
    Field("license", "license", text),
)


def _columns(
    given: Mapping[str, object], fields: Sequence[Field], where: str, problems: list[str]
) -> Row:
    row: Row = {}
    for field in fields:
        value = given.get(field.key)
        if value is None and not field.required:
            row[field.column] = field.default
        elif value is None:
            problems.append(f"{where}{field.key} is missing")
        else:
            try:
                row[field.column] = field.check(value)
            except ValueError as allowed:
                problems.append(f"{where}{field.key} must be {allowed}, not {quoted(value)}")
    return row


def _version_columns(given: object, widget: Row, index: int, problems: list[str]) -> Row:
    if not isinstance(given, Mapping):
        problems.append(f"versions[{index}] must be an object, not {quoted(given)}")
        return {}
    named = given.get("version")
    valid = isinstance(named, str) and is_version(named)
    where = f"version {named}: " if valid else f"versions[{index}]: "
    row = _columns(given, VERSION_FIELDS, where, problems)
    for key in ("scope", "name"):
        if given.get(key) is not None and given[key] != widget.get(key, given[key]):
            problems.append(
                f"{where}{key} must be the widget's own, {quoted(widget[key])}, "
                f"not {quoted(given[key])}"
            )
    if "min_size" in row and "max_size" in row:
        row["min_w"], row["min_h"] = row.pop("min_size")
        row["max_w"], row["max_h"] = row.pop("max_size")
        if row["min_w"] > row["max_w"] or row["min_h"] > row["max_h"]:
            problems.append(
                f"{where}minSize, {row['min_w']} by {row['min_h']}, must not exceed "
                f"maxSize, {row['max_w']} by {row['max_h']}"
            )
    return row


def _repeated(versions: Iterable[str | None]) -> list[str]:
    counts = Counter(versions)
    return [f"version {text} appears twice" for text in counts if text and counts[text] > 1]


def _is_unicode(value: str) -> bool:
    try:
        value.encode()  # fails on half of a surrogate pair, which JSON can spell
    except UnicodeEncodeError:
        return False
    return True


def _canonical(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
