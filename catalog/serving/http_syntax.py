"""Syntax of an HTTP/1 request head (RFC 9112), read in linear time.

A head comes from the client and can have MAX_HEAD bytes. All functions use methods of bytes and str
that pass over their input once; a regular expression that backtracks can take seconds for a run of
spaces or digits.
"""

import socket
import string
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

TOKEN = (string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~").encode()
REG_NAME = (string.ascii_letters + string.digits + "-._~!$&'()*+,;=%").encode()
HEX_DIGITS = string.hexdigits.encode()
CONTROLS = bytes([*range(0x20), 0x7F])
CONTROLS_BUT_TAB = CONTROLS.replace(b"\t", b"")

MAX_HEAD = 16 * 1024  # bytes
MAX_FIELDS = 100
# A longer value of one of these is ignored: the application would parse a list of thousands.
MAX_LIST = 2000  # characters
LISTS = ("IF_NONE_MATCH", "ACCEPT_ENCODING", "ACCESS_CONTROL_REQUEST_HEADERS")
# The longest registered method has 17 characters.
MAX_METHOD = 32  # characters
# Without the port.
MAX_HOST = 255  # characters
MAX_LENGTH_DIGITS = 19
VERSIONS = {b"HTTP/1.1": "1.1", b"HTTP/1.0": "1.0"}

# A second line with one of these names could be read as another host or another body length.
SINGLE_FIELDS = {"HOST", "CONTENT_LENGTH", "TRANSFER_ENCODING"}

# Raw bytes over 127 are accepted in a target, since curl sends "q=天気" without encoding it.
PERCENT_ENCODED = [chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in range(256)]

Fields = dict[str, str]


class MalformedRequestError(Exception):
    """A request that is not HTTP, or that two servers could read differently."""


class Target(NamedTuple):
    """The target of a request; only one in absolute form has an authority."""

    authority: str | None
    path: str
    query: str


def split_request_line(line: bytes) -> tuple[str, bytes, str]:
    """Return the method, target and version (1.0 or 1.1) of a request line."""
    parts = line.split(b" ", 3)
    version = VERSIONS.get(parts[-1])
    if len(parts) != 3 or version is None:
        raise MalformedRequestError(
            "the request line must be a method, a target and HTTP/1.1 or HTTP/1.0 "
            "with one space between them"
        )
    method, target, _ = parts
    if not is_token(method) or len(method) > MAX_METHOD or method != method.upper():
        raise MalformedRequestError("the method must be a token in upper case")
    if target.translate(None, CONTROLS) != target:
        raise MalformedRequestError("the request line has a control character")
    return method.decode("ascii"), target, version


def split_target(method: str, target: bytes) -> Target:
    """Return the parts of a target in origin, absolute or asterisk form."""
    if b"#" in target:
        raise MalformedRequestError("the target must not have a fragment")
    if method == "CONNECT":
        raise MalformedRequestError("CONNECT is for proxies, and this server is not a proxy")
    if target == b"*" and method == "OPTIONS":
        return Target(None, "*", "")
    location, _, query = target.partition(b"?")
    authority = None
    if not location.startswith(b"/"):
        scheme, _, rest = location.partition(b"://")
        host, _, rest = rest.partition(b"/")
        authority, location = host.decode("latin-1"), b"/" + rest
        if scheme.lower() not in (b"http", b"https") or not authority or not is_host(authority):
            raise MalformedRequestError("the target must be a path or a URL with http or https")
    # Several leading slashes are one, so that everything that compares paths sees the same one.
    path = "/" + unquote_to_bytes(location).decode("latin-1").lstrip("/")
    return Target(authority, path, percent_encoded(query))


def percent_encoded(target: bytes) -> str:
    """Return the target, or a part of it, with raw bytes over 127 percent-encoded."""
    if target.isascii():
        return target.decode("ascii")
    return "".join([PERCENT_ENCODED[byte] for byte in target])


def parse_fields(section: bytes) -> Fields:
    """Return field values by name in WSGI form (ACCEPT_ENCODING), repeated fields joined.

    Fields with an underscore in their name are dropped: WSGI could not tell X_Real_IP from
    X-Real-IP.
    """
    if not section:
        return {}
    lines = section.decode("latin-1").split("\r\n")
    if len(section) - len(section.translate(None, CONTROLS_BUT_TAB)) != 2 * (len(lines) - 1):
        raise MalformedRequestError("a header line has a control character or does not end in CRLF")
    fields: Fields = {}
    repeated: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = field_key(name) if colon else None
        if key is None:
            raise MalformedRequestError("a header line must be a name, a colon and a value")
        if not key:
            continue
        value = value.strip(" \t")
        if key in fields:
            repeated.setdefault(key, [fields[key]]).append(value)
        else:
            fields[key] = value
    if repeated:
        if not SINGLE_FIELDS.isdisjoint(repeated):
            raise MalformedRequestError(
                "Host, Content-Length and Transfer-Encoding must not be repeated"
            )
        fields.update((key, ", ".join(values)) for key, values in repeated.items())
    for key in LISTS:
        if len(fields.get(key, "")) > MAX_LIST:
            del fields[key]
    return fields


def field_key(name: str) -> str | None:
    """Return the name in WSGI form; empty if it has an underscore, None if it is not a token."""
    if not is_token(name.encode("latin-1")):
        return None
    return "" if "_" in name else name.upper().replace("-", "_")


def check_host(host: str | None, version: str) -> None:
    """Raise if Host is invalid, or missing in HTTP/1.1; empty is valid (RFC 9110, 7.2)."""
    if host is None and version == "1.1":
        raise MalformedRequestError("HTTP/1.1 requires a Host header")
    if host and not is_host(host):
        raise MalformedRequestError("Host must be a name or an address, with or without a port")


def content_length(value: str) -> int:
    """Return the number of bytes that a Content-Length field announces."""
    if not value.isascii() or not value.isdigit() or len(value) > MAX_LENGTH_DIGITS:
        raise MalformedRequestError(f"Content-Length must be 1 to {MAX_LENGTH_DIGITS} digits")
    return int(value)


def is_token(data: bytes) -> bool:
    """Return whether the bytes are a token: letters, digits and some punctuation."""
    return bool(data) and not data.translate(None, TOKEN)


def is_host(text: str) -> bool:
    """Return whether the text is a name, IPv4 or bracketed IPv6 address, with an optional port."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        before_port, _, port = rest.partition(":")
        return bool(bracket) and not before_port and is_port(port) and is_ipv6(host)
    host, _, port = text.partition(":")
    return is_port(port) and is_reg_name(host)


def is_reg_name(text: str) -> bool:
    """Return whether the text is a reg-name (RFC 3986), as IPv4 addresses are, and not empty."""
    if not 0 < len(text) <= MAX_HOST:
        return False
    name = text.encode("latin-1")
    return not name.translate(None, REG_NAME) and all(
        len(part) > 1 and not part[:2].translate(None, HEX_DIGITS) for part in name.split(b"%")[1:]
    )


def is_ipv6(text: str) -> bool:
    """Return whether the text is an IPv6 address without a zone."""
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except (OSError, ValueError):
        return False
    return True


def is_port(text: str) -> bool:
    """Return whether the text is a port or empty."""
    return not text or (len(text) <= 5 and text.isascii() and text.isdigit() and int(text) < 65536)
