"""Rights: the permissions and scopes of a token, and what each request of the internal API needs.

The server needs this before it accepts a large body, the application before it does anything.
"""

import re
from typing import NamedTuple

PUBLISH, YANK, DESCRIBE, ADMIN = "publish", "yank", "describe", "admin"
PERMISSIONS = (PUBLISH, YANK, DESCRIBE, ADMIN)

# In the WSGI environment: why the server did not accept the body of a request.
REFUSED_BODY = "catalog.refused_body"
TOO_LARGE, NOT_ADMITTED = "too large", "not admitted"

# The error of a request without a token that was ever valid.
NEEDS_SESSION = "This path is internal and needs a session."

# A manifest, a reason, a message or a description.
MAX_JSON_BYTES = 256 * 1024
# What a body with a bundle may have beside it: manifest, readme, picture, and the lines between.
MAX_FORM_BYTES = 1024 * 1024


class Right(NamedTuple):
    """What a token must have for a request; the scope is None if it concerns no widget."""

    permission: str
    scope: str | None
    has_bundle: bool = False


_WIDGET = "/api/widgets/([^/]+)/[^/]+"
_RIGHTS = (
    ("PUT", re.compile(f"{_WIDGET}/picture"), DESCRIBE),
    ("PUT", re.compile(f"{_WIDGET}/[^/]+"), PUBLISH),
    ("POST", re.compile(f"{_WIDGET}/[^/]+/(?:un)?(?:yank|deprecate)"), YANK),
    ("PATCH", re.compile(_WIDGET), DESCRIBE),
)


def required_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs; None if any valid token will do, or none at all."""
    for each, pattern, permission in _RIGHTS:
        if each == method and (match := pattern.fullmatch(path)):
            return Right(permission, match[1] or None, has_bundle=method == "PUT")
    return None


def bearer_token(authorization: str) -> str | None:
    """Return the token in the value of an Authorization header, whether or not it is valid."""
    scheme, _, text = authorization.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None
