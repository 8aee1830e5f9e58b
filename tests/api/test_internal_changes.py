"""The internal API: a change with a token has the same effect as the command on the server."""

import gzip
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from conftest import exported, run
from flask import Flask
from publishers import BOUNDARY, FORM_TYPE, bearer, create_token, form, manifest
from werkzeug.test import TestResponse

from catalog.store.read.audit import read_entries

AppWith = Callable[..., Flask]
Send = Callable[..., TestResponse]
BUNDLE = b"export default () => 'tick'\n"
SHA256 = hashlib.sha256(BUNDLE).hexdigest()
CLOCK = "/api/widgets/acme/clock"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    old = version("1.0.0", publishedAt="2025-01-01T00:00:00.000Z")
    return app_with(document("acme/clock", old, version("1.1.0"), icon="mdi:clock"))


@pytest.fixture
def send(app: Flask) -> Send:
    """Return a function that sends a request with a token of the scope acme."""
    headers = bearer(create_token(app))
    client = app.test_client()

    def send_request(method: str, path: str, body: Json | bytes | None = None) -> TestResponse:
        if isinstance(body, bytes):
            return client.open(
                path, method=method, data=body, content_type=FORM_TYPE, headers=headers
            )
        return client.open(path, method=method, json=body, headers=headers)

    return send_request


def test_a_published_version_is_served_with_its_bundle(app: Flask, send: Send) -> None:
    response = send("PUT", f"{CLOCK}/2.0.0", form(manifest(number="2.0.0"), BUNDLE))
    assert response.status_code == 201
    assert response.json == {
        "version": "acme/clock@2.0.0",
        "published": True,
        "message": None,
        "stored": True,
        "warnings": [],
        "isUnlisted": False,
        "isOfficialIgnored": False,
        "previousLatestVersion": "1.1.0",
        "latestVersion": "2.0.0",
        "latestStableVersion": "2.0.0",
        "document": None,
    }
    client = app.test_client()
    with client.get("/api/v1/widgets/acme/clock/2.0.0/bundle.js") as served:
        assert served.data == BUNDLE
    detail = client.get("/api/v1/widgets/acme/clock").json
    assert (detail["latestVersion"], detail["versions"][0]["sha256Hash"]) == ("2.0.0", SHA256)


def test_the_same_version_again_changes_nothing_and_another_is_a_conflict(
    app: Flask, send: Send
) -> None:
    body = form(manifest(number="2.0.0"), BUNDLE)
    send("PUT", f"{CLOCK}/2.0.0", body)
    before = exported(app)
    again = send("PUT", f"{CLOCK}/2.0.0", body)
    assert (again.status_code, again.json["published"]) == (200, False)
    assert again.json["message"] == (
        "acme/clock@2.0.0 is already published; readme, links, keywords and picture are unchanged."
    )
    other = send("PUT", f"{CLOCK}/2.0.0", form(manifest(number="2.0.0"), BUNDLE + b"\n"))
    assert other.status_code == 409
    assert "already published with a different bundleSize, sha256Hash" in other.json["error"]
    assert exported(app) == before
    assert [*app.extensions["bundles"].hashes()] == [SHA256]


def test_a_dry_run_shows_the_document_and_stores_nothing(app: Flask, send: Send) -> None:
    before = exported(app)
    response = send("PUT", f"{CLOCK}/2.0.0?dryRun=true", form(manifest(number="2.0.0"), BUNDLE))
    assert response.status_code == 200
    (entry,) = response.json["document"]["versions"]
    assert (entry["version"], entry["sha256Hash"]) == ("2.0.0", SHA256)
    assert exported(app) == before
    assert [*app.extensions["bundles"].hashes()] == []
    yanked = send("POST", f"{CLOCK}/1.1.0/yank?dryRun=true")
    assert yanked.json["latestVersion"] == "1.0.0"
    assert exported(app) == before


