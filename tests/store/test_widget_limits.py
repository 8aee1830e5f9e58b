"""The limits of a whole widget hold whichever way it grows: 10,000 versions, 16 MiB as JSON."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from builders import Json, document, version
from conftest import create_catalog, error_message, exported, put, run, run_on, write_database
from flask import Flask
from mirrors import run_mirror
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from upstreams import FakeUpstream

from app import create_app
from catalog.domain.changes import TooLargeError
from catalog.files.checked_documents import BATCH_SIZE
from catalog.store.schema.derived import raise_if_too_large

AppWith = Callable[..., Flask]
CLOCK = "/api/widgets/acme/clock"
ALLOWED = "at most 10000 versions and 16777216 bytes are allowed"


def versions(count: int, major: int = 1, **fields: object) -> list[Json]:
    return [version(f"{major}.{number}.0", **fields) for number in range(count)]


def detail_size(app: Flask) -> int:
    return len(app.test_client().get("/api/v1/widgets/acme/clock").data)


def assert_refused(app: Flask, *arguments: str, stdin: str | None = None, count: int) -> None:
    """Run a command that must be refused with a sentence, and change nothing."""
    before = exported(app)
    message = error_message(run(app, *arguments, stdin=stdin))
    beginning, _, end = message.partition(" bytes as JSON); ")
    name, _, size = beginning.partition(f" is too large ({count} versions, ")
    assert (name, size.isdecimal(), end) == ("acme/clock", True, f"{ALLOWED}.")
    assert exported(app) == before
    assert run(app, "check").exit_code == 0


# A widget can have 255 versions with release notes of this length.
LONG_NOTES = "x" * 65_536


def test_a_second_import_does_not_make_a_widget_larger_than_allowed(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", *versions(150, releaseNotes=LONG_NOTES)))
    more = document("acme/clock", *versions(150, major=2, releaseNotes=LONG_NOTES))
    content = "\n".join(map(json.dumps, [document("acme/notes"), more]))
    assert_refused(app, "import", "-", stdin=content, count=300)
    put(app, document("acme/clock", *versions(100, major=2, releaseNotes=LONG_NOTES)))
    assert exported(app).count(b'"bundleUrl"') == 250


def test_a_file_with_a_widget_that_is_too_large_changes_nothing(app_with: AppWith) -> None:
    app = app_with(document("acme/notes"))
    before = exported(app)
    large = [
        document(name, *versions(256, releaseNotes=LONG_NOTES)) for name in ("acme/a", "acme/b")
    ]
    small = [document(f"acme/w{number}") for number in range(BATCH_SIZE)]
    result = run(app, "import", "-", stdin="\n".join(map(json.dumps, [*small, *large])))
    assert (result.exit_code, exported(app)) == (1, before)
    assert [line.partition(" (256 versions, ")[0] for line in result.stderr.splitlines()] == [
        "Error: acme/a is too large",
        "acme/b is too large",
    ]


def test_a_file_with_a_widget_whose_versions_repeat_a_long_text_changes_nothing(
    app_with: AppWith,
) -> None:
    app = app_with(document("acme/notes"))
    before = exported(app)
    large = document("acme/clock", *versions(2000), description="x" * 10_000)
    small = [document(f"acme/w{number}") for number in range(BATCH_SIZE)]
    result = run(app, "import", "-", stdin="\n".join(map(json.dumps, [*small, large])))
    assert (result.exit_code, exported(app)) == (1, before)
    assert result.stderr.startswith("Error: acme/clock is too large (2000 versions, ")


def test_an_import_ends_at_a_widget_that_would_become_too_large(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", *versions(250, releaseNotes=LONG_NOTES)))
    before = exported(app)
    # The small widgets are a batch of their own.
    small = [document(f"acme/w{number}") for number in range(BATCH_SIZE)]
    larger = document("acme/clock", *versions(10, major=2, releaseNotes=LONG_NOTES))
    content = "\n".join(map(json.dumps, [*small, larger, document("acme/last")]))
    assert_refused(app, "import", "--dry-run", "-", stdin=content, count=260)
    result = run(app, "import", "-", stdin=content)
    written, error = result.stderr.splitlines()
    advice = "Remove acme/clock from the files, and run the import again."
    assert written == f"Imported 200 of 202 widgets. {advice}"
    assert error.startswith("Error: acme/clock is too large (260 versions, ")
    after = exported(app).splitlines()
    assert (result.exit_code, len(after)) == (1, 1 + BATCH_SIZE)
    assert before.strip() in after


@pytest.mark.parametrize("option", ["--display-name", "--icon", "--description"])
def test_a_text_of_all_versions_does_not_make_a_widget_too_large(
    app_with: AppWith, option: str
) -> None:
    app = app_with(document("acme/clock", *versions(2000)))
    assert_refused(app, "describe", "acme/clock", option, "x" * 10_000, count=2000)
    assert run(app, "describe", "acme/clock", option, "x" * 5000).exit_code == 0
    assert 10_000_000 < detail_size(app) < 16_777_216


WRITES_TOO_MUCH = (
    "The change would write more than 16777216 bytes, and installs would have to wait for it. "
    "Name fewer versions at once, or use a shorter text."
)


def test_a_warning_is_measured_with_its_escapes(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", *versions(500)))
    before = exported(app)
    deprecate = ("deprecate", "acme/clock@*", "--message")
    assert error_message(run(app, *deprecate, "\x01" * 10_000)) == WRITES_TOO_MUCH
    assert exported(app) == before
    # 120 warnings of 60,000 bytes are written twice.
    message = ("--message", "\x01" * 10_000)
    assert run(app, "deprecate", "acme/clock@<1.120.0", *message).exit_code == 0
    assert error_message(run(app, "deprecate", "acme/clock@*", *message)) == WRITES_TOO_MUCH
    assert run(app, "undeprecate", "acme/clock@*").exit_code == 0
    assert run(app, *deprecate, "x" * 10_000).exit_code == 0


def test_a_change_that_would_write_too_much_writes_nothing(full_catalog: Path) -> None:
    wal = Path(f"{full_catalog}-wal")
    app = create_app({"DATABASE": full_catalog})
    assert run(app, "yank", "acme/clock@1.9.0").exit_code == 0
    before = wal.stat().st_size
    for number in range(2):
        deprecate = ("deprecate", "acme/clock@*", "--message", "\x01" * (1000 + number))
        assert error_message(run(app, *deprecate)) == WRITES_TOO_MUCH
    assert wal.stat().st_size == before
    app.extensions["database"].close()


@pytest.fixture(scope="module")
def full_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A widget with as many versions as allowed. Tests may change these, and keep their number."""
    path = tmp_path_factory.mktemp("full") / "catalog.db"
    return create_catalog(path, document("acme/clock", *versions(10_000)))


