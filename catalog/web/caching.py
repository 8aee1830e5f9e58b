"""Conditional requests for pages: the ETag of a page is a hash of its bytes."""

import hashlib

from flask import Response


def page_response(page: str | tuple[str, int], *, mimetype: str = "text/html") -> Response:
    """Return a page, or a page with its status, as a response; only with status 200 has it an ETag.

    Whether the client has the page already is decided when the response is complete.
    """
    text, status = page if isinstance(page, tuple) else (page, 200)
    response = Response(text, status, mimetype=mimetype)
    if status == 200:
        digest = hashlib.sha1(response.get_data(), usedforsecurity=False)
        response.set_etag(digest.hexdigest())
    return response
