"""What a token may do: every route with every kind of token, for its own widgets and others."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count, product
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from builders import Json, document, png, version
from conftest import exported, run, running
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from publishers import FORM_TYPE, OPERATOR, bearer, create_token, form, manifest
from werkzeug.test import TestResponse

from catalog.api.internal.authentication import (
    MAX_ALL_FAILURES,
    MAX_FAILURES,
    WINDOW,
    FailedAttempts,
)
from catalog.domain.timestamps import format_timestamp
from catalog.store.connection.transaction import Transaction

AppWith = Callable[..., Flask]
CHALLENGE = 'Session realm="internal"'
UNAUTHORIZED = b'{"error":"This path is internal and needs a session."}\n'

# The path of a widget as Flask's routes have it.
WIDGET = "<scope>/<widget_name:name>"
# The permission that each endpoint needs, None for any valid token; method, path, body.
ENDPOINTS: dict[str, tuple[str | None, str, str, Json | None]] = {
    "session": (None, "GET", "/api/session", None),
    "audit": (None, "GET", "/api/audit", None),
    "publish": ("publish", "PUT", "/api/widgets/{widget}/2.0.0", {}),
    "yank": ("yank", "POST", "/api/widgets/{widget}/1.0.0/yank", {"reason": "Bad."}),
    "unyank": ("yank", "POST", "/api/widgets/{widget}/1.0.0/unyank", None),
    "deprecate": ("yank", "POST", "/api/widgets/{widget}/1.0.0/deprecate", {"message": "No"}),
    "undeprecate": ("yank", "POST", "/api/widgets/{widget}/1.0.0/undeprecate", None),
    "picture": ("describe", "PUT", "/api/widgets/{widget}/picture", None),
    "describe": ("describe", "PATCH", "/api/widgets/{widget}", {"icon": "mdi:bell"}),
    "unlist": ("describe", "PATCH", "/api/widgets/{widget}", {"listed": False}),
    "relist": ("describe", "PATCH", "/api/widgets/{widget}", {"listed": True}),
    "official": ("admin", "PATCH", "/api/widgets/{widget}", {"isOfficial": True}),
}
PERMISSIONS = ("publish", "yank", "describe")
# Who has the text of a token learns that it has ended.
ENDED = ["expired", "revoked"]
INVALID = ["none", "empty", "malformed", "mistyped", "unknown", "wrong", *ENDED]
ADDRESSES = count()
# Those of "widget" are for one widget, all others but admin for its scope.
VALID = [*PERMISSIONS, "all", "widget", "admin"]
WIDGETS = ("acme/clock", "acme/notes", "ops/clock")


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    catalogs = [document(widget, version()) for widget in WIDGETS]
    return app_with(*catalogs, BUNDLE_URL="https://cdn.example.com/{scope}/{name}/{version}.js")


@pytest.fixture
def texts(app: Flask) -> dict[str, str]:
    """The Authorization header for each kind of token."""
    good = create_token(app, "all")
    made = {name: create_token(app, name, permissions=(name,)) for name in PERMISSIONS}
    made["admin"] = create_token(app, "admin", (), ("admin",))
    made["widget"] = create_token(app, "widget", (), widgets=("acme/clock", "ops/none"))
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


def stored(app: Flask) -> list[Any]:
    """Return what a request could change: the catalog, the audit log and the stored files."""
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        tables = [
            connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("widget", "version", "about", "audit")
        ]
    return [*tables, [*app.extensions["bundles"].hashes()]]


def send(
    client: FlaskClient, kind: str, widget: str, authorization: str, query: str = ""
) -> TestResponse:
    _, method, path, body = ENDPOINTS[kind]
    content: Json = {"json": manifest_of(widget) if kind == "publish" else body}
    return client.open(
        path.format(widget=widget) + query,
        method=method,
        **({"data": png()} if kind == "picture" else content),
        headers={"Authorization": authorization} if authorization else {},
        # Another address for each request: too many failures of one are limited.
        environ_overrides={"REMOTE_ADDR": f"192.0.2.{next(ADDRESSES)}"},
    )


def expected_status(endpoint: str, holder: str, widget: str) -> int:
    needed = ENDPOINTS[endpoint][0]
    if holder in INVALID:
        return 401
    if holder == "admin" or needed is None:
        return 200
    has_permission = needed == holder or (holder in ("all", "widget") and needed != "admin")
    is_own = widget == "acme/clock" or (widget == "acme/notes" and holder != "widget")
    return 200 if has_permission and is_own else 403


def entries(app: Flask) -> list[Json]:
    """Return the record of changes, newest first."""
    recorded: list[Json] = json.loads(run(app, "log", "--json").stdout)
    return recorded[::-1]


def routes(app: Flask) -> set[tuple[str, str]]:
    """Return method and path of all internal routes, each alternative of a path by itself."""
    found = set()
    for rule in app.url_map.iter_rules():
        if not rule.endpoint.startswith("internal."):
            continue
        named = re.search(r"<any\((.*)\):\w+>", rule.rule)
        for each in named[1].split(", ") if named else [""]:
            path = rule.rule.replace(named[0], each) if named else rule.rule
            found |= {(method, path) for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    return found


def test_the_table_has_every_internal_route(app: Flask) -> None:
    paths = {
        (method, re.sub("/1.0.0|/2.0.0", "/<version>", path.format(widget=WIDGET)))
        for _, method, path, _ in ENDPOINTS.values()
    }
    # This one exchanges an id token and needs no other.
    assert paths | {("POST", "/api/session")} == routes(app)


def test_every_route_with_every_kind_of_token_for_every_widget(
    app: Flask, texts: dict[str, str]
) -> None:
    client, before = app.test_client(), stored(app)
    for endpoint, token, widget in [
        *product(ENDPOINTS, INVALID, WIDGETS[:1]),
        *product(ENDPOINTS, VALID, WIDGETS),
    ]:
        response = send(client, endpoint, widget, texts[token])
        expected = expected_status(endpoint, token, widget)
        status = 200 if response.status_code == 201 else response.status_code
        assert status == expected, (endpoint, token, widget, response.data)
        assert "Access-Control-Allow-Origin" not in response.headers
        if expected == 401:
            ending = "is revoked" if token == ENDED[1] else "has expired"
            known = f'{{"error":"The token {token} {ending}."}}\n'.encode()
            assert response.data == (known if token in ENDED else UNAUTHORIZED)
            assert response.headers["WWW-Authenticate"] == CHALLENGE
        else:
            assert response.headers["Cache-Control"] == "no-store"
        after = stored(app)
        assert expected == 200 or after == before, (endpoint, token, widget)
        before = after


@pytest.mark.parametrize("value", ["banana", "", "1", "TRUE&dryRun=true", "false&dryRun=x"])
def test_an_invalid_dry_run_is_refused_by_every_route(
    app: Flask, texts: dict[str, str], value: str
) -> None:
    before, client = stored(app), app.test_client()
    for endpoint in ENDPOINTS:
        query = f"?dryRun={value}"
        response = send(client, endpoint, "acme/clock", texts["admin"], query)
        assert response.status_code == 400, endpoint
        assert "dryRun must be true or false, not '" in response.json["error"]
    assert stored(app) == before


def test_a_dry_run_of_every_route_succeeds_and_changes_nothing(
    app: Flask, texts: dict[str, str]
) -> None:
    before, client = stored(app), app.test_client()
    for endpoint in ENDPOINTS:
        response = send(client, endpoint, "acme/clock", texts["admin"], "?dryRun=True")
        assert response.status_code == 200, (endpoint, response.data)
    assert stored(app) == before


@pytest.mark.parametrize(
    ("endpoint", "token", "widget", "missing"),
    [
        ("yank", "publish", "acme/clock", "publish does not have the yank permission."),
        ("publish", "publish", "ops/clock", "publish is not valid for the scope 'ops'."),
        ("publish", "widget", "acme/notes", "widget is not valid for the widget 'acme/notes'."),
        ("official", "all", "acme/clock", "all needs the admin permission to set isOfficial."),
    ],
)
def test_a_refusal_names_what_is_missing(
    app: Flask, texts: dict[str, str], endpoint: str, token: str, widget: str, missing: str
) -> None:
    response = send(app.test_client(), endpoint, widget, texts[token])
    assert (response.status_code, response.json) == (403, {"error": f"The token {missing}"})


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
            "/api/widgets/acme/clock/2.0.0", json=manifest_of("acme/clock"), headers=bearer(text)
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


def manifest_of(widget: str) -> Json:
    return manifest(widget, "2.0.0", bundleSize=1, sha256Hash="0" * 64)


# Spellings of both scopes and of their widgets. Most requests are valid for one of the two.
SCOPES = st.sampled_from(["acme", "ops", "%6Fps", "acme%2F..%2Fops"])
NAMES = st.sampled_from(["clock", "clock", "clock", "..%2Fops%2Fclock"])
# The method, the end of the path and the body of a change.
CHANGES = st.sampled_from(
    [
        ("PUT", "/2.0.0", manifest_of("acme/clock")),
        ("PUT", "/2.0.0", manifest_of("ops/clock")),
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


@example(requests=[(("PUT", "/2.0.0", manifest_of("ops/clock")), "acme", "clock")])
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
        "widgets": [],
        "permissions": ["publish", "yank"],
        "expiresAt": None,
    }


def test_a_token_for_widgets_reads_the_audit_log_of_these_widgets(
    app: Flask, texts: dict[str, str]
) -> None:
    client, admin = app.test_client(), {"Authorization": texts["admin"]}
    for widget in WIDGETS:
        client.patch(f"/api/widgets/{widget}", json={"listed": False}, headers=admin)
    own = {"Authorization": texts["widget"]}
    (entry,) = client.get("/api/audit", headers=own).json["entries"]
    assert (entry["scope"], entry["name"], entry["action"]) == ("acme", "clock", "unlist")
    assert client.get("/api/audit?widget=acme/clock", headers=own).json["entries"] == [entry]
    refused = client.get("/api/audit?widget=acme/notes", headers=own)
    message = "The token widget is not valid for the widget 'acme/notes'."
    assert (refused.status_code, refused.json) == (403, {"error": message})


def test_the_record_is_read_in_pages_by_those_with_rights_to_it(
    app: Flask, texts: dict[str, str]
) -> None:
    client, admin = app.test_client(), {"Authorization": texts["admin"]}
    for widget in ("acme/clock", "ops/clock"):
        client.patch(f"/api/widgets/{widget}", json={"listed": False}, headers=admin)
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
