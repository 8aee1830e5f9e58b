"""Limits of texts: the longest that are accepted, and the errors beyond, for every way in."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from builders import Json, document, version
from conftest import exported, run
from flask import Flask
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from werkzeug.test import TestResponse

from catalog.domain.documents import DocumentError, check_document

AppWith = Callable[..., Flask]
TEXT = "text of at most 10000 characters"
NOTES = "text of at most 65536 bytes"
PERMISSIONS = "an array of at most 100 strings of at most 100 characters"
WIDGET_TEXTS = ("displayName", "description", "icon")
VERSION_TEXTS = (
    *("yankedReason", "deprecationMessage", "displayName", "description", "icon"),
    *("sdkVersion", "license"),
)


def problems_of(value: Json) -> list[str]:
    with pytest.raises(DocumentError) as refused:
        check_document(value)
    return refused.value.problems


LONGEST = {
    **{f"widget {key}": (10_000, TEXT) for key in WIDGET_TEXTS},
    **{f"version {key}": (10_000, TEXT) for key in VERSION_TEXTS},
    "version releaseNotes": (65_536, NOTES),
}


@pytest.mark.parametrize("character", "xé🌙\n")
@pytest.mark.parametrize("field", LONGEST)
def test_text_has_a_limit(field: str, character: str) -> None:
    length, allowed = LONGEST[field]
    part, key = field.split()
    text = character * (length // len(character.encode()) if allowed == NOTES else length)

    def with_text(text: str) -> Json:
        fields = {key: text}
        return document(**fields) if part == "widget" else document("a/b", version(**fields))

    check_document(with_text(text))
    (problem,) = problems_of(with_text(text + "x"))
    assert f"{key} must be {allowed}, not '" in problem
    assert len(problem) < 200


def test_permissions_are_at_most_100_of_100_characters() -> None:
    longest = [f"{number:0100}" for number in range(100)]
    check_document(document("acme/clock", version(permissions=longest)))
    for invalid in ([*longest, "x"], ["x" * 101]):
        (problem,) = problems_of(document("acme/clock", version(permissions=invalid)))
        assert problem.startswith(f"version 1.0.0: permissions must be {PERMISSIONS}, not [")


def versions(count: int, **fields: Any) -> list[Json]:
    return [version(f"1.{number}.0", **fields) for number in range(count)]


NOTES_AT_LIMIT = versions(250, releaseNotes="x" * 65_000)
CHINESE = "天" * 10_000
# Every version has the description of the widget in responses, unless it has its own.
SIZES = {
    "notes": (document("acme/clock", *NOTES_AT_LIMIT), 0),
    "more notes": (document("acme/clock", *versions(270, releaseNotes="x" * 65_000)), 1),
    "description": (document("acme/clock", *versions(600), description=CHINESE), 1),
    "own one": (document("acme/clock", *versions(600, description=""), description=CHINESE), 0),
}


@pytest.mark.parametrize(("value", "status"), SIZES.values(), ids=SIZES)
def test_document_has_at_most_16_mib(app_with: AppWith, value: Json, status: int) -> None:
    result = run(app_with(), "import", "-", stdin=json.dumps(value))
    assert (result.exit_code, "at most 10000 versions and 16777216 bytes" in result.stderr) == (
        status,
        status == 1,
    )


LONG = "x" * 10_001
CLOCK = "/api/widgets/acme/clock"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(document("acme/clock", version()))


COMMANDS = {
    "describe": (["describe", "acme/clock", "--description", LONG], 2),
    "yank": (["yank", "acme/clock@1.0.0", "--reason", LONG], 2),
    "deprecate": (["deprecate", "acme/clock@1.0.0", "--message", LONG], 2),
    "import": (["import", "-"], 1),
}


@pytest.mark.parametrize(("arguments", "status"), COMMANDS.values(), ids=COMMANDS)
def test_command_refuses_a_long_text(app: Flask, arguments: list[str], status: int) -> None:
    before = exported(app)
    line = json.dumps(document("acme/clock", version(license=LONG)))
    result = run(app, *arguments, stdin=line)
    assert (result.exit_code, TEXT in result.stderr) == (status, True)
    assert exported(app) == before


REQUESTS: dict[str, tuple[str, str, str]] = {
    "yank": ("POST", f"{CLOCK}/1.0.0/yank", "reason"),
    "deprecate": ("POST", f"{CLOCK}/1.0.0/deprecate", "message"),
    "describe": ("PATCH", CLOCK, "description"),
}


@pytest.mark.parametrize(("method", "path", "key"), REQUESTS.values(), ids=REQUESTS)
def test_request_with_a_token_refuses_a_long_text(
    app: Flask, method: str, path: str, key: str
) -> None:
    before = exported(app)
    headers = bearer(create_token(app))
    response = app.test_client().open(path, method=method, json={key: LONG}, headers=headers)
    assert response.status_code == 400
    assert f"{key} must be {TEXT}" in response.json["error"]
    assert exported(app) == before


def put(app: Flask, number: str = "2.0.0", **fields: object) -> TestResponse:
    """Publish a version with a token."""
    return app.test_client().put(
        f"{CLOCK}/{number}",
        data=form(manifest("acme/clock", number, **fields)),
        content_type=FORM_TYPE,
        headers=bearer(create_token(app, f"for {number}")),
    )


def test_publication_with_a_token_refuses_a_long_text(app: Flask) -> None:
    response = put(app, releaseNotes="x" * 65_537)
    assert response.status_code == 400
    assert f"releaseNotes must be {NOTES}" in response.json["error"]


def test_widget_that_is_full_accepts_no_version(app_with: AppWith) -> None:
    notes = "x" * 65_000
    app = app_with(document("acme/clock", *versions(255, releaseNotes=notes)))
    assert put(app, releaseNotes=notes).status_code == 201
    response = put(app, "2.1.0", releaseNotes=notes)
    assert response.status_code == 409
    assert "at most 10000 versions and 16777216 bytes are allowed" in response.json["error"]


def test_stored_text_beyond_the_limit_is_served_and_named_by_check(app: Flask) -> None:
    notes = "x" * 100_000
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as connection:
        connection.execute("UPDATE version SET release_notes = ?", (notes,))
    detail = app.test_client().get("/api/v1/widgets/acme/clock").json
    assert detail["versions"][0]["releaseNotes"] == notes
    result = run(app, "check")
    assert result.exit_code == 1
    assert f"acme/clock: version 1.0.0: releaseNotes must be {NOTES}" in result.stdout
