"""Answers that a client may keep, and asks about again by their ETag."""

from flask import Response, request


def revalidate(response: Response) -> Response:
    """Give the answer a strong ETag of its content; 304 where the client has just that."""
    response.add_etag()
    etag, _ = response.get_etag()
    if request.if_none_match.contains_weak(etag):
        response.status_code = 304
        response.set_data(b"")
    return response
