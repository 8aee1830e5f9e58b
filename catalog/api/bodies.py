"""Bodies of the internal API: JSON objects, pictures, and forms with a manifest and files.

A bundle is written to a temporary file while it is hashed, in pieces of CHUNK bytes.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from flask import abort, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType
from werkzeug.formparser import MultiPartParser

from ..changes import BundleSummary
from ..documents import Json, parse_json
from ..pictures import MAX_PICTURE_BYTES
from ..rights import MAX_FORM_BYTES, MAX_JSON_BYTES, REFUSED_BODY, TOO_LARGE
from ..store.connection.deadlines import Deadline
from ..text import quoted
from ..validators import MAX_MARKDOWN_BYTES

CHUNK = 64 * 1024  # bytes
# The most bytes of what a form may have beside the bundle.
SMALL_PARTS = {
    "manifest": MAX_JSON_BYTES,
    "readme": MAX_MARKDOWN_BYTES,
    "picture": MAX_PICTURE_BYTES,
}
PARTS = {*SMALL_PARTS, "bundle"}
# RFC 2046, section 5.1.1.
MAX_BOUNDARY_LENGTH = 70


def check_body_accepted(limit: int, subject: str) -> None:
    """Respond 413 or 503 if the server did not accept the body of this request."""
    reason = request.environ.get(REFUSED_BODY)
    if reason == TOO_LARGE:
        refuse_large(limit, subject)
    if reason:
        raise ServiceUnavailable("Too many uploads at the same time.", retry_after=5)


def refuse_large(limit: int, subject: str = "a bundle") -> NoReturn:
    """Respond 413 with the limit."""
    raise RequestEntityTooLarge(f"The body is too large: {subject} may have {limit} bytes.")


def read_object(keys: set[str]) -> Json:
    """Return the JSON object in the body, which may have these keys; an empty body is {}."""
    check_body_accepted(MAX_JSON_BYTES, "it")
    value = parse_part(read_limited(MAX_JSON_BYTES) or b"{}", "The body")
    if not isinstance(value, dict):
        abort(400, "The body must be one JSON object.")
    if unknown := value.keys() - keys:
        names = ", ".join(sorted(map(quoted, unknown)))
        allowed = f"it may have {', '.join(sorted(keys))}" if keys else "it must be empty"
        abort(400, f"The body has {names}; {allowed}.")
    return value


def read_limited(limit: int) -> bytes:
    """Return the body; respond 413 if it is larger."""
    request.max_content_length = limit
    try:
        return request.get_data(cache=False)
    except RequestEntityTooLarge:
        refuse_large(limit, "it")


def parse_part(text: bytes, name: str) -> Any:
    """Return the JSON value; respond 400 if it is not JSON."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        abort(400, f"{name} is not JSON in UTF-8: {error}.")


class ReceivedFile:
    """A file of a form, which is hashed while it is written to the disk of the bundles."""

    def __init__(self, limit: int) -> None:
        # /tmp may be in memory.
        directory = current_app.extensions["bundles"].directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._hash = hashlib.sha256()
        self._size, self._limit = 0, limit

    @property
    def summary(self) -> BundleSummary:
        """Its size and hash."""
        return BundleSummary(self._size, self._hash.hexdigest())

    def write(self, data: bytes) -> None:
        """Add the data; respond 413 if it is too large."""
        deadline: Deadline = current_app.extensions["database"].deadline
        deadline.check()
        self._size += len(data)
        if self._size > self._limit:
            refuse_large(self._limit)
        self._hash.update(data)
        self._file.write(data)

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def chunks(self) -> Iterator[bytes]:
        """Yield the file in pieces, once."""
        while piece := self._file.read(CHUNK):
            yield piece

    def close(self) -> None:
        self._file.close()


class UploadedVersion(NamedTuple):
    """The manifest of a version and, as far as they were sent, its bundle, readme and picture."""

    manifest: Any
    bundle: ReceivedFile | None = None
    readme: bytes | None = None
    picture: bytes | None = None


@contextmanager
def read_version() -> Iterator[UploadedVersion]:
    """Read the body of the request; its files are removed after the block."""
    limit: int = current_app.config["MAX_BUNDLE_BYTES"]
    check_body_accepted(limit, "a bundle")
    if request.mimetype == "application/json":
        yield UploadedVersion(parse_part(read_limited(MAX_JSON_BYTES), "The manifest"))
        return
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMediaType(
            "Send a manifest as application/json, or manifest and bundle as multipart/form-data."
        )
    with ExitStack() as files:
        received = read_form(
            limit, lambda **part: files.enter_context(closing(ReceivedFile(limit)))
        )
        small = {name: read_part(received, name) for name in SMALL_PARTS if name in received}
        if not small.get("manifest"):
            abort(400, "The form has no part manifest.")
        manifest = parse_part(small.pop("manifest"), "The manifest")
        yield UploadedVersion(manifest, received.get("bundle"), **small)


def read_part(received: dict[str, Any], name: str) -> bytes:
    """Return a part of a form; respond 413 if it is larger than allowed."""
    content, limit = received[name], SMALL_PARTS[name]
    if isinstance(content, ReceivedFile):
        content = b"".join(islice(content.chunks(), 1 + limit // CHUNK))
    elif isinstance(content, str):
        content = content.encode()
    if len(content) > limit:
        abort(413, f"The {name} is too large: it may have {limit} bytes.")
    return bytes(content)


def read_form(limit: int, create_file: Callable[..., Any]) -> dict[str, Any]:
    """Return the parts of the form by name: files, and texts that are no files."""
    boundary = request.mimetype_params.get("boundary", "")
    if not (0 < len(boundary) <= MAX_BOUNDARY_LENGTH and boundary.isascii()):
        abort(400, "multipart/form-data needs a boundary of 1 to 70 characters.")
    request.max_content_length = limit + MAX_FORM_BYTES
    parser = MultiPartParser(create_file, MAX_FORM_BYTES, max_form_parts=len(PARTS))
    try:
        fields, files = parser.parse(request.stream, boundary.encode(), request.content_length)
    except ValueError:
        abort(400, "The body is not complete multipart/form-data.")
    except RequestEntityTooLarge as error:
        if error.description == RequestEntityTooLarge.description:
            refuse_large(limit)
        raise
    parts = [*fields.items(multi=True), *((name, each.stream) for name, each in files.items(True))]
    names = [name for name, _ in parts]
    if len(names) != len(set(names)) or not PARTS.issuperset(names):
        abort(400, "A form has the parts manifest, bundle, readme and picture, each once.")
    if "bundle" in fields:
        abort(400, "The part bundle must be a file, with a file name.")
    return dict(parts)
