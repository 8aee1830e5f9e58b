"""Validators for single values.

Each validator returns the value to store, or raises NotAllowedError.
"""

import json
import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from .messages import NotAllowedError
from .semver_ranges import MAX_SAFE_INTEGER, is_version
from .timestamps import format_timestamp

MAX_IDENTIFIER_LENGTH = 214
# In the path of a scope's registry, this string takes the place of a widget name.
REGISTRY = "registry.json"
MAX_URL_LENGTH = 8192
# Publishers decide how large a document is; every reader pays for it in memory.
MAX_TEXT_LENGTH = 10_000  # characters
# The maximum size of release notes and of a readme.
MAX_MARKDOWN_BYTES = 64 * 1024
MAX_PERMISSIONS = 100
MAX_PERMISSION_LENGTH = 100  # characters
MAX_KEYWORDS = 10
MAX_KEYWORD_LENGTH = 30  # characters
# A host name has at most 253 characters, plus an optional user and port.
MAX_AUTHORITY_LENGTH = 512
# A URL of this form is valid and need not be parsed. Parsing took 6% of an import.
PLAIN_URL = re.compile("https?://[a-z0-9.-]{1,253}/[!-~]*")
SHA256 = re.compile("[0-9a-fA-F]{64}")
# Only an ETag of this form is stored, because it is sent back in a request header.
ETAG = re.compile("[ -~]{1,1024}")
# fromisoformat() accepts any character between date and time.
DATE_AND_TIME = re.compile("[0-9][Tt ][0-9]")
# Times of this form are stored unchanged.
STORED_TIMESTAMP = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z")
ICON = re.compile("[a-z0-9]+(-[a-z0-9]+)*:[a-z0-9]+(-[a-z0-9]+)*")


def check_identifier(value: object) -> str:
    """A scope or name: one segment of a URL path."""
    if not (
        isinstance(value, str)
        and 0 < len(value) <= MAX_IDENTIFIER_LENGTH
        and value not in (".", "..")
        and "/" not in value
        and value.isprintable()
    ):
        raise NotAllowedError(
            f"1 to {MAX_IDENTIFIER_LENGTH} printable characters without a slash, not . or .."
        )
    return value


def check_new_name(value: object) -> str:
    """A name that cannot be mistaken for a version, as in acme/clock@1, or for a registry."""
    name = check_identifier(value)
    if "@" in name or name == REGISTRY:
        raise NotAllowedError(f"a name without an @ and other than {REGISTRY}")
    return name


def check_text(value: object) -> str:
    """Text of limited length that both SQLite and JSON can represent."""
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        raise NotAllowedError(f"text of at most {MAX_TEXT_LENGTH} characters")
    return _check_unicode(value)


def check_markdown(value: object) -> str:
    text = _check_unicode(value)
    if len(text.encode()) > MAX_MARKDOWN_BYTES:
        raise NotAllowedError(f"text of at most {MAX_MARKDOWN_BYTES} bytes")
    return text


def _check_unicode(value: object) -> str:
    try:
        # JSON can contain half of a surrogate pair, which UTF-8 cannot represent.
        if isinstance(value, str) and b"\0" not in value.encode():
            return value
        raise ValueError
    except ValueError:
        raise NotAllowedError("a Unicode string without NUL characters") from None


def check_nonempty_text(value: object) -> str:
    if value == "":
        raise NotAllowedError("a non-empty string")
    return check_text(value)


def is_icon_name(text: str) -> bool:
    """Return whether the string is the name of an Iconify icon, such as mdi:clock."""
    return ICON.fullmatch(text) is not None


def check_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise NotAllowedError("true or false")
    return value


def check_whole_number(value: object) -> int:
    """A whole number, 0 or more; 5.0 is accepted, because it equals 5 in JavaScript."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
        raise NotAllowedError(f"a whole number from 0 to {MAX_SAFE_INTEGER}")
    return value


def check_number(value: object) -> int | str:
    """A number; a fractional number is returned as a string with all its digits."""
    if isinstance(value, float) and not value.is_integer() and math.isfinite(value):
        return repr(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > MAX_SAFE_INTEGER:
        raise NotAllowedError(f"a number of at most {MAX_SAFE_INTEGER}")
    return value


def check_timestamp(value: object) -> str:
    """An ISO 8601 time with an offset; returned in UTC, in the format of toISOString."""
    try:
        if not isinstance(value, str) or not DATE_AND_TIME.search(value):
            raise ValueError
        # fromisoformat() does not accept a lower-case z.
        moment = datetime.fromisoformat(value.upper())
        if STORED_TIMESTAMP.fullmatch(value):
            return value
        if moment.tzinfo is None:
            raise ValueError
        return format_timestamp(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        raise NotAllowedError(
            "an ISO 8601 time with an offset, such as 2025-01-02T03:04:05.000Z"
        ) from None


def is_loopback(host: str) -> bool:
    """Return whether a URL's host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_version(value: object) -> str:
    if not isinstance(value, str) or not is_version(value):
        raise NotAllowedError("a SemVer version such as 1.4.0")
    return value


