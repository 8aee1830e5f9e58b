"""Finished answers, kept for as long as the catalog stays as it was when they were made."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import NamedTuple

from flask import Response, current_app, request
from werkzeug.http import generate_etag

MAX_BYTES = 32 * 1024 * 1024
OVERHEAD = 1024  # what Python takes for the parts of one, at most

# The text of an answer and the revision of the catalog that it was made of, read as one.
Made = tuple[object, str]


class Answer(NamedTuple):
    """The bytes of an answer, their strong ETag, and the revision they belong to."""

    revision: object
    body: bytes
    etag: str
    size: int  # in memory, with its key: callers choose that, and it may be longer


class Answers:
    """The answers used last, as many as fit."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable, revision: object) -> Answer | None:
        """The answer that is kept for the key, unless it was made at another revision."""
        with self._lock:
            answer = self._kept.get(key)
            if answer is None or answer.revision != revision:
                return None
            self._kept.move_to_end(key)
            return answer

    def keep(self, key: Hashable, answer: Answer) -> None:
        """Keep the answer, and drop those longest unused where there is no room."""
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += answer.size - (replaced.size if replaced else 0)
            self._kept[key] = answer
            while self._bytes > MAX_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.size


def respond(key: Hashable, revision: object, make: Callable[[], Made]) -> Response:
    """The answer for the key at a revision, made if it is not kept; 304 if the client has it."""
    answers: Answers = current_app.extensions["answers"]
    file = current_app.extensions["database"].generation
    answer = answers.get(key, (file, revision))
    if answer is None:
        made_of, text = make()
        body = text.encode() + b"\n"
        size = len(body) + 4 * len(repr(key)) + OVERHEAD
        answer = Answer((file, made_of), body, generate_etag(body), size)
        answers.keep(key, answer)
    if request.if_none_match.contains_weak(answer.etag):
        response = Response(status=304, mimetype="application/json")
    else:
        response = Response(answer.body, mimetype="application/json")
    response.set_etag(answer.etag)
    return response