def test_a_publication_does_not_add_more_versions_than_allowed(full_catalog: Path) -> None:
    app = create_app({"DATABASE": full_catalog})
    before = exported(app)
    response = app.test_client().put(
        f"{CLOCK}/2.0.0",
        data=form(manifest(number="2.0.0")),
        content_type=FORM_TYPE,
        headers=bearer(create_token(app)),
    )
    assert response.status_code == 409
    assert response.json["error"].startswith("acme/clock is too large (10001 versions, ")
    assert (exported(app), [*app.extensions["bundles"].hashes()]) == (before, [])
    app.extensions["database"].close()


def test_a_change_of_a_widget_at_its_limits_is_accepted(full_catalog: Path) -> None:
    app = create_app({"DATABASE": full_catalog})
    assert run(app, "yank", "acme/clock@1.8.0").exit_code == 0
    app.extensions["database"].close()


def test_a_mirror_copies_the_other_widgets(mirror_app: Flask, upstream: FakeUpstream) -> None:
    large = document("acme/clock", *versions(600), description="天" * 10_000)
    upstream.put(document("acme/alarm"), large, document("lab/tide"))
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert "acme/clock: is too large (600 versions, " in result.stderr
    assert f"{ALLOWED}.\n" in result.stderr
    assert exported(mirror_app).count(b'"widget"') == 2


# A file of the schema before, which knew no limits, with one version more than allowed.
EARLIER = """
DROP TRIGGER widget_too_large;
CREATE TEMP TABLE added AS SELECT * FROM version WHERE version = '1.0.0';
UPDATE added SET id = 20000, version = '2.0.0';
INSERT INTO version SELECT * FROM added;
PRAGMA user_version = 2;
"""


def test_a_widget_that_is_too_large_since_an_earlier_release_is_migrated_and_repaired(
    full_catalog: Path, tmp_path: Path
) -> None:
    path = tmp_path / "catalog.db"
    write_database(path, full_catalog.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(EARLIER)
    assert run_on(path, "migrate").exit_code == 0
    expected = "acme/clock is too large (10001 versions, "
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE listing SET official = 1")
    large, differing, versions = run_on(path, "check").stdout.splitlines()
    assert large.startswith(expected)
    assert differing == "acme/clock: its listing for search differs from the widget."
    repaired = run_on(path, "check", "--repair")
    assert repaired.stderr == f"Rebuilt the derived rows.\nError: 2 problems in {path}.\n"
    assert repaired.stdout == f"{large}\n{versions}\n"
    result = run_on(path, "yank", "acme/clock@1.7.0")
    assert error_message(result).startswith(expected)
    assert run_on(path, "delete", "acme/clock@1.7.0", "--yes").exit_code == 0


# As SQLite spells it until 3.44, and since then; rqlite adds nothing.
MESSAGES = ["JSON path error near '{}'", "bad JSON path: '{}'"]


@pytest.mark.parametrize("message", MESSAGES)
def test_the_error_of_a_node_names_the_widget(message: str) -> None:
    with pytest.raises(TooLargeError) as refused:
        raise_if_too_large(message.format("too large: 12000 7 acme/it''s"))
    expected = f"acme/it's is too large (12000 versions, 7 bytes as JSON); {ALLOWED}."
    assert str(refused.value) == expected
    raise_if_too_large("CHECK constraint failed: id = 1")