def check_http_url(value: object) -> str:
    """An absolute http or https URL; other schemes could run code in a page that links to them."""
    if isinstance(value, str) and len(value) > MAX_URL_LENGTH:
        raise NotAllowedError(
            f"an absolute http or https URL of at most {MAX_URL_LENGTH} characters"
        )
    if isinstance(value, str) and PLAIN_URL.fullmatch(value):
        return value
    try:
        url = check_text(value)
        _, _, rest = url.partition("//")
        # The running time of urlsplit() is quadratic in the length of the authority.
        if len(re.split("[/?#]", rest, maxsplit=1)[0]) > MAX_AUTHORITY_LENGTH:
            raise ValueError
        if not url.isprintable() or " " in url:
            raise ValueError
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
    except ValueError:
        raise NotAllowedError("an absolute http or https URL") from None
    return url


def check_https_url(value: object) -> str:
    """An absolute https URL that pages link to."""
    url = check_http_url(value)
    if not url.startswith("https://"):
        raise NotAllowedError("an absolute https URL")
    return url


def check_url_template(text: str) -> str:
    """A URL template for bundles, with placeholders for the scope, the name and the version."""
    # Replace the placeholders with text that a URL may contain.
    example = re.sub(r"\{(scope|name|version)\}", "x", text)
    if set("{}") & set(check_http_url(example)):
        raise NotAllowedError("a URL without placeholders other than {scope}, {name} and {version}")
    return text


def check_base_url(value: object) -> str:
    """The base URL of a service, returned without a final slash."""
    url = check_http_url(value)
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise NotAllowedError("an absolute http or https URL without a user, a query or a fragment")
    return url.rstrip("/?#")


def check_etag(value: object) -> str:
    if not isinstance(value, str) or not ETAG.fullmatch(value):
        raise NotAllowedError("1 to 1024 printable ASCII characters")
    return value


def check_sha256(value: object) -> str:
    if not isinstance(value, str) or not SHA256.fullmatch(value):
        raise NotAllowedError("64 hexadecimal digits")
    return value.lower()


def check_grid_size(value: object) -> tuple[int, int]:
    """A width and a height, in cells of the grid."""
    try:
        if isinstance(value, dict):
            return check_whole_number(value.get("w")), check_whole_number(value.get("h"))
        raise ValueError
    except ValueError:
        raise NotAllowedError('an object of two whole numbers, such as {"w": 1, "h": 1}') from None


def check_permissions(value: object) -> str:
    """A short array of short strings; returned as JSON."""
    try:
        if isinstance(value, list) and len(value) <= MAX_PERMISSIONS:
            return _permissions_json(tuple(value))
        raise ValueError
    # If an item is an array or object, which is not hashable, the cache raises TypeError.
    except (TypeError, ValueError):
        raise NotAllowedError(
            f"an array of at most {MAX_PERMISSIONS} strings "
            f"of at most {MAX_PERMISSION_LENGTH} characters"
        ) from None


# Most versions use one of a few permission lists, so the results are cached.
@lru_cache(maxsize=256)
def _permissions_json(values: tuple[object, ...]) -> str:
    return json.dumps([*map(_check_permission, values)], ensure_ascii=False)


def _check_permission(value: object) -> str:
    text = check_text(value)
    if len(text) > MAX_PERMISSION_LENGTH:
        raise ValueError
    return text


def check_keywords(value: object) -> str | None:
    """A short array of keywords; returned as JSON, or as None if it is empty.

    Spaces around keywords and duplicate keywords are removed.
    """
    try:
        if not isinstance(value, list):
            raise ValueError
        keywords = list(dict.fromkeys(map(_check_keyword, value)))
        if len(keywords) > MAX_KEYWORDS:
            raise ValueError
    except ValueError:
        raise NotAllowedError(
            f"an array of at most {MAX_KEYWORDS} strings "
            f"of 1 to {MAX_KEYWORD_LENGTH} printable characters without a comma"
        ) from None
    return json.dumps(keywords, ensure_ascii=False) if keywords else None


def _check_keyword(value: object) -> str:
    # The describe command separates keywords with commas.
    text = " ".join(check_text(value).split())
    if not 0 < len(text) <= MAX_KEYWORD_LENGTH or not text.isprintable() or "," in text:
        raise ValueError
    return text
