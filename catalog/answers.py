"""Finished answers, kept for as long as the catalog stays as it was when they were made."""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Response, current_app, request
from werkzeug.datastructures import Headers
from werkzeug.http import generate_etag

from catalog.db import Database

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MAX_BYTES = 16 * 1024 * 1024
OVERHEAD = 1024  # what Python takes for the parts of one, at most

# The revision of the catalog that an answer was made of, and its JSON with the end of its line.
Made = tuple[Any, bytes]
# Given the revision of a kept answer, the one that it holds at now; None where it does not.
Look = Callable[[sqlite3.Connection, Any], Any]
Make = Callable[[sqlite3.Connection], Made]


class Answer(NamedTuple):
    """The bytes of an answer, their strong ETag, and the revision they belong to."""

    generation: int  # of the database's file
    revision: Any
    state: object  # of the database when the revision was last seen to hold
    body: bytes
    etag: str
    size: int  # in memory, with its key: callers choose that, and it may be longer


class Answers:
    """The answers used last, as many as fit."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> Answer | None:
        """The answer that is kept for the key; whether it still holds is for the caller to see."""
        with self._lock:
            answer = self._kept.get(key)
            if answer is not None:
                self._kept.move_to_end(key)
            return answer

    def keep(self, key: Hashable, answer: Answer) -> None:
        """Keep the answer, and drop those longest unused where there is no room."""
        if answer.size > MAX_BYTES:
            return  # nor would any other be left
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._bytes += answer.size - (replaced.size if replaced else 0)
            self._kept[key] = answer
            while self._bytes > MAX_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.size


def respond(
    key: Hashable, look: Look, make: Make, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer for the key, made anew if look() sees that it has changed; 304 if it is held.

    Where nothing at all was committed since, not even that is asked: each statement is several
    turns at the interpreter's lock, which under load cost more than the whole answer.
    """
    answer = current(key, look, make)
    headers = {"ETag": f'"{answer.etag}"', **(headers or {})}
    # Most requests hold nothing, and to parse that takes longer than to see it.
    if "If-None-Match" in request.headers and request.if_none_match.contains_weak(answer.etag):
        return Response(status=304, headers=headers, mimetype="application/json")
    return Ready(answer.body, headers=headers, mimetype="application/json")


class Ready(Response):
    """An answer that is sent with the headers it has: for this one, there are no others."""

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        return self.headers


def current(key: Hashable, look: Look, make: Make) -> Answer:
    """The kept answer if it still holds, else one made now."""
    answers: Answers = current_app.extensions["answers"]
    database: Database = current_app.extensions["database"]
    answer = answers.get(key)
    connection = database.reader()
    state = database.state()  # before look(): it must not be newer
    if answer is not None and state is not None and answer.state == state:
        return answer
    holds = answer is not None and answer.generation == database.generation
    revision = look(connection, answer.revision) if holds else None
    if revision is not None:
        answer = answer._replace(revision=revision, state=state)
    else:
        revision, body = make(connection)
        size = len(body) + 4 * len(repr(key)) + OVERHEAD
        answer = Answer(database.generation, revision, state, body, generate_etag(body), size)
    answers.keep(key, answer)
    return answer
