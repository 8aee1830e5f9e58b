"""Bodies of the internal API: JSON objects, and forms with a manifest and a bundle.

A bundle is written to a temporary file while it is hashed, in pieces of CHUNK bytes. What has been
read of a file is freed, so that a bundle needs its size on the disk once.
"""

import ctypes
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO, NoReturn

from flask import abort, current_app, request
from werkzeug.exceptions import RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType
from werkzeug.sansio.multipart import (
    Data,
    Epilogue,
    Event,
    Field,
    File,
    MultipartDecoder,
    NeedData,
)

from ..documents import Json
from ..rights import MAX_FORM_BYTES, MAX_JSON_BYTES, REFUSED_BODY, TOO_LARGE
from ..store.connection.deadlines import Deadline
from ..store.write.manifests import BundleSummary
from ..text import quoted

CHUNK = 64 * 1024  # bytes
# From Linux's falloc.h: FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE.
PUNCH_HOLE = 2 | 1
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
        abort(400, f"The body has {names}; it may have {', '.join(sorted(keys))}.")
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
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        abort(400, f"{name} is not JSON in UTF-8: {error}.")


class UploadedVersion:
    """The manifest of a version and, if it was sent, its bundle; a context manager."""

    def __init__(self) -> None:
        self._files = ExitStack()
        self._hash = hashlib.sha256()
        self._manifest = b""
        self._file: BinaryIO | None = None
        self.size = 0

    def __enter__(self) -> "UploadedVersion":
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    @property
    def manifest(self) -> Any:
        return parse_part(self._manifest, "The manifest")

    @property
    def summary(self) -> BundleSummary | None:
        """The size and hash of the bundle; None if there is none."""
        return BundleSummary(self.size, self._hash.hexdigest()) if self._file else None

    def chunks(self) -> Iterator[bytes] | None:
        """Return the bundle in pieces, once; None if there is none."""
        if self._file is None:
            return None
        self._file.seek(0)
        return read_and_free(self._file)

    def read(self) -> None:
        """Read the body of the request."""
        check_body_accepted(current_app.config["MAX_BUNDLE_BYTES"], "a bundle")
        kind, options = request.mimetype, request.mimetype_params
        if kind == "application/json":
            self._manifest = read_limited(MAX_JSON_BYTES)
        elif kind == "multipart/form-data":
            self._read_form(options.get("boundary", ""))
        else:
            raise UnsupportedMediaType(
                "Send a manifest as application/json, or manifest and bundle as "
                "multipart/form-data."
            )

    def _read_form(self, boundary: str) -> None:
        if not (0 < len(boundary) <= MAX_BOUNDARY_LENGTH and boundary.isascii()):
            abort(400, "multipart/form-data needs a boundary of 1 to 70 characters.")
        limit: int = current_app.config["MAX_BUNDLE_BYTES"]
        request.max_content_length = limit + MAX_FORM_BYTES
        decoder = MultipartDecoder(boundary.encode(), MAX_FORM_BYTES, max_parts=2)
        part = ""
        try:
            for event in decode(decoder, limit):
                if isinstance(event, (Field, File)):
                    part = self._begin_part(event.name)
                elif isinstance(event, Data):
                    self._add(part, event.data, limit)
        except ValueError:
            abort(400, "The body is not complete multipart/form-data.")
        if not self._manifest:
            abort(400, "The form has no part manifest.")

    def _begin_part(self, name: str) -> str:
        if name == "bundle" and self._file is None:
            # On the disk of the bundles: /tmp may be in memory.
            directory = current_app.extensions["bundles"].directory
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
            self._file = self._files.enter_context(file)
        elif name != "manifest" or self._manifest:
            abort(400, "A form has the parts manifest and bundle, each once.")
        return name

    def _add(self, part: str, data: bytes, limit: int) -> None:
        if part == "bundle" and self._file is not None:
            self.size += len(data)
            if self.size > limit:
                refuse_large(limit)
            self._hash.update(data)
            self._file.write(data)
        else:
            self._manifest += data
            if len(self._manifest) > MAX_JSON_BYTES:
                abort(413, f"The manifest is too large: it may have {MAX_JSON_BYTES} bytes.")


def decode(decoder: MultipartDecoder, limit: int) -> Iterator[Event]:
    """Yield the parts of the form as they are read; raise ValueError if it is malformed."""
    deadline: Deadline = current_app.extensions["database"].deadline
    while True:
        deadline.check()
        try:
            decoder.receive_data(request.stream.read(CHUNK) or None)
        except RequestEntityTooLarge:
            refuse_large(limit)
        free_read(request.environ["wsgi.input"])
        while not isinstance(event := decoder.next_event(), NeedData):
            yield event
            if isinstance(event, Epilogue):
                return


def read_and_free(file: BinaryIO) -> Iterator[bytes]:
    """Yield the file in pieces, and free them."""
    while piece := file.read(CHUNK):
        free_read(file)
        yield piece


def free_read(file: BinaryIO) -> None:
    """Give the space of what has been read back to the disk, where the system can do that."""
    with suppress(AttributeError, OSError, ValueError):
        length = ctypes.c_longlong(file.tell())
        ctypes.CDLL(None).fallocate(file.fileno(), PUNCH_HOLE, ctypes.c_longlong(0), length)
