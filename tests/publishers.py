"""Requests of publishers: tokens, and forms with a manifest and a bundle."""

import json
from datetime import timedelta
from typing import Any

from builders import Json
from flask import Flask

from catalog.domain.permissions import Access
from catalog.store.connection.database import Database
from catalog.store.connection.transaction import Actor
from catalog.store.write import tokens

BOUNDARY = "form-boundary"
FORM_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
OPERATOR = Actor("local", "operator")


def manifest(path: str = "acme/clock", number: str = "1.0.0", **fields: Any) -> Json:
    """Return a manifest of scope/name."""
    scope, name = path.split("/")
    names = {"scope": scope, "name": name, "version": number}
    return {**names, "displayName": name.title(), "sdkVersion": "^1.0.0", **fields}


def form(
    manifest_json: object, bundle: bytes | None = b"export default 1\n", **more: bytes
) -> bytes:
    """Return the body of a request that publishes."""
    parts = {"manifest": json.dumps(manifest_json).encode(), **more}
    if bundle is not None:
        parts["bundle"] = bundle
    return (
        b"".join(
            b'--%s\r\nContent-Disposition: form-data; name="%s"; filename="x"\r\n\r\n%s\r\n'
            % (BOUNDARY.encode(), name.encode(), content)
            for name, content in parts.items()
        )
        + f"--{BOUNDARY}--\r\n".encode()
    )


def create_token(
    target: Flask | Database,
    name: str = "ci",
    scopes: tuple[str, ...] = ("acme",),
    permissions: tuple[str, ...] = ("publish", "yank", "describe"),
    lifetime: timedelta | None = timedelta(days=1),
    widgets: tuple[str, ...] = (),
) -> str:
    """Create a token, and return its text."""
    database = target if isinstance(target, Database) else target.extensions["database"]
    access = Access(permissions, scopes, widgets)
    _, text = tokens.create_token(database, OPERATOR, name, access, lifetime)
    return text


def bearer(text: str) -> dict[str, str]:
    """Return the header of a request with this token."""
    return {"Authorization": f"Bearer {text}"}
