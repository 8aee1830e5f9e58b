"""The permissions of tokens, and the permission that each internal request requires.

The permissions of a token apply to whole scopes or to single widgets. The server checks permissions
before it accepts a large body, and the application checks them before it does anything.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .messages import quoted
from .pictures import MAX_PICTURE_BYTES

PUBLISH, YANK, DESCRIBE, ADMIN = "publish", "yank", "describe", "admin"
PERMISSIONS = (PUBLISH, YANK, DESCRIBE, ADMIN)

# The WSGI environment key for the reason why the server did not accept the body.
REJECTED_BODY = "catalog.rejected_body"
TOO_LARGE, NOT_ADMITTED = "too large", "not admitted"

# The error for a request without a token, or with a token that never existed.
NEEDS_SESSION = "This path is internal and needs a session."

# The maximum size of a manifest, or of a JSON object with a reason, message or description.
MAX_JSON_BYTES = 256 * 1024
# The maximum size of a form without its bundle: JSON, readme, picture and part headers.
MAX_FORM_BYTES = 1024 * 1024
# The maximum size of a form that changes a widget: JSON, picture and part headers.
MAX_EDIT_BYTES = MAX_JSON_BYTES + MAX_PICTURE_BYTES + 16 * 1024


class Requirement(NamedTuple):
    """The permission that a request requires, and the maximum size of its body."""

    # None if every valid token may send the request.
    permission: str | None
    # The widget that the request is about, if any.
    scope: str | None = None
    name: str | None = None
    # The maximum size of the body in bytes, without a bundle.
    max_body: int = 0
    has_bundle: bool = False


class Access(NamedTuple):
    """A token's permissions, which apply to all widgets in its scopes and to single widgets.

    The admin permission allows everything for every widget.
    """

    permissions: Sequence[str]
    scopes: Sequence[str] = ()
    # Each widget is given as scope/name.
    widgets: Sequence[str] = ()

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.permissions

    def find_missing(self, needed: Requirement) -> str | None:
        """Return what the token lacks for a request, as the end of a sentence about the token.

        None means that the token may send the request.
        """
        if needed.permission is None or self.is_admin:
            return None
        if needed.permission not in self.permissions:
            return f"does not have the {needed.permission} permission"
        return self.find_missing_widget(needed.scope, needed.name)

    def find_missing_widget(self, scope: str | None, name: str | None) -> str | None:
        """Return why the token is not valid for the widget, as the end of a sentence, or None."""
        if self.is_admin or scope in self.scopes or f"{scope}/{name}" in self.widgets:
            return None
        if self.widgets:
            return f"is not valid for the widget {quoted(f'{scope}/{name}')}"
        return f"is not valid for the scope {quoted(scope)}"


_WIDGET = "/api/widgets/([^/]+)/([^/]+)"
# Method, path, permission, and maximum body size; the first matching row applies.
_REQUIREMENTS = [
    (method, re.compile(path), Requirement(permission, max_body=max_body, has_bundle=has_bundle))
    for method, path, permission, max_body, has_bundle in (
        ("GET", "/api/session", None, 0, False),
        ("GET", "/api/audit", None, 0, False),
        ("PUT", f"{_WIDGET}/picture", DESCRIBE, MAX_PICTURE_BYTES, False),
        ("PUT", f"{_WIDGET}/[^/]+", PUBLISH, MAX_FORM_BYTES, True),
        ("POST", f"{_WIDGET}/[^/]+/(?:un)?yank", YANK, MAX_JSON_BYTES, False),
        ("POST", f"{_WIDGET}/[^/]+/(?:un)?deprecate", YANK, MAX_JSON_BYTES, False),
        ("PATCH", _WIDGET, DESCRIBE, MAX_EDIT_BYTES, False),
    )
]


def find_requirement(method: str, path: str) -> Requirement | None:
    """Return what a request to the internal API requires; None if no route has this path."""
    for each, pattern, needed in _REQUIREMENTS:
        if each == method and (match := pattern.fullmatch(path)):
            scope, name = match.groups() or (None, None)
            return needed._replace(scope=scope, name=name)
    return None


def bearer_token(authorization: str) -> str | None:
    """Return the token in an Authorization header without checking it; None if there is none."""
    scheme, _, text = authorization.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None
