"""Request bodies of the internal API: JSON objects, pictures, and forms with JSON and files.

The server receives a large body into a temporary file. This module copies the bundle from the form
into another temporary file and hashes it, CHUNK bytes at a time.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from flask import abort, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType
from werkzeug.formparser import MultiPartParser

from ...domain.bundle_text import BundleText
from ...domain.changes import BundleSummary
from ...domain.documents import Json, parse_json
from ...domain.messages import quoted
from ...domain.permissions import (
    MAX_EDIT_BYTES,
    MAX_FORM_BYTES,
    MAX_JSON_BYTES,
    REJECTED_BODY,
    TOO_LARGE,
)
from ...domain.pictures import MAX_PICTURE_BYTES
from ...domain.validators import MAX_MARKDOWN_BYTES
from ...store.connection.deadlines import Deadline

CHUNK = 64 * 1024  # bytes
FORM_TYPE = "multipart/form-data"
BUNDLE = "bundle"
# The parts of a form and their size limits in bytes; the limit for a bundle is a setting.
VERSION_PARTS = {
    "manifest": MAX_JSON_BYTES,
    "readme": MAX_MARKDOWN_BYTES,
    "picture": MAX_PICTURE_BYTES,
}
EDIT_PARTS = {"changes": MAX_JSON_BYTES, "picture": MAX_PICTURE_BYTES}
# The maximum length of the boundary between the parts of a form (RFC 2046, section 5.1.1).
MAX_BOUNDARY_LENGTH = 70


def check_body_accepted(limit: int, subject: str) -> None:
    """Respond 413 or 503 if the server did not accept the body of this request."""
    reason = request.environ.get(REJECTED_BODY)
    if reason == TOO_LARGE:
        abort_too_large(limit, subject)
    if reason:
        raise ServiceUnavailable("Too many uploads at the same time.", retry_after=5)


def abort_too_large(limit: int, subject: str) -> NoReturn:
    """Respond 413 with a message that states the limit."""
    raise RequestEntityTooLarge(f"The body is too large: {subject} must not exceed {limit} bytes.")


def read_object(keys: set[str]) -> Json:
    """Return the JSON object in the body, or {} if it is empty; respond 400 to unknown keys."""
    check_body_accepted(MAX_JSON_BYTES, "it")
    return check_object(read_limited(MAX_JSON_BYTES) or b"{}", "The body", keys)


def check_object(content: bytes, subject: str, keys: set[str]) -> Json:
    """Return a JSON object that may have only these keys; respond 400 to anything else."""
    value = parse_part(content, subject)
    if not isinstance(value, dict):
        abort(400, f"{subject} must be a JSON object.")
    if unknown := value.keys() - keys:
        names = ", ".join(sorted(map(quoted, unknown)))
        allowed = f"allowed keys are {', '.join(sorted(keys))}" if keys else "it must be empty"
        abort(400, f"{subject} has unknown keys: {names}; {allowed}.")
    return value


def read_changes(keys: set[str]) -> tuple[Json, bytes | None]:
    """Return the changes to a widget, and its new picture or None; respond 400 to unknown keys.

    The body is a JSON object, or a form with a "changes" part and a "picture" part.
    """
    if request.mimetype != FORM_TYPE:
        return read_object(keys), None
    check_body_accepted(MAX_EDIT_BYTES, "it")
    with ExitStack() as files:
        received = read_form(files, MAX_EDIT_BYTES, EDIT_PARTS)
        parts = {name: read_part(received, name, EDIT_PARTS[name]) for name in received}
    return check_object(parts.get("changes", b"{}"), "changes", keys), parts.get("picture")


def read_limited(limit: int) -> bytes:
    """Return the body; respond 413 if it is larger than the limit."""
    request.max_content_length = limit
    try:
        return request.get_data(cache=False)
    except RequestEntityTooLarge:
        abort_too_large(limit, "it")


def parse_part(text: bytes, name: str) -> Any:
    """Parse JSON from a body or one of its parts; respond 400 if it is not valid JSON."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        abort(400, f"{name} is not JSON in UTF-8: {error}.")