# What a manifest must have is tested with the command publish.
PUBLISH_ERRORS: dict[str, tuple[bytes | Json, int, str]] = {
    "no manifest": (f"--{BOUNDARY}--\r\n".encode(), 400, "no part named manifest"),
    "cut off": (form(manifest(number="2.0.0"))[:-10], 400, "is incomplete"),
    "not JSON": (form(manifest()).replace(b'{"scope"', b"[scope"), 400, "The manifest is not JSON"),
    "a compressed bundle": (
        form(manifest(number="2.0.0"), gzip.compress(BUNDLE)),
        400,
        "The bundle is gzip data, not JavaScript; publish the JavaScript file itself.",
    ),
    "an empty bundle": (form(manifest(number="2.0.0"), b""), 400, "The bundle is empty."),
    "no URL": (manifest(number="2.0.0"), 400, "the manifest must have bundleUrl."),
    "another version": (form(manifest()), 400, "is '1.0.0', but the path has '2.0.0'"),
    "the wrong hash": (form(manifest(number="2.0.0", sha256Hash="0" * 64)), 400, "the SHA-256"),
    "the wrong size": (form(manifest(number="2.0.0", bundleSize=5)), 400, "17 bytes"),
    "an invalid size": (
        form(manifest(number="2.0.0", bundleSize=-1)),
        400,
        "bundleSize must be a whole number from 0 to 9007199254740991, not -1.",
    ),
    "a part too many": (
        form(manifest(number="2.0.0")).replace(b'"bundle"', b'"other"'),
        400,
        "only the parts bundle, manifest, picture and readme, each at most once.",
    ),
    "a part twice": (
        form(manifest(number="2.0.0"), readme=BUNDLE).replace(b'"readme"', b'"bundle"'),
        400,
        "each at most once.",
    ),
    "a large manifest": (
        form(manifest(number="2.0.0", releaseNotes="x" * 300_000)),
        413,
        "must not exceed 262144 bytes",
    ),
}


@pytest.mark.parametrize(("body", "status", "message"), PUBLISH_ERRORS.values(), ids=PUBLISH_ERRORS)
def test_an_invalid_publication_is_refused_and_nothing_is_stored(
    app: Flask, send: Send, body: Any, status: int, message: str
) -> None:
    before = exported(app)
    response = send("PUT", f"{CLOCK}/2.0.0", body)
    assert (response.status_code, response.mimetype) == (status, "application/json")
    assert message in response.json["error"]
    assert exported(app) == before
    assert [*app.extensions["bundles"].hashes()] == []


def test_a_bundle_over_the_limit_or_a_body_of_another_type_is_refused(app_with: AppWith) -> None:
    app = app_with(MAX_BUNDLE_BYTES=2048)
    headers = bearer(create_token(app))
    for body, kind, status in (
        (form(manifest(), b"x" * 2049), FORM_TYPE, 413),
        (form(manifest(), b"x" * 2048), "text/plain", 415),
        (form(manifest(), b"x" * 2048), FORM_TYPE, 201),
    ):
        response = app.test_client().put(
            f"{CLOCK}/1.0.0", data=body, content_type=kind, headers=headers
        )
        assert response.status_code == status


