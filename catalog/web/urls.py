"""Absolute URLs of this service, for what is read outside a page: link previews, feeds."""

from typing import Any

from flask import request, url_for

from ..routing import public_url


def absolute_url(endpoint: str, **values: Any) -> str:
    """Return the URL of a view below the public URL."""
    return public_url() + url_for(endpoint, **values).removeprefix(request.script_root)


def canonical_url() -> str:
    """Return the URL of this page without its query string."""
    return absolute_url(request.endpoint or "pages.browse", **(request.view_args or {}))