class ReceivedFile:
    """A file from a form, hashed while it is written to a temporary file."""

    def __init__(self, limit: int, subject: str) -> None:
        # Use the bundle directory, because /tmp may be in memory.
        directory = current_app.extensions["bundles"].directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._hash, self._text = hashlib.sha256(), BundleText()
        self._size, self._limit, self._subject = 0, limit, subject

    @property
    def summary(self) -> BundleSummary:
        """The size and hash of the file, and the reason why it cannot be a bundle, if any."""
        problem = self._text.problem()
        return BundleSummary(self._size, self._hash.hexdigest(), problem=problem)

    def write(self, data: bytes) -> None:
        """Add the data; respond 413 if the file becomes too large."""
        deadline: Deadline = current_app.extensions["database"].deadline
        deadline.check()
        self._size += len(data)
        if self._size > self._limit:
            abort_too_large(self._limit, self._subject)
        self._hash.update(data)
        self._text.add(data)
        self._file.write(data)

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def chunks(self) -> Iterator[bytes]:
        """Yield the file's content in pieces; the file can be read only once."""
        while piece := self._file.read(CHUNK):
            yield piece

    def close(self) -> None:
        self._file.close()


class UploadedVersion(NamedTuple):
    """The manifest of a version, and the bundle, readme and picture that were sent with it."""

    manifest: Any
    bundle: ReceivedFile | None = None
    readme: bytes | None = None
    picture: bytes | None = None


@contextmanager
def read_version() -> Iterator[UploadedVersion]:
    """Read the request body; its files are removed when the with block ends."""
    limit: int = current_app.config["MAX_BUNDLE_BYTES"]
    check_body_accepted(limit, "a bundle")
    if request.mimetype == "application/json":
        yield UploadedVersion(parse_part(read_limited(MAX_JSON_BYTES), "The manifest"))
        return
    if request.mimetype != FORM_TYPE:
        raise UnsupportedMediaType(
            f"Send a manifest as application/json, or manifest and bundle as {FORM_TYPE}."
        )
    with ExitStack() as files:
        received = read_form(files, limit, {**VERSION_PARTS, BUNDLE: limit})
        bundle = received.pop(BUNDLE, None)
        small = {name: read_part(received, name, VERSION_PARTS[name]) for name in received}
        if not small.get("manifest"):
            abort(400, "The form has no part named manifest.")
        manifest = parse_part(small.pop("manifest"), "The manifest")
        yield UploadedVersion(manifest, bundle, **small)


def read_part(received: dict[str, Any], name: str, limit: int) -> bytes:
    """Return a part of a form; respond 413 if the part is larger than the limit."""
    content = received[name]
    if isinstance(content, ReceivedFile):
        content = b"".join(islice(content.chunks(), 1 + limit // CHUNK))
    elif isinstance(content, str):
        content = content.encode()
    if len(content) > limit:
        abort(413, f"The {name} is too large: it must not exceed {limit} bytes.")
    return bytes(content)


def read_form(files: ExitStack, limit: int, parts: dict[str, int]) -> dict[str, Any]:
    """Return the form's text fields and files by name; the stack closes the files.

    No file may exceed the limit. Respond 400 if a part is unknown or repeated.
    """
    boundary = request.mimetype_params.get("boundary", "")
    if not (0 < len(boundary) <= MAX_BOUNDARY_LENGTH and boundary.isascii()):
        abort(400, f"{FORM_TYPE} needs a boundary of 1 to 70 characters.")
    request.max_content_length = limit + MAX_FORM_BYTES
    subject = "a bundle" if BUNDLE in parts else "it"

    def create_file(*_: object, **__: object) -> Any:
        return files.enter_context(closing(ReceivedFile(limit, subject)))

    parser = MultiPartParser(create_file, MAX_FORM_BYTES, max_form_parts=len(parts))
    try:
        fields, uploaded = parser.parse(request.stream, boundary.encode(), request.content_length)
    except ValueError:
        abort(400, f"The body is incomplete, or is not valid {FORM_TYPE}.")
    except RequestEntityTooLarge as error:
        if error.description == RequestEntityTooLarge.description:
            abort_too_large(limit, subject)
        raise
    received = [
        *fields.items(multi=True),
        *((name, each.stream) for name, each in uploaded.items(multi=True)),
    ]
    names = [name for name, _ in received]
    if len(names) != len(set(names)) or not parts.keys() >= set(names):
        *first, last = sorted(parts)
        allowed = f"{', '.join(first)} and {last}"
        abort(400, f"The form may contain only the parts {allowed}, each at most once.")
    if BUNDLE in fields:
        abort(400, "The bundle part must be a file with a file name.")
    return dict(received)
