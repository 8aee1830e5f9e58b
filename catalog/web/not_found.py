"""Suggestions on the 404 page: the widgets that the requested path may mean."""

import re
import sqlite3
from typing import NamedTuple

from flask import current_app, request

from ..store.connection.database import Database
from ..store.connection.sqlite import Connection, DatabaseError, DeadlineExceeded
from ..store.read.suggestions import Suggestion, suggest_widgets

MAX_SUGGESTIONS = 5
MAX_WORDS_LENGTH = 100  # characters
FILE_EXTENSION = re.compile(r"\.[a-z]{2,5}$")
SEPARATORS = re.compile(r"[-_.+@\s]+")


class PathSubject(NamedTuple):
    """What a path asks for: a scope, empty if it names none, and the name of a widget."""

    scope: str
    name: str

    @property
    def words(self) -> str:
        """The words of the name, for a search."""
        return SEPARATORS.sub(" ", "".join(filter(str.isprintable, self.name))).strip()


class Suggestions(NamedTuple):
    """The words to search for, and the widgets that may be meant."""

    words: str
    widgets: list[Suggestion]


def read_path(path: str) -> PathSubject:
    """Return what the path asks for; /widgets/acme/clock and /clock.html ask for a clock."""
    segments = [segment for segment in path.split("/") if segment]
    if segments and segments[0] == "widgets":
        scope, name = [*segments[1:3], "", ""][:2] if len(segments) != 2 else ("", segments[1])
    else:
        scope, name = "", segments[-1] if segments else ""
    return PathSubject(scope, FILE_EXTENSION.sub("", name)[:MAX_WORDS_LENGTH])


def suggest_for_path(path: str) -> Suggestions:
    """Return suggestions for a path that does not exist; none if the catalog cannot be read."""
    subject = read_path(path)
    # A missing file needs no suggestions, and for a POST they would delay installs.
    is_read = request.method in ("GET", "HEAD") and not path.startswith("/static/")
    if not subject.words or not is_read:
        return Suggestions(subject.words, [])
    database: Database = current_app.extensions["database"]
    try:
        return Suggestions(subject.words, find_suggestions(database.reader(), subject))
    except (DatabaseError, sqlite3.Error) as error:
        database.faults.log("The catalog has no suggestions", error)
    except DeadlineExceeded as error:
        current_app.logger.warning("The catalog has no suggestions: %s", error)
    return Suggestions(subject.words, [])


def find_suggestions(connection: Connection, subject: PathSubject) -> list[Suggestion]:
    """Return the widgets with a similar name."""
    return suggest_widgets(connection, subject.name, scope=subject.scope, limit=MAX_SUGGESTIONS)
