"""What a token may do: every endpoint with every kind of token, in its own scope and in another."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count, product
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from builders import Json, document, version
from conftest import exported, run, running
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from publishers import FORM_TYPE, OPERATOR, bearer, create_token, form, manifest

from catalog.api.authentication import MAX_ALL_FAILURES, MAX_FAILURES, WINDOW, FailedAttempts
from catalog.store.connection.transaction import Transaction
from catalog.validators import format_timestamp

AppWith = Callable[..., Flask]
CHALLENGE = 'Session realm="internal"'
UNAUTHORIZED = b'{"error":"This path is internal and needs a session."}\n'

# The permission that each endpoint needs, None for any valid token; method, path, body.
ENDPOINTS: dict[str, tuple[str | None, str, str, Json | None]] = {
    "session": (None, "GET", "/api/session", None),
    "audit": (None, "GET", "/api/audit", None),
    "publish": ("publish", "PUT", "/api/widgets/{scope}/clock/2.0.0", {}),
    "yank": ("yank", "POST", "/api/widgets/{scope}/clock/1.0.0/yank", {"reason": "Bad."}),
    "unyank": ("yank", "POST", "/api/widgets/{scope}/clock/1.0.0/unyank", None),
    "deprecate": ("yank", "POST", "/api/widgets/{scope}/clock/1.0.0/deprecate", {"message": "No"}),
    "undeprecate": ("yank", "POST", "/api/widgets/{scope}/clock/1.0.0/undeprecate", None),
    "describe": ("describe", "PATCH", "/api/widgets/{scope}/clock", {"icon": "mdi:bell"}),
    "unlist": ("describe", "PATCH", "/api/widgets/{scope}/clock", {"listed": False}),
    "relist": ("describe", "PATCH", "/api/widgets/{scope}/clock", {"listed": True}),
    "official": ("admin", "PATCH", "/api/widgets/{scope}/clock", {"isOfficial": True}),
}
PERMISSIONS = ("publish", "yank", "describe")
# Who has the text of a token learns that it has ended.
ENDED = ["expired", "revoked"]
INVALID = ["none", "empty", "malformed", "mistyped", "unknown", "wrong", *ENDED]
ADDRESSES = count()
VALID = [*PERMISSIONS, "all", "admin"]


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    catalogs = [document(f"{scope}/clock", version()) for scope in ("acme", "ops")]
    return app_with(*catalogs, BUNDLE_URL="https://cdn.example.com/{scope}/{name}/{version}.js")


@pytest.fixture
def texts(app: Flask) -> dict[str, str]:
    """The Authorization header for each kind of token; all of them are for the scope acme."""
    good = create_token(app, "all")
    made = {name: create_token(app, name, permissions=(name,)) for name in PERMISSIONS}
    made["admin"] = create_token(app, "admin", (), ("admin",))
    made["expired"] = create_token(app, "expired", lifetime=timedelta(0))
    made["revoked"] = create_token(app, "revoked")
    assert run(app, "token", "revoke", "revoked").exit_code == 0
    made |= {name: create_token(app, name) for name in ("unknown", "wrong")}
    made["mistyped"] = good[:-1] + ("a" if good[-1] != "a" else "b")
    change_tokens(app, "DELETE FROM token WHERE name = 'unknown'")
    # The id of a valid token with another secret.
    change_tokens(app, f"UPDATE token SET sha256_hash = '{'0' * 64}' WHERE name = 'wrong'")
    headers = {name: f"Bearer {text}" for name, text in {**made, "all": good}.items()}
    return headers | {"none": "", "empty": "Bearer ", "malformed": "Bearer x"}


def change_tokens(app: Flask, statement: str) -> None:
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection, connection:
        connection.execute(statement)


def stored(app: Flask) -> list[list[tuple[object, ...]]]:
    """Return what a request could change: the catalog and the record."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        return [
            connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("widget", "version", "audit")
        ]


def send(client: FlaskClient, kind: str, scope: str, authorization: str) -> Any:
    _, method, path, body = ENDPOINTS[kind]
    return client.open(
        path.format(scope=scope),
        method=method,
        json=manifest_of(scope) if kind == "publish" else body,
        headers={"Authorization": authorization} if authorization else {},
        # Another address for each request: too many failures of one are limited.
        environ_overrides={"REMOTE_ADDR": f"192.0.2.{next(ADDRESSES)}"},
    )


