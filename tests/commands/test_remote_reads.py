"""list, show, outdated and health with --server, without a token."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from conftest import error_message, run, run_line, usage_message
from flask import Flask
from mirrors import AppServer, serve
from upstreams import FakeUpstream

from app import create_app

AppWith = Callable[..., Flask]
CLOCK = document(
    "acme/clock",
    version("1.0.0", publishedAt="2025-01-01T00:00:00Z", deprecationMessage="Old."),
    version("1.1.0", publishedAt="2025-02-01T00:00:00Z", permissions=["network"]),
    version("2.0.0", publishedAt="2025-03-01T00:00:00Z", yanked=True, yankedReason="It stops."),
    description="Tells time.",
    isOfficial=True,
    downloadCount=7,
)
SAID = {
    **{"homepage": "https://acme.example/", "issues": "https://acme.example/issues"},
    "keywords": ["time", "world clock"],
}
CLOCK["about"] = SAID
ODD = document("acme/odd@1.0.0", version(deprecationMessage="Use acme/clock."))
EMPTY = document("ops/empty")
HIDDEN = document("ops/hidden", version(), listed=False)


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(CLOCK, ODD, EMPTY, HIDDEN)


@pytest.fixture
def server(app: Flask) -> Iterator[AppServer]:
    with serve(app) as running:
        yield running


@pytest.fixture
def listed(app_with: AppWith) -> Flask:
    """An app with what the service shows to everybody."""
    return app_with(CLOCK, ODD, EMPTY)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Flask:
    """An app that has no database."""
    return create_app({"DATABASE": tmp_path / "none.db"})


@pytest.mark.parametrize(
    "line",
    [
        "show acme/clock",
        "show acme/clock --long",
        "show acme/clock@1.x",
        "show acme/clok",
        "show acme/quite-another",
        "list",
        "list TIME --sort installs",
        "list --sort updated --json",
        "list --sort created --json",
        "list --scope acme,ops --json",
        "list --scope acme --scope none",
        "show acme/clock --json",
        "list acme/clock",
        "list acme odd --limit 1",
        "list --scope acme --sort updated",
        "list nothing",
        "show acme/clock@9.9.9",
        "show acme/clock@nonsense",
        "outdated {} --sdk 1.0.0",
        "outdated {} --sdk 1.0.0 --json",
    ],
)
def test_output_is_the_same_as_on_the_machine_of_the_catalog(
    listed: Flask, server: AppServer, elsewhere: Flask, tmp_path: Path, line: str
) -> None:
    installed = tmp_path / "installed.txt"
    installed.write_text("".join(f"acme/clock@1.{each}.0\n" for each in range(30)))
    line = line.format(installed)
    here, there = run_line(listed, line), run_line(elsewhere, f"{line} --server {server.url}")
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)
    assert there.stderr == here.stderr


TABLE = """\
WIDGET          DISPLAY NAME  LATEST  INSTALLS  MARKS
acme/clock      Clock         1.1.0   7         official
acme/odd@1.0.0  Odd@1.0.0     1.0.0   unknown   deprecated
ops/empty       Empty         none    unknown
"""


def test_list_has_what_the_public_api_shows(server: AppServer, elsewhere: Flask) -> None:
    result = run(elsewhere, "list", "--server", server.url)
    assert (result.exit_code, result.stdout, result.stderr) == (0, TABLE, "3 widgets.\n")
    (clock,) = json.loads(run(elsewhere, "list", "TIME", "--json", "--server", server.url).stdout)
    assert clock == {
        **{key: CLOCK["widget"][key] for key in ("scope", "name", "displayName", "description")},
        **{"icon": None, "isOfficial": True, "downloadCount": 7, "latestVersion": "1.1.0"},
        **{"listed": True, "deprecationMessage": None, "updatedAt": "2025-02-01T00:00:00.000Z"},
    }


def test_list_takes_the_options_of_the_command(server: AppServer, elsewhere: Flask) -> None:
    for options, names, status in (
        ("--scope acme", ["clock", "odd@1.0.0"], "2 widgets.\n"),
        ("--sort installs --limit 1", ["clock"], "1 of 3 widgets.\n"),
        # The first two by display name.
        ("--limit 2", ["clock", "empty"], "2 of 3 widgets.\n"),
        ("none", [], "0 widgets.\n"),
    ):
        result = run_line(elsewhere, f"list {options} --server {server.url}")
        assert [line.split()[0].split("/")[1] for line in result.stdout.splitlines()[1:]] == names
        assert result.stderr == status
    refused = run_line(elsewhere, f"list --unlisted --server {server.url}")
    assert usage_message(refused) == "A service shows only listed widgets; omit --unlisted."


def test_list_reads_all_pages(app_with: AppWith, elsewhere: Flask) -> None:
    app = app_with(*(document(f"acme/w{number:03}") for number in range(230)))
    with serve(app) as server:
        result = run(elsewhere, "list", "--server", server.url)
        limited = run(elsewhere, "list", "--limit", "150", "--server", server.url)
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        f"acme/w{number:03}" for number in range(230)
    ]
    assert limited.stderr == "150 of 230 widgets.\n"
    assert len(server.responses) == 3 + 2


@pytest.mark.parametrize(
    ("line", "requests", "output"),
    [
        ("list --limit 1", 1, "1 of 230 widgets.\n"),
        ("list --limit 100", 1, "100 of 230 widgets.\n"),
        # The detail, and a page of the scope and of all scopes.
        ("show acme/w0077", 3, "Error: There is no widget acme/w0077. Did you mean acme/w007?\n"),
    ],
)
def test_no_more_pages_are_read_than_needed(
    app_with: AppWith, elsewhere: Flask, line: str, requests: int, output: str
) -> None:
    app = app_with(
        *(document(f"acme/w{number:03}", downloadCount=230 - number) for number in range(230))
    )
    with serve(app) as server:
        result = run_line(elsewhere, f"{line} --server {server.url}")
    assert (result.stderr, len(server.responses)) == (output, requests)


def test_an_unlisted_widget_is_missing(server: AppServer, elsewhere: Flask) -> None:
    result = run(elsewhere, "show", "ops/hidden", "--server", server.url)
    assert error_message(result) == "There is no widget ops/hidden."


def test_show_has_the_links_of_the_widget(server: AppServer, elsewhere: Flask) -> None:
    line = f"show acme/clock --server {server.url}"
    shown = run_line(elsewhere, line).stdout
    links = "  homepage:    https://acme.example/\n  issues:      https://acme.example/issues\n"
    assert f"{links}  keywords:    time, world clock\n\n" in shown
    said = json.loads(run_line(elsewhere, f"{line} --json").stdout)["about"]
    assert said == {"readme": None, "repository": None, "picture": None, **SAID}


def test_the_version_of_a_widget_needs_no_request_for_another_name(
    server: AppServer, elsewhere: Flask
) -> None:
    assert run(elsewhere, "show", "acme/clock@1.x", "--json", "--server", server.url).exit_code == 0
    path = "/api/v1/widgets/acme/clock"
    assert server.responses == [(path, 200), (f"{path}/about", 200)]


def test_show_leaves_out_what_an_older_service_does_not_count(app: Flask, elsewhere: Flask) -> None:
    clock = app.test_client().get("/api/v1/widgets/acme/clock").get_json()
    with closing(FakeUpstream(clock)) as older:
        result = run(elsewhere, "show", "acme/clock", "--server", older.url)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "  installs:    7" in lines
    assert [line.split()[2] for line in lines[-4:]] == ["INSTALLS", *["unknown"] * 3]


def test_a_path_that_is_no_catalog_is_named(server: AppServer, elsewhere: Flask) -> None:
    url = f"{server.url}/elsewhere"
    result = run(elsewhere, "list", "--server", url)
    assert error_message(result) == f"{url} responded 404."


def test_health_asks_the_service(
    server: AppServer, elsewhere: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(elsewhere, "health", "--server", server.url).stderr == "ok\n"
    monkeypatch.setenv("CATALOG_SERVER", server.url)
    assert run(elsewhere, *shlex.split("health --timeout 9")).stderr == "ok\n"
    assert server.responses == [("/api/health", 200)] * 2
