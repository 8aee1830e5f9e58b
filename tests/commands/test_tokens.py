"""widget-catalog token: creates, lists, revokes and rotates the tokens for publishing over HTTP."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta

import pytest
from builders import document
from conftest import error_message, run_line, running
from flask import Flask
from publishers import bearer, manifest

from catalog.domain.token_text import generate_token, token_id

AppWith = Callable[..., Flask]
PATTERN = r"wcat_[0-9A-Za-z]{57}"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(document("acme/clock"))


def create(app: Flask, options: str = "ci --scope acme") -> str:
    result = run_line(app, f"token create {options}")
    assert result.exit_code == 0, result.stderr
    text: str = result.stdout
    assert re.fullmatch(f"{PATTERN}\n", text)
    return text.strip()


def session(app: Flask, text: str) -> int:
    return app.test_client().get("/api/session", headers=bearer(text)).status_code


def listed(app: Flask) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run_line(app, "token list --json").stdout)
    return found


def test_a_token_is_valid_for_90_days_unless_told_otherwise(app: Flask) -> None:
    for options in (
        "a --scope acme",
        "b --scope acme --expires 12h",
        "c --can admin --expires never",
    ):
        assert session(app, create(app, options)) == 200
    lifetimes = [
        each["expiresAt"] and moment(each["expiresAt"]) - moment(each["createdAt"])
        for each in listed(app)
    ]
    assert lifetimes == [timedelta(days=90), timedelta(hours=12), None]


def moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def test_the_list_shows_each_token_and_its_last_use(app: Flask) -> None:
    text = create(app, "ci --scope acme,ops --can yank --can publish")
    create(app, "root --can admin,publish --expires never")
    session(app, text)
    lines = run_line(app, "token list").stdout.splitlines()
    cells = [re.split("  +", line) for line in lines]
    used = listed(app)[0]["lastUsedDay"]
    assert cells[1][:1] + cells[1][2:5] == ["ci", "active", "publish, yank", "acme, ops"]
    assert cells[1][-1] == used
    assert cells[2][:1] + cells[2][2:] == ["root", "active", "admin", "all", "never", "never"]


def test_a_token_for_widgets_publishes_yanks_and_describes_only_these(app: Flask) -> None:
    options = "--widget acme/clock --widget acme/clock --widget ops/new"
    text = create(app, f"ci {options} --can publish,yank,describe --scope labs")
    (shown,) = listed(app)
    assert (shown["scopes"], shown["widgets"]) == (["labs"], ["acme/clock", "ops/new"])
    line = run_line(app, "token list").stdout.splitlines()[1]
    assert "publish, yank, describe  labs, acme/clock, ops/new" in line
    whoami = app.test_client().get("/api/session", headers=bearer(text)).json
    assert whoami["widgets"] == ["acme/clock", "ops/new"]
    statuses = {
        widget: app.test_client()
        .patch(f"/api/widgets/{widget}", json={"icon": "mdi:bell"}, headers=bearer(text))
        .status_code
        for widget in ("acme/clock", "acme/notes", "ops/new", "ops/clock", "labs/any")
    }
    # A widget that does not exist is 404 for a token that may change it.
    assert statuses == {
        "acme/clock": 200,
        "acme/notes": 403,
        "ops/new": 404,
        "ops/clock": 403,
        "labs/any": 404,
    }


def test_a_use_is_written_once_a_day(app: Flask) -> None:
    text = create(app)
    counts = app.extensions["database"].write_counts
    before = counts.writes
    assert [session(app, text) for _ in range(3)] == [200] * 3
    assert counts.writes - before == 1
    assert listed(app)[0]["lastUsedDay"] is not None


def test_a_revoked_token_is_refused_at_once_and_its_name_stays_taken(app: Flask) -> None:
    text = create(app)
    assert session(app, text) == 200
    assert run_line(app, "token revoke ci").stderr == "The token ci is revoked.\n"
    assert session(app, text) == 401
    assert run_line(app, "token revoke ci").stderr == "The token ci is already revoked.\n"
    message = error_message(run_line(app, "token create ci --scope acme"))
    assert (
        message == "A token named 'ci' already exists and is revoked; token names cannot be reused."
    )
    assert error_message(run_line(app, "token rotate ci")).endswith("create a new one.")


def test_a_rotated_token_has_another_secret_and_the_same_rights(app: Flask) -> None:
    old = create(app, "ci --scope acme --can describe")
    result = run_line(app, "token rotate ci --expires 1d")
    new = result.stdout.strip()
    assert re.fullmatch(PATTERN, new)
    assert [session(app, text) for text in (old, new)] == [401, 200]
    (shown,) = listed(app)
    assert (shown["scopes"], shown["permissions"]) == (["acme"], ["describe"])
    assert moment(shown["expiresAt"]) - moment(shown["createdAt"]) == timedelta(days=1)


def test_with_an_overlap_the_old_secret_stays_valid_that_long(app: Flask) -> None:
    old = create(app, "ci --widget acme/clock")
    result = run_line(app, "token rotate ci --overlap 1h")
    new = result.stdout.strip()
    assert [session(app, text) for text in (old, new)] == [200, 200]
    (shown,) = listed(app)
    end = str(shown["previousExpiresAt"])
    assert moment(end) - moment(shown["createdAt"]) == timedelta(hours=1)
    assert result.stderr.endswith(f"The old secret is valid until {end}.\n")
    warning = f"The previous secret of the token ci is valid until {end}.\n"
    assert warning in run_line(app, "token list").stderr
    whoami = app.test_client().get("/api/session", headers=bearer(old)).json
    assert (whoami["id"], whoami["expiresAt"], whoami["widgets"]) == (
        *(old[5:13], end),
        ["acme/clock"],
    )
    # Another rotation ends the first secret at once.
    newest = run_line(app, "token rotate ci --overlap 2d").stdout.strip()
    assert [session(app, text) for text in (old, new, newest)] == [401, 200, 200]
    assert run_line(app, "token revoke ci").exit_code == 0
    assert [session(app, text) for text in (old, new, newest)] == [401] * 3


def test_a_job_with_the_old_secret_is_warned_and_told_when_the_overlap_has_ended(
    app: Flask,
) -> None:
    old = create(app)
    run_line(app, "token rotate ci --overlap 1h")
    end = listed(app)[0]["previousExpiresAt"]
    body = manifest("acme/clock", "2.0.0", bundleUrl="https://cdn.example.com/c.js")
    body |= {"bundleSize": 1, "sha256Hash": "0" * 64}
    client, path = app.test_client(), "/api/widgets/acme/clock/2.0.0"
    response = client.put(path, json=body, headers=bearer(old))
    assert f"the token ci was rotated; this secret expires at {end}" in response.json["warnings"]
    past = "UPDATE token SET previous_expires_at = '2025-01-01T00:00:00.000Z'"
    app.extensions["database"].transact(running(past))
    message = "The token ci was rotated, and this secret is no longer valid."
    assert client.get("/api/session", headers=bearer(old)).json == {"error": message}
    assert "previous secret" not in run_line(app, "token list").stderr


def test_an_overlap_does_not_extend_the_old_secret(app: Flask) -> None:
    create(app, "ci --scope acme --expires 1h")
    (before,) = listed(app)
    run_line(app, "token rotate ci --overlap 30d")
    (after,) = listed(app)
    assert after["previousExpiresAt"] == before["expiresAt"]
    run_line(app, "token rotate ci")
    assert listed(app)[0]["previousExpiresAt"] is None


def test_the_use_of_a_token_does_not_fail_if_its_day_cannot_be_written(app: Flask) -> None:
    text = create(app)
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON token BEGIN SELECT RAISE (ABORT, 'full'); END"
        )
    assert session(app, text) == 200


@pytest.mark.parametrize(
    "options",
    [
        "ci",
        "ci --can publish",
        "ci --scope acme --can admin",
        "ci --widget acme/clock --can admin",
        "ci --widget acme",
        "ci --widget acme/clock@1.0.0",
        "ci --scope acme --can publish,write",
        "ci --scope acme --can ''",
        "ci --scope a/b",
        "ci --scope acme --expires 0d",
        "ci --scope acme --expires 90",
        "ci --scope acme --expires 9999999d",
        "' ci' --scope acme",
        "'' --scope acme",
    ],
)
def test_wrong_usage_creates_nothing(app: Flask, options: str) -> None:
    result = run_line(app, f"token create {options}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert listed(app) == []


@pytest.mark.parametrize("overlap", ["never", "0h", "1", "''"])
def test_an_invalid_overlap_leaves_the_secret(app: Flask, overlap: str) -> None:
    text = create(app)
    assert run_line(app, f"token rotate ci --overlap {overlap}").exit_code == 2
    assert session(app, text) == 200


def test_an_unknown_name_is_reported(app: Flask) -> None:
    for action in ("revoke", "rotate"):
        assert error_message(run_line(app, f"token {action} x")) == "There is no token 'x'."


def test_quiet_may_stand_on_both_sides_of_the_command(app: Flask) -> None:
    for line in ("token -q list", "token list -q"):
        result = run_line(app, line)
        assert (result.exit_code, result.stderr) == (0, "")


def test_a_mistyped_token_is_known_without_the_database() -> None:
    id_, text = generate_token()
    assert token_id(text) == id_
    for position in range(len(text)):
        other = "0" if text[position] != "0" else "1"
        assert token_id(text[:position] + other + text[position + 1 :]) is None
    for wrong in ("", text[:-1], f"{text}0", f" {text}", text.upper(), text + "\n"):
        assert token_id(wrong) is None