def expected_status(endpoint: str, holder: str, scope: str) -> int:
    needed = ENDPOINTS[endpoint][0]
    if holder in INVALID:
        return 401
    if holder == "admin" or needed is None:
        return 200
    has_permission = needed == holder or (holder == "all" and needed != "admin")
    return 200 if has_permission and scope == "acme" else 403


def entries(app: Flask) -> list[Json]:
    """Return the record of changes, newest first."""
    recorded: list[Json] = json.loads(run(app, "log", "--json").stdout)
    return recorded[::-1]


def test_every_endpoint_with_every_kind_of_token_in_both_scopes(
    app: Flask, texts: dict[str, str]
) -> None:
    client = app.test_client()
    for endpoint, token, scope in product(ENDPOINTS, [*INVALID, *VALID], ("acme", "ops")):
        before = stored(app)
        response = send(client, endpoint, scope, texts[token])
        expected = expected_status(endpoint, token, scope)
        status = 200 if response.status_code == 201 else response.status_code
        assert status == expected, (endpoint, token, scope, response.data)
        assert "Access-Control-Allow-Origin" not in response.headers
        if expected == 401:
            known = f'{{"error":"The token {token} is {token}."}}\n'.encode()
            assert response.data == (known if token in ENDED else UNAUTHORIZED)
            assert response.headers["WWW-Authenticate"] == CHALLENGE
        else:
            assert response.headers["Cache-Control"] == "no-store"
        if expected != 200:
            assert stored(app) == before, (endpoint, token, scope)


@pytest.mark.parametrize(
    ("endpoint", "token", "scope", "missing"),
    [
        ("yank", "publish", "acme", "The token publish does not have the permission yank."),
        ("publish", "publish", "ops", "The token publish is not for the scope 'ops'."),
        ("official", "all", "acme", "The token all needs the permission admin for isOfficial."),
    ],
)
def test_a_refusal_names_what_is_missing(
    app: Flask, texts: dict[str, str], endpoint: str, token: str, scope: str, missing: str
) -> None:
    response = send(app.test_client(), endpoint, scope, texts[token])
    assert (response.status_code, response.json) == (403, {"error": missing})


@pytest.mark.parametrize("path", ["/api/me", "/api/widgets/acme", "/api/session/"])
def test_an_unknown_internal_path_is_404_with_a_token(
    app: Flask, texts: dict[str, str], path: str
) -> None:
    headers = {"Authorization": texts["publish"]}
    for method in ("GET", "PUT", "FOO"):
        assert app.test_client().open(path, method=method, headers=headers).status_code == 404


# Spellings of the path of a widget, with the status for a token of the scope acme.
SPELLINGS = {
    "/api/widgets/%61cme/clock": 200,
    "/api/widgets/acme%2Fclock": 200,
    "//api/widgets/ops/clock": 403,
    "/api/widgets/ops%2Fclock": 403,
    "/api/widgets/acme%0A/clock": 403,
    "/api/widgets/ACME/clock": 403,
    "/api/widgets/acme%00/clock": 403,
    "/api/widgets/acme/../ops/clock": 404,
    "/api/widgets//clock": 404,
    "/api/widgets/ops/clock/": 404,
}


@pytest.mark.parametrize(("path", "expected"), SPELLINGS.items())
def test_another_spelling_of_a_path_needs_the_right_for_what_it_names(
    app: Flask, texts: dict[str, str], path: str, expected: int
) -> None:
    # Not the url of the client, which would normalize the path.
    response = app.test_client().patch(
        "/",
        environ_overrides={"PATH_INFO": unquote_to_bytes(path).decode("latin-1")},
        json={"listed": False},
        headers={"Authorization": texts["describe"]},
    )
    assert response.status_code == expected
    (changed,) = [entry["scope"] for entry in entries(app) if entry["scope"]] or ["nothing"]
    assert changed == ("acme" if expected == 200 else "nothing")


