"""The kind of a request, which depends on its method and path.

The kind tells the server which thread and which maximum body size to use, and the response cache
what to cache.
"""

from enum import Enum

from .. import V1_PREFIX

# The WSGI environment key for the kind of the request. Only our own server sets it.
KIND = "catalog.kind"

READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# The page that accepts a list of installed versions.
FORM_PATH = "/updates"
# The path that exchanges an id token for a short-lived token.
SESSION_PATH = "/api/session"


class Kind(Enum):
    """The kind of a request; see classify()."""

    # A GET or HEAD request to the API, without a body, that the response cache may answer.
    CACHEABLE = "cacheable"
    # A read of the API that is never cached: it has a body, or it is an OPTIONS request.
    API_READ = "API read"
    # POST /api/v1/widgets/{scope}/{name}, optionally followed by a version.
    INSTALL = "install"
    # A request to an internal path that changes something if its token is valid.
    CHANGE = "change"
    # POST /api/session, which exchanges an id token and may fetch the issuer's keys.
    SESSION = "session"
    # A form that a page submits; its body may be large.
    FORM = "form"
    # A bundle, a picture or a static file.
    FILE = "file"
    # A page, or a request that always gets an error.
    PAGE = "page"


def classify(method: str, path: str, *, has_body: bool) -> Kind:
    """Return the kind of a request."""
    if method not in READ_METHODS:
        return classify_write(method, path)
    if not path.startswith("/api/"):
        return Kind.FILE if path.startswith("/static/") else Kind.PAGE
    # A widget may be named "picture", so the number of segments matters.
    if path.endswith(("/bundle.js", "/picture")) and path.count("/", len(V1_PREFIX)) >= 2:
        return Kind.FILE
    return Kind.API_READ if has_body or method == "OPTIONS" else Kind.CACHEABLE


def classify_write(method: str, path: str) -> Kind:
    """Return the kind of a request whose method is not in READ_METHODS."""
    if method == "POST":
        if path.startswith(V1_PREFIX) and 1 <= path.count("/", len(V1_PREFIX)) <= 2:
            return Kind.INSTALL
        if path == FORM_PATH:
            return Kind.FORM
        if path == SESSION_PATH:
            return Kind.SESSION
    is_internal = path.startswith("/api/") and not path.startswith("/api/v1/")
    return Kind.CHANGE if is_internal else Kind.PAGE