def test_publishing_waits_only_shortly_for_a_command_that_stores_bundles(
    app: Flask, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.api.internal.versions.LOCK_TIMEOUT", 0)
    with app.extensions["bundles"].writing():
        response = send("PUT", f"{CLOCK}/2.0.0", form(manifest(number="2.0.0"), BUNDLE))
    assert (response.status_code, response.headers["Retry-After"]) == (503, "10")
    assert response.json == {
        "error": "Another command on the server is storing bundles; try again."
    }


CHANGE_ERRORS: dict[str, tuple[str, str, Any, int, str]] = {
    "no widget": ("POST", "/api/widgets/acme/klock/1.0.0/yank", None, 404, "no widget acme/klock"),
    "one version missing": (
        *("POST", f"{CLOCK}/1.0.0,9.0.0/yank", None, 404),
        "There is no version acme/clock@9.0.0.",
    ),
    "too many versions": (
        *("POST", f"{CLOCK}/{','.join(f'{n}.0.0' for n in range(101))}/yank", None, 400),
        "At most 100 versions and ranges can be named at once.",
    ),
    "no range": ("POST", f"{CLOCK}/one/yank", None, 400, "neither a version nor a range"),
    "no message": ("POST", f"{CLOCK}/1.0.0/deprecate", {}, 400, "a non-empty message"),
    "no text": (
        "POST",
        f"{CLOCK}/1.0.0/yank",
        {"reason": 5},
        400,
        "reason must be a Unicode string",
    ),
    "an unknown key": ("POST", f"{CLOCK}/1.0.0/unyank", {"reason": ""}, 400, "'reason'"),
    "no change": ("PATCH", CLOCK, {}, 400, "must have at least one of"),
    "no name": ("PATCH", CLOCK, {"displayName": ""}, 400, "displayName must be"),
    "no boolean": ("PATCH", CLOCK, {"listed": 1}, 400, "listed must be true or false"),
    "a list": ("PATCH", CLOCK, [], 400, "must be a JSON object"),
}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"), CHANGE_ERRORS.values(), ids=CHANGE_ERRORS
)
def test_an_invalid_change_is_refused(
    app: Flask, send: Send, method: str, path: str, body: Any, status: int, message: str
) -> None:
    before = exported(app)
    response = send(method, path, body)
    assert response.status_code == status
    assert message in response.json["error"]
    assert exported(app) == before


# The same change as a command and as a request; tests/commands compares all commands.
PAIRS: dict[str, tuple[str, tuple[str, str, Any]]] = {
    "yank": (
        "yank acme/clock@1.x --reason Bad",
        ("POST", f"{CLOCK}/1.x/yank", {"reason": "Bad"}),
    ),
    "deprecate": (
        "deprecate acme/clock@<1.1.0 --message Old",
        ("POST", f"{CLOCK}/%3C1.1.0/deprecate", {"message": "Old"}),
    ),
    "unlist": ("unlist acme/clock", ("PATCH", CLOCK, {"listed": False})),
    "official": ("official acme/clock", ("PATCH", CLOCK, {"isOfficial": True})),
    "describe": (
        "describe acme/clock --description Time --icon=",
        ("PATCH", CLOCK, {"description": "Time", "icon": ""}),
    ),
}


@pytest.mark.parametrize(("line", "request_"), PAIRS.values(), ids=PAIRS)
def test_a_request_leaves_the_same_export_and_record_as_the_command(
    app_with: AppWith, line: str, request_: tuple[str, str, Any]
) -> None:
    state = {"yanked": True, "yankedReason": "Odd", "deprecationMessage": "Older"}
    versions = version("1.0.0", **state), version("1.1.0")
    catalog = document("acme/clock", *versions, icon="mdi:clock")
    local, remote = app_with(catalog), app_with(catalog)
    assert run(local, *line.split()).exit_code == 0
    method, path, body = request_
    response = remote.test_client().open(
        path,
        method=method,
        json=body,
        headers=bearer(create_token(remote, scopes=(), permissions=("admin",))),
    )
    assert response.status_code == 200
    assert exported(local) == exported(remote)
    keys = ("action", "scope", "name", "version", "before", "after")
    records = []
    for each in (local, remote):
        with each.extensions["database"].read() as connection:
            entries = read_entries(connection, ("acme", "clock"))
        records.append([[entry[key] for key in keys] for entry in entries])
    assert records[0] == records[1] != []


def test_a_version_that_is_named_often_changes_once(send: Send) -> None:
    named = ",".join(["1.0.0"] * 101)
    response = send("POST", f"{CLOCK}/{named},%3E%3D1/deprecate", {"message": "Old."})
    assert response.json == {
        "versions": [
            {"version": "acme/clock@1.0.0", "changed": True, "already": False},
            {"version": "acme/clock@1.1.0", "changed": True, "already": False},
        ],
        "previousLatestVersion": "1.1.0",
        "latestVersion": "1.1.0",
        "latestStableVersion": "1.1.0",
    }