@pytest.mark.parametrize(
    ("age", "lifetime", "warns"),
    [(80, 90, True), (70, 90, False), (80, None, False), (1, 10, False)],
)
def test_a_publish_with_a_token_that_expires_soon_warns(
    app: Flask, age: int, lifetime: int | None, warns: bool
) -> None:
    text = create_token(app, lifetime=None)
    created = datetime.now(UTC) - timedelta(days=age)
    end = format_timestamp(created + timedelta(days=lifetime)) if lifetime else None
    values = {"created": format_timestamp(created), "end": end}
    aging = "UPDATE token SET created_at = :created, expires_at = :end"
    app.extensions["database"].transact(running(aging, values))
    for _ in range(2):
        response = app.test_client().put(
            "/api/widgets/acme/clock/2.0.0", json=manifest_of("acme"), headers=bearer(text)
        )
        expected = [f"the token ci expires at {end}"] if warns else []
        assert response.json["warnings"] == expected
    listed = run(app, "token", "list").stderr.splitlines()
    assert listed == [*(f"Warning: {each}." for each in expected), "1 token."]


@pytest.mark.parametrize(
    ("token", "content", "status"),
    [
        ("all", manifest("acme/new", isOfficial=True), 403),
        ("admin", manifest("acme/new", isOfficial=True), 201),
        ("all", manifest("ops/new"), 400),
    ],
    ids=["official", "official by admin", "of another scope than the path"],
)
def test_manifest_needs_the_rights_of_its_fields(
    app: Flask, texts: dict[str, str], token: str, content: Json, status: int
) -> None:
    response = app.test_client().put(
        "/api/widgets/acme/new/1.0.0",
        data=form(content),
        content_type=FORM_TYPE,
        headers={"Authorization": texts[token]},
    )
    assert response.status_code == status


def manifest_of(scope: str) -> Json:
    return manifest(f"{scope}/clock", "2.0.0", bundleSize=1, sha256Hash="0" * 64)


# Spellings of both scopes and of their widgets. Most requests are valid for one of the two.
SCOPES = st.sampled_from(["acme", "ops", "%6Fps", "acme%2F..%2Fops"])
NAMES = st.sampled_from(["clock", "clock", "clock", "..%2Fops%2Fclock"])
# The method, the end of the path and the body of a change.
CHANGES = st.sampled_from(
    [
        ("PUT", "/2.0.0", manifest_of("acme")),
        ("PUT", "/2.0.0", manifest_of("ops")),
        ("POST", "/*/yank", {"reason": "Bad."}),
        ("POST", "/1.x/unyank", {}),
        ("POST", "/1.0.0/deprecate", {"message": "Old."}),
        ("POST", "/1.0.0/undeprecate", {}),
        ("PATCH", "", {"listed": False}),
        ("PATCH", "", {"description": "Mine."}),
        ("PATCH", "", {"scope": "ops", "listed": False}),
        ("DELETE", "", {}),
    ]
)


@example(requests=[(("PUT", "/2.0.0", manifest_of("ops")), "acme", "clock")])
@given(requests=st.lists(st.tuples(CHANGES, SCOPES, NAMES), min_size=1, max_size=8))
@settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_sequence_of_requests_with_a_token_of_one_scope_changes_another(
    app: Flask, requests: list[Any]
) -> None:
    # Examples share the catalog.
    text = create_token(app, f"ci-{next(ADDRESSES)}")
    client = app.test_client()

    def others() -> list[bytes]:
        lines = exported(app).splitlines()
        return [line for line in lines if json.loads(line)["widget"]["scope"] == "ops"]

    before = others()
    assert len(before) == 1
    for (method, end, body), scope, name in requests:
        path = f"/api/widgets/{scope}/{name}{end}"
        client.open(path, method=method, json=body, headers=bearer(text))
    assert others() == before
    assert {entry["scope"] for entry in entries(app)} <= {None, "acme"}


def statuses_of_failures(client: FlaskClient, count: int, address: str) -> list[int]:
    """Send wrong tokens, from the address with the number of the request in it."""
    return [
        client.get(
            "/api/session",
            headers=bearer("x"),
            environ_overrides={"REMOTE_ADDR": address.format(f"{number:x}")},
        ).status_code
        for number in range(count)
    ]


