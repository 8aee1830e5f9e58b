"""Gzip content encoding: decides which responses to compress, and compresses them.

Each encoding of a body is a representation with its own strong ETag: "abc" and "abc-gzip". Every
response with a compressible type varies by Accept-Encoding, regardless of its size.
response_cache.py compresses its responses once; this module compresses all other responses each
time, in a worker.
"""

import re
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache

from flask import Response, request
from werkzeug.http import parse_etags

from .. import V1_PREFIX
from ..store.bundles.compressed import GZIP_FORMAT, MIN_LENGTH

# Level 3 is as fast as level 1 and twice as fast as level 6: 10 ms for a registry of 1 MB. Its
# output is 11% larger than the output of level 6.
FAST_LEVEL = 3
# The level for bodies that are compressed once and sent often: 200 ms for a registry of 10 MB.
SMALL_LEVEL = 6

VARY = {"Vary": "Accept-Encoding"}
GZIP = {"Content-Encoding": "gzip"}
COMPRESSIBLE_TYPES = {
    "application/atom+xml",
    "application/json",
    "application/xml",
    "image/svg+xml",
    "text/css",
    "text/html",
    "text/javascript",
}


# A longer Accept-Encoding or If-None-Match is ignored: parsing it would take too long.
MAX_HEADER_LENGTH = 1000  # characters
# The weight of an encoding, from 0 to 1 with up to three decimal places (RFC 9110, 12.4.2).
WEIGHT = re.compile(r"[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*", re.IGNORECASE)


# The result is cached, because clients send few different headers.
@lru_cache(maxsize=16)
def prefers_gzip(accept_encoding: str) -> bool:
    """Return whether a client that sends this Accept-Encoding should get gzip.

    Werkzeug's parser would block the I/O thread: it takes 12 µs for a typical header and 9 ms for a
    header of 10 kB.
    """
    if len(accept_encoding) > MAX_HEADER_LENGTH:
        return False
    qualities: dict[str, float] = {}
    for item in accept_encoding.split(","):
        encoding, semicolon, weight = item.partition(";")
        match = WEIGHT.fullmatch(weight)
        if match or not semicolon:
            name = encoding.strip(" \t").lower().removeprefix("x-")
            quality = float(match[1]) if match else 1.0
            qualities[name] = max(quality, qualities.get(name, 0.0))
    any_other = qualities.get("*", 0.0)
    gzip = qualities.get("gzip", any_other)
    return gzip > 0 and gzip >= qualities.get("identity", any_other)


def gzip_etag(etag: str) -> str:
    """Return the ETag for the compressed form of a body that has this ETag."""
    return f"{etag}-gzip"


def find_known_etag(if_none_match: str, etag: str, with_gzip: bool) -> str | None:
    """Return the ETag in If-None-Match that matches an accepted form of the body, or None.

    A client that accepts gzip may still have the plain form from an earlier response.
    """
    if len(if_none_match) > MAX_HEADER_LENGTH:
        return None
    known = parse_etags(if_none_match)
    if with_gzip and known.contains_weak(gzip_etag(etag)):
        return gzip_etag(etag)
    return etag if known.contains_weak(etag) else None


def compress(
    pieces: Iterable[bytes], level: int, check: Callable[[], None] = lambda: None
) -> bytes:
    """Compress the body with gzip, and call check() before each piece. zlib releases the GIL."""
    compressor = zlib.compressobj(level, wbits=GZIP_FORMAT)
    compressed = []
    for piece in pieces:
        check()
        compressed.append(compressor.compress(piece))
    return b"".join([*compressed, compressor.flush()])


@lru_cache(maxsize=16)
def compress_file(body: bytes) -> bytes:
    """Compress the content of a file with gzip; the results for recent files are cached."""
    return compress([body], SMALL_LEVEL)


# The size of the largest body that compress_file() caches.
MAX_FILE_LENGTH = 256 * 1024  # bytes


def encode_response(response: Response) -> None:
    """Answer If-None-Match for pages, feeds, files and JSON; compress the body and add Vary.

    Errors and responses to POST are left unchanged. The response cache does the same for its
    responses, and v1/stored_files.py for bundles.
    """
    headers, status, environ = response.headers, response.status_code, request.environ
    if (
        headers.get("Content-Type", "").partition(";")[0] not in COMPRESSIBLE_TYPES
        or status not in (200, 304)
        or request.path.startswith(V1_PREFIX)
        or environ["REQUEST_METHOD"] not in ("GET", "HEAD")
    ):
        return
    headers.extend(VARY)
    accepted = environ.get("HTTP_ACCEPT_ENCODING", "")
    is_long = int(headers.get("Content-Length", 0)) > MIN_LENGTH
    with_gzip = is_long and prefers_gzip(accepted)
    etag, _ = response.get_etag()
    if etag is not None:
        known = environ.get("HTTP_IF_NONE_MATCH", "")
        known_etag = find_known_etag(known, etag, with_gzip)
        if known_etag is not None:
            response.status_code = 304
        response.set_etag(known_etag or (gzip_etag(etag) if with_gzip else etag))
    if with_gzip and response.status_code == 200:
        compress_body(response, is_file=etag is not None and response.mimetype != "text/html")


def compress_body(response: Response, is_file: bool) -> None:
    """Compress the body; the result for a file is cached, because the file never changes."""
    # Without this setting, the server would send the uncompressed file.
    response.direct_passthrough = False
    body = response.get_data()
    is_cached = is_file and len(body) <= MAX_FILE_LENGTH
    response.set_data(compress_file(body) if is_cached else compress([body], FAST_LEVEL))
    response.headers.update(GZIP)
