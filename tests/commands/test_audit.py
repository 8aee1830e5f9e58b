"""The record of changes: every change is in it, and nothing is removed from it."""

import json
import os
import pwd
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import Json, document, version
from conftest import exported, run, run_line
from flask import Flask
from mirrors import mirror_summary
from publishers import OPERATOR, bearer, create_token, manifest
from upstreams import FakeUpstream

from catalog.domain.token_text import hash_token
from catalog.store.write import tokens

AppWith = Callable[..., Flask]
USER = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
TIME = "2025-01-02T03:04:05.000Z"


@pytest.fixture
def app(app_with: AppWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flask:
    monkeypatch.chdir(tmp_path)
    Path("clock.json").write_text(json.dumps(manifest(number="3.0.0")))
    Path("clock.js").write_text("export default 1\n")
    later = version("2.0.0", yanked=True, yankedReason="Bad", deprecationMessage="Old")
    return app_with(document("acme/clock", version(), later, isOfficial=False))


def log(app: Flask, *options: str) -> list[Json]:
    result = run(app, "log", "--json", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    entries: list[Json] = json.loads(result.stdout)
    return entries


NOT_YANKED = {"yanked": False, "yankedReason": None}
YANKED = {"yanked": True, "yankedReason": "Bad"}
STATE = {**NOT_YANKED, "deprecationMessage": None}
SHA256 = version()["sha256Hash"]
DESCRIBED = {"displayName": "Clock", "description": None, "icon": None}
# Each command, with the action, the version, before and after that it must leave.
CHANGES: dict[str, tuple[str, str | None, Json | None, Json | None]] = {
    "yank acme/clock@1.0.0 --reason Bad": ("yank", "1.0.0", NOT_YANKED, YANKED),
    "unyank acme/clock@2.0.0": ("unyank", "2.0.0", YANKED, NOT_YANKED),
    "deprecate acme/clock@1.0.0 --message Old": (
        "deprecate",
        "1.0.0",
        {"deprecationMessage": None},
        {"deprecationMessage": "Old"},
    ),
    "undeprecate acme/clock@2.0.0": (
        "undeprecate",
        "2.0.0",
        {"deprecationMessage": "Old"},
        {"deprecationMessage": None},
    ),
    "unlist acme/clock": ("unlist", None, {"listed": True}, {"listed": False}),
    "official acme/clock": ("official", None, {"isOfficial": False}, {"isOfficial": True}),
    "describe acme/clock --icon a:b": ("describe", None, DESCRIBED, {**DESCRIBED, "icon": "a:b"}),
    "delete acme/clock@1.0.0 --yes": ("delete", "1.0.0", {"sha256Hash": SHA256, **STATE}, None),
    "delete acme/clock --yes": (
        "delete",
        None,
        {"listed": True, "downloadCount": None, "versions": 2},
        None,
    ),
}


@pytest.mark.parametrize("line", CHANGES)
def test_a_command_records_who_changed_what(app: Flask, line: str) -> None:
    assert run_line(app, line).exit_code == 0
    action, number, before, after = CHANGES[line]
    (entry,) = log(app)
    assert {**entry, "at": TIME} == {
        "id": 1,
        "at": TIME,
        "kind": "local",
        "actor": USER,
        "action": action,
        "scope": "acme",
        "name": "clock",
        "version": number,
        "before": before,
        "after": after,
    }
    # The same again changes nothing, and is not recorded.
    run_line(app, line)
    assert len(log(app)) == 1


@pytest.mark.parametrize(
    "line", ["yank acme/clock@* --dry-run", "deprecate acme/clock@* --message x --dry-run"]
)
def test_a_dry_run_is_not_recorded(app: Flask, line: str) -> None:
    assert run_line(app, line).exit_code == 0
    assert log(app) == []


def test_publishing_is_recorded_with_the_hash(app: Flask) -> None:
    assert run_line(app, "publish clock.json clock.js --store").exit_code == 0
    (entry,) = log(app, "acme/clock")
    assert (entry["action"], entry["version"], entry["before"]) == ("publish", "3.0.0", None)
    assert (entry["after"]["bundleSize"], entry["after"]["stored"]) == (17, True)
    url = "--bundle-url https://cdn.example.com/x.js"
    Path("clock.json").write_text(json.dumps(manifest(number="4.0.0")))
    run_line(app, f"publish clock.json clock.js {url}")
    run_line(app, f"publish clock.json clock.js {url} --store")
    assert [each["action"] for each in log(app)] == ["publish", "publish", "store"]


def test_an_import_records_its_size_and_every_state_that_it_changes(app: Flask) -> None:
    changed = document("acme/clock", version(yanked=True), listed=False, isOfficial=False)
    lines = [json.dumps(each) for each in (changed, document("acme/notes", version()))]
    Path("more.jsonl").write_text("\n".join(lines))
    assert run_line(app, "import more.jsonl --prune --yes").exit_code == 0
    entries = log(app)
    assert {entry["action"] for entry in entries} == {"import"}
    found = [(entry["version"], entry["before"], entry["after"]) for entry in entries]
    deprecated = {"yanked": True, "yankedReason": "Bad", "deprecationMessage": "Old"}
    assert found == [
        (None, {"listed": True}, {"listed": False}),
        ("1.0.0", STATE, {**STATE, "yanked": True}),
        (None, None, {"widgets": 2, "versions": 2}),
        ("2.0.0", {"sha256Hash": SHA256, **deprecated}, None),
    ]
    run_line(app, "import more.jsonl --prune --yes")
    assert len(log(app)) == 4


def test_a_mirror_records_each_batch(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", version()))
    mirror_summary(mirror_app, upstream.url)
    (entry,) = log(mirror_app)
    assert (entry["action"], entry["scope"]) == ("mirror", None)
    assert entry["after"] == {"source": upstream.url, "added": 1, "changed": 0}
    mirror_summary(mirror_app, upstream.url)
    assert len(log(mirror_app)) == 1


def test_a_mirror_records_every_state_that_it_changes(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock", version(), version("2.0.0")))
    mirror_summary(mirror_app, upstream.url)
    run_line(mirror_app, "unlist acme/clock")
    upstream.put(document("acme/clock", version(yanked=True)))
    mirror_summary(mirror_app, upstream.url)
    found = [
        (entry["action"], entry["version"], entry["before"], entry["after"])
        for entry in log(mirror_app, "acme/clock")
    ]
    assert found[1:] == [
        ("mirror", None, {"listed": False}, {"listed": True}),
        ("mirror", "1.0.0", STATE, {**STATE, "yanked": True}),
        ("mirror", "2.0.0", {"sha256Hash": SHA256, **STATE}, None),
    ]
    upstream.put(document("acme/notes"))
    del upstream.documents["acme/clock"]
    mirror_summary(mirror_app, upstream.url)
    last = log(mirror_app, "acme/clock")[-1]
    assert (last["action"], last["before"], last["after"]) == (
        "mirror",
        {"listed": True},
        {"listed": False},
    )


def test_an_install_is_not_recorded(app: Flask) -> None:
    assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == 200
    assert log(app) == []


def test_tokens_are_recorded_without_their_secrets(app: Flask) -> None:
    text = run_line(app, "token create ci --scope acme").stdout.strip()
    new = run_line(app, "token rotate ci --expires never").stdout.strip()
    run_line(app, "token revoke ci")
    output = run_line(app, "log --json").stdout
    entries = json.loads(output)
    actions = [entry["action"] for entry in entries]
    assert actions == ["create token", "rotate token", "revoke token"]
    assert entries[1]["before"]["id"] == text[5:13]
    assert entries[1]["after"] == {
        "token": "ci",
        "id": new[5:13],
        "scopes": ["acme"],
        "widgets": [],
        "permissions": ["publish"],
        "expiresAt": None,
    }
    assert text[13:] not in output
    assert new[13:] not in output


def test_the_log_shows_one_line_for_each_change(app: Flask) -> None:
    headers = bearer(create_token(app))
    run_line(app, "unlist acme/clock")
    client = app.test_client()
    body = {"reason": "Bad\nreally"}
    client.post("/api/widgets/acme/clock/1.0.0/yank", json=body, headers=headers)
    result = run_line(app, "log acme/clock")
    lines = [line.split("  ", 1)[1] for line in result.stdout.splitlines()]
    assert lines == [
        f"{USER}  unlist  acme/clock  listed: true -> false",
        "token ci  yank  acme/clock@1.0.0  yanked: false -> true; "
        'yankedReason: null -> "Bad\\nreally"',
    ]


def test_since_selects_the_changes_from_a_time_on(app: Flask) -> None:
    run_line(app, "unlist acme/clock")
    run_line(app, "relist acme/clock")
    first, second = log(app)
    assert log(app, "--since", first["at"]) == [first, second]
    assert log(app, "--since", "9999-01-01T00:00:00Z") == []
    result = run_line(app, "log --since yesterday")
    assert result.exit_code == 2


def assert_append_only(app: Flask, statement: str) -> None:
    """The statement must fail, and change nothing."""
    before = log(app)
    with (
        closing(sqlite3.connect(app.config["DATABASE"], isolation_level=None)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="audit is append-only"),
    ):
        connection.execute(statement)
    assert log(app) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET actor = 'nobody'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT * FROM audit",
        "REPLACE INTO audit (id, at, kind, actor, action) VALUES (1, '', 'local', '', '')",
    ],
)
def test_no_statement_changes_or_removes_an_entry(app: Flask, statement: str) -> None:
    run_line(app, "unlist acme/clock")
    assert_append_only(app, statement)


def test_a_backup_contains_tokens_and_record_and_nothing_else_does(app: Flask) -> None:
    text = create_token(app)
    run_line(app, "unlist acme/clock")
    assert run_line(app, "backup copy.db").exit_code == 0
    assert run_line(app, "pack all.pack").exit_code == 0
    with closing(sqlite3.connect("copy.db")) as connection:
        assert connection.execute("SELECT name FROM token").fetchall() == [("ci",)]
        assert connection.execute("SELECT count(*) FROM audit").fetchone() == (2,)
    for content in (exported(app), Path("all.pack").read_bytes()):
        assert hash_token(text).encode() not in content
        assert b"unlist" not in content
        assert text[5:13].encode() not in content


@pytest.mark.parametrize("line", ["restore older.db --yes", "unpack older.pack --yes"])
def test_a_restored_catalog_keeps_its_tokens_and_its_record(app: Flask, line: str) -> None:
    text = create_token(app)
    assert run_line(app, "backup older.db").exit_code == 0
    assert run_line(app, "pack older.pack").exit_code == 0
    run_line(app, "unlist acme/clock")
    tokens.revoke_token(app.extensions["database"], OPERATOR, "ci")
    assert run_line(app, line).exit_code == 0
    entries = log(app)
    actions = [entry["action"] for entry in entries]
    assert actions == ["create token", "unlist", "revoke token", line.split()[0]]
    assert entries[-1]["after"] == {"widgets": 1, "versions": 2}
    # The backup was made before it was revoked.
    client = app.test_client()
    assert client.get("/api/session", headers=bearer(text)).status_code == 401
    assert_append_only(app, "DELETE FROM audit")


def test_a_new_catalog_gets_tokens_and_record_of_the_backup(app: Flask, app_with: AppWith) -> None:
    text = create_token(app)
    run_line(app, "backup older.db")
    other = app_with()
    assert run_line(other, "restore older.db --yes").exit_code == 0
    assert other.test_client().get("/api/session", headers=bearer(text)).status_code == 200
    assert [entry["action"] for entry in log(other)] == ["create token", "restore"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("log", "The audit log has no entries.\n"),
        ("log acme/clock", "The audit log has no entries for acme/clock.\n"),
        ("log --quiet", ""),
    ],
)
def test_a_log_without_a_change_says_so(app_with: AppWith, line: str, message: str) -> None:
    result = run_line(app_with(), line)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", message)