def test_wrong_tokens_are_limited_by_address_and_a_valid_one_is_not(app: Flask) -> None:
    client, good = app.test_client(), bearer(create_token(app))
    statuses = statuses_of_failures(client, MAX_FAILURES + 1, "127.0.0.1")
    assert statuses == [401] * MAX_FAILURES + [429]
    limited = client.get("/api/session", headers=bearer("x"))
    assert 1 <= int(limited.headers["Retry-After"]) <= 61
    assert client.get("/api/session", headers=good).status_code == 200
    assert client.get("/api/session").data == UNAUTHORIZED
    assert statuses_of_failures(client, 1, "192.0.2.7") == [401]


def test_wrong_tokens_are_limited_in_total(app: Flask) -> None:
    client, good = app.test_client(), bearer(create_token(app))
    statuses = statuses_of_failures(client, MAX_ALL_FAILURES + 1, "2001:db8:{}::1")
    assert statuses == [401] * MAX_ALL_FAILURES + [429]
    assert client.get("/api/session", headers=good).status_code == 200


def test_wrong_tokens_are_no_longer_limited_when_the_minute_has_passed(app: Flask) -> None:
    seconds = 1000.0
    app.extensions["failed_attempts"] = FailedAttempts(lambda: seconds)
    client, _ = app.test_client(), create_token(app)
    assert statuses_of_failures(client, MAX_FAILURES + 1, "127.0.0.1")[-1] == 429
    seconds += WINDOW - 0.1
    assert statuses_of_failures(client, 1, "127.0.0.1") == [429]
    seconds += 0.1
    statuses = statuses_of_failures(client, MAX_FAILURES + 1, "127.0.0.1")
    assert statuses == [401] * MAX_FAILURES + [429]


def test_without_any_token_nothing_is_limited(app: Flask) -> None:
    statuses = statuses_of_failures(app.test_client(), MAX_FAILURES + 5, "127.0.0.1")
    assert set(statuses) == {401}


def test_the_session_says_who_the_token_is(app: Flask) -> None:
    text = create_token(app, scopes=("acme", "ops"), permissions=("publish", "yank"), lifetime=None)
    response = app.test_client().get("/api/session", headers=bearer(text))
    assert response.json == {
        "token": "ci",
        "id": text[5:13],
        "scopes": ["acme", "ops"],
        "permissions": ["publish", "yank"],
        "expiresAt": None,
    }


def test_the_record_is_read_in_pages_by_those_with_rights_to_it(
    app: Flask, texts: dict[str, str]
) -> None:
    client, admin = app.test_client(), {"Authorization": texts["admin"]}
    for scope in ("acme", "ops"):
        client.patch(f"/api/widgets/{scope}/clock", json={"listed": False}, headers=admin)
    recorded = entries(app)
    (first,) = client.get("/api/audit?limit=1", headers=admin).json["entries"]
    assert json.dumps(first) == json.dumps(recorded[0])
    assert (first["kind"], first["actor"], first["action"]) == ("token", "admin", "unlist")
    assert (first["before"], first["after"]) == ({"listed": True}, {"listed": False})
    rest = client.get(f"/api/audit?before={first['id']}", headers=admin).json["entries"]
    assert rest == recorded[1:]
    own = {"Authorization": texts["publish"]}
    assert client.get("/api/audit", headers=own).json == {"entries": recorded[1:2]}
    assert client.get("/api/audit?widget=acme/clock", headers=own).json["entries"] == recorded[1:2]
    assert client.get("/api/audit?widget=ops/clock", headers=own).status_code == 403
    for invalid in (
        "limit=x",
        "limit=0",
        "limit=1_0",
        "limit=%D9%A1",
        "widget=ops",
        "since=yesterday",
        "before=x",
    ):
        assert client.get(f"/api/audit?{invalid}", headers=admin).status_code == 400


def test_a_page_of_the_record_has_at_most_a_hundred_entries(
    app: Flask, texts: dict[str, str]
) -> None:
    def record(transaction: Transaction) -> None:
        for _ in range(120):
            transaction.record("import")

    app.extensions["database"].transact(record, OPERATOR)
    admin = {"Authorization": texts["admin"]}
    shown = app.test_client().get("/api/audit?limit=1000", headers=admin).json["entries"]
    assert shown == entries(app)[:100]
