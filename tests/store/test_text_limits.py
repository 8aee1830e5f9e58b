"""Limits of texts: the longest that are accepted, and the errors beyond, for every way in."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from builders import Json, document, version
from conftest import run
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from werkzeug.test import TestResponse

from catalog.documents import DocumentError, check_document

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


def characters(count: int) -> st.SearchStrategy[str]:
    """Texts of this length, of characters of one to four bytes."""
    return st.sampled_from("xé天🌙\n").map(lambda character: character * count)


@given(st.sampled_from(WIDGET_TEXTS), characters(10_000))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_text_of_a_widget_has_at_most_10000_characters(key: str, text: str) -> None:
    check_document(document(**{key: text}))
    (problem,) = problems_of(document(**{key: text + "x"}))
    assert problem.startswith(f"{key} must be {TEXT}, not '")
    assert len(problem) < 200


@given(st.sampled_from(VERSION_TEXTS), characters(10_000))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_text_of_a_version_has_at_most_10000_characters(key: str, text: str) -> None:
    check_document(document("acme/clock", version(**{key: text})))
    (problem,) = problems_of(document("acme/clock", version(**{key: text + "x"})))
    assert problem.startswith(f"version 1.0.0: {key} must be {TEXT}, not '")


@given(st.sampled_from("xé🌙"))
@settings(derandomize=True, deadline=None)
def test_release_notes_have_at_most_64_kib(character: str) -> None:
    notes = character * (65_536 // len(character.encode()))
    check_document(document("acme/clock", version(releaseNotes=notes)))
    (problem,) = problems_of(document("acme/clock", version(releaseNotes=notes + "x")))
    assert problem.startswith(f"version 1.0.0: releaseNotes must be {NOTES}, not '")


def test_permissions_are_at_most_100_of_100_characters() -> None:
    longest = [f"{number:0100}" for number in range(100)]
    check_document(document("acme/clock", version(permissions=longest)))
    for invalid in ([*longest, "x"], ["x" * 101]):
        (problem,) = problems_of(document("acme/clock", version(permissions=invalid)))
        assert problem.startswith(f"version 1.0.0: permissions must be {PERMISSIONS}, not [")


def versions(count: int, **fields: Any) -> list[Json]:
    return [version(f"1.{number}.0", **fields) for number in range(count)]


def test_document_has_at_most_16_mib() -> None:
    notes = "x" * 65_000
    check_document(document("acme/clock", *versions(250, releaseNotes=notes)))
    (problem,) = problems_of(document("acme/clock", *versions(270, releaseNotes=notes)))
    assert "more than the 16777216 allowed" in problem
    # Every version has the description of the widget in responses.
    (problem,) = problems_of(document("acme/clock", *versions(600), description="天" * 10_000))
    assert "more than the 16777216 allowed" in problem
    check_document(
        document("acme/clock", *versions(600, description=""), description="天" * 10_000)
    )


def test_largest_texts_of_a_version_are_below_the_limit_of_a_document() -> None:
    """So few versions are not measured."""
    texts = dict.fromkeys(VERSION_TEXTS, "\x01" * 10_000)
    texts["releaseNotes"] = "\x01" * 65_536
    largest = versions(16, **texts, permissions=["\x01" * 100] * 100)
    assert len(json.dumps(document("acme/clock", *largest))) < 16 * 1024 * 1024


LONG = "x" * 10_001
COMMANDS = {
    "describe": ["describe", "acme/clock", "--description", LONG],
    "yank": ["yank", "acme/clock@1.0.0", "--reason", LONG],
    "deprecate": ["deprecate", "acme/clock@1.0.0", LONG],
}


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(document("acme/clock", version()))


def exported(app: Flask) -> str:
    return run(app, "export").stdout


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_command_refuses_a_long_text(app: Flask, arguments: list[str]) -> None:
    before = exported(app)
    result = run(app, *arguments)
    assert result.exit_code == 2
    assert f"is not {TEXT}" in result.stderr
    assert exported(app) == before


def test_import_refuses_a_long_text(app: Flask) -> None:
    before = exported(app)
    line = json.dumps(document("acme/clock", version(license=LONG)))
    result = run(app, "import", "-", stdin=line)
    assert result.exit_code == 1
    assert f"version 1.0.0: license must be {TEXT}" in result.stderr
    assert exported(app) == before


CLOCK = "/api/widgets/acme/clock"
REQUESTS: dict[str, tuple[str, str, Json, str]] = {
    "yank": ("POST", f"{CLOCK}/1.0.0/yank", {"reason": LONG}, "reason"),
    "deprecate": ("POST", f"{CLOCK}/1.0.0/deprecate", {"message": LONG}, "message"),
    "description": ("PATCH", CLOCK, {"description": LONG}, "description"),
    "display name": ("PATCH", CLOCK, {"displayName": LONG}, "displayName"),
}


@pytest.mark.parametrize(("method", "path", "body", "key"), REQUESTS.values(), ids=REQUESTS)
def test_request_with_a_token_refuses_a_long_text(
    app: Flask, method: str, path: str, body: Json, key: str
) -> None:
    before = exported(app)
    headers = bearer(create_token(app))
    response = app.test_client().open(path, method=method, json=body, headers=headers)
    assert response.status_code == 400
    assert f"{key} must be {TEXT}" in response.json["error"]
    assert exported(app) == before


def put(app: Flask, **fields: object) -> TestResponse:
    """Publish a version with a token."""
    return app.test_client().put(
        f"{CLOCK}/2.0.0",
        data=form(manifest(number="2.0.0", **fields)),
        content_type=FORM_TYPE,
        headers=bearer(create_token(app)),
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("releaseNotes", "x" * 65_537, NOTES),
        ("description", LONG, TEXT),
        ("permissions", ["x"] * 101, PERMISSIONS),
    ],
)
def test_publication_with_a_token_refuses_a_long_text(
    app: Flask, key: str, value: object, allowed: str
) -> None:
    response = put(app, **{key: value})
    assert response.status_code == 400
    assert f"{key} must be {allowed}" in response.json["error"]


def test_widget_that_is_full_accepts_no_version(app_with: AppWith) -> None:
    notes = "x" * 65_000
    room = app_with(document("acme/clock", *versions(235, releaseNotes=notes)))
    assert put(room).status_code == 201
    full = app_with(document("acme/clock", *versions(250, releaseNotes=notes)))
    response = put(full)
    assert response.status_code == 409
    assert "a widget may have 16777216" in response.json["error"]


def test_stored_text_beyond_the_limit_is_served_and_named_by_check(app: Flask) -> None:
    notes = "x" * 100_000
    with closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as connection:
        connection.execute("UPDATE version SET release_notes = ?", (notes,))
    detail = app.test_client().get("/api/v1/widgets/acme/clock").json
    assert detail["versions"][0]["releaseNotes"] == notes
    result = run(app, "check")
    assert result.exit_code == 1
    assert f"acme/clock: version 1.0.0: releaseNotes must be {NOTES}" in result.stdout
