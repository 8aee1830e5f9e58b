"""flask list and flask show: the catalog for the operator's eyes, or as JSON for a script."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import ROOT
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st

from app import create_app
from catalog.documents import check_document
from catalog.store import writes
from catalog.store.database import Database
from catalog.store.export import catalog_lines

AppWith = Callable[..., Flask]

CLOCK = document(
    "acme/clock",
    version("1.0.0", publishedAt="2025-02-01T00:00:00.000Z", sdkVersion=""),
    version("2.0.0", publishedAt="2025-03-01T00:00:00.000Z", yanked=True, yankedReason="Too slow"),
    version("2.0.0-rc.1", publishedAt="2025-02-15T00:00:00.000Z", deprecationMessage="Update"),
    version("0.9.0", publishedAt="2025-01-01T00:00:00.000Z", yanked=True, deprecationMessage="Old"),
    **{"displayName": "World Clock", "description": "Every zone", "icon": "mdi:clock"},
    **{"isOfficial": True, "downloadCount": 12, "createdAt": "2025-01-01T00:00:00.000Z"},
)
NOTES = document("acme/notes", listed=False, isOfficial=False, createdAt="2025-01-02T00:00:00Z")
METEO = document("lab/météo", version(), displayName="Météo", downloadCount=0)


def run(app: Flask, *arguments: str) -> Result:
    return app.test_cli_runner().invoke(args=arguments)


def listed(app: Flask, *arguments: str) -> list[str]:
    result = run(app, "list", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [f"{each['scope']}/{each['name']}" for each in json.loads(result.stdout)]


def test_list_is_a_table_of_every_widget(app_with: AppWith) -> None:
    result = run(app_with(CLOCK, NOTES, METEO), "list")
    assert (result.exit_code, result.stderr) == (0, "3 widgets.\n")
    assert result.stdout.splitlines() == [
        "WIDGET      DISPLAY NAME  LATEST      VERSIONS  INSTALLS  MARKS",
        "acme/clock  World Clock   2.0.0-rc.1  4         12        deprecated, official",
        "acme/notes  Notes         none        0         unknown   unlisted",
        "lab/météo   Météo         1.0.0       1         0",
    ]


def test_show_is_every_fact_and_version(app_with: AppWith) -> None:
    result = run(app_with(CLOCK), "show", "acme/clock")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "World Clock (acme/clock)",
        "  description: Every zone",
        "  icon:        mdi:clock",
        "  official:    yes",
        "  listed:      yes",
        "  installs:    12",
        "  created:     2025-01-01T00:00:00.000Z",
        "",
        "VERSION     PUBLISHED                 BYTES  SDK     MARKS",
        "2.0.0       2025-03-01T00:00:00.000Z  1234   ^1.0.0  yanked: Too slow",
        "2.0.0-rc.1  2025-02-15T00:00:00.000Z  1234   ^1.0.0  latest, deprecated: Update",
        '1.0.0       2025-02-01T00:00:00.000Z  1234   ""',
        "0.9.0       2025-01-01T00:00:00.000Z  1234   ^1.0.0  yanked, deprecated: Old",
    ]


def test_show_says_in_words_what_is_not_there(app_with: AppWith) -> None:
    assert run(app_with(NOTES), "show", "acme/notes").stdout.splitlines() == [
        "Notes (acme/notes)",
        "  description: none",
        "  icon:        none",
        "  official:    no",
        "  listed:      no: unlisted",
        "  installs:    unknown",
        "  created:     2025-01-02T00:00:00.000Z",
    ]


def test_list_as_json_is_the_widget_with_its_listing_and_versions(app_with: AppWith) -> None:
    clock, notes = json.loads(run(app_with(CLOCK, NOTES), "list", "--json").stdout)
    # As JSON text, since Python takes 1 for true.
    assert json.dumps(clock) == (
        '{"scope": "acme", "name": "clock", "displayName": "World Clock", '
        '"description": "Every zone", "icon": "mdi:clock", "isOfficial": true, '
        '"downloadCount": 12, "createdAt": "2025-01-01T00:00:00.000Z", "listed": true, '
        '"versions": 4, "latestVersion": "2.0.0-rc.1"}'
    )
    nulls = [key for key, value in notes.items() if value is None]
    assert nulls == ["description", "icon", "downloadCount", "latestVersion"]
    kept = [notes[key] for key in ("isOfficial", "listed", "versions")]
    assert json.dumps(kept) == "[false, false, 0]"


def test_show_as_json_is_the_document_that_export_writes(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    with app.extensions["database"].read() as connection:
        (line,) = catalog_lines(connection)
    assert json.loads(run(app, "show", "acme/clock", "--json").stdout) == json.loads(line)


def test_nothing_found_is_no_table_and_an_empty_array(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    found = run(app, "list", "calendar")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "0 widgets.\n")
    assert run(app, "list", "calendar", "--json").stdout == "[]\n"


def test_quiet_leaves_the_table_alone(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    quiet = run(app, "list", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (run(app, "list").stdout, "")


def test_order_is_scope_then_name(app_with: AppWith) -> None:
    paths = ["b/a", "a/b", "a/B", "a/é", "a-/a", "A/z", "a/a", "天/a"]
    assert listed(app_with(*map(document, paths))) == [
        *("A/z", "a/B", "a/a", "a/b", "a/é", "a-/a", "b/a", "天/a")
    ]


def test_scope_and_unlisted_narrow_the_list(app_with: AppWith) -> None:
    more = [document("acme-labs/clock"), document("lab/old", listed=False)]
    app = app_with(CLOCK, NOTES, METEO, *more)
    assert listed(app, "--scope", "acme") == ["acme/clock", "acme/notes"]
    assert listed(app, "--unlisted") == ["acme/notes", "lab/old"]
    assert listed(app, "--unlisted", "--scope", "lab", "OLD") == ["lab/old"]
    assert listed(app, "--scope", "Acme") == []


FOUND = st.text(alphabet='aAzéÉe\u0301ﬁiß天気🍅%_"*\\\ufffd ', max_size=4)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """The app of a catalog of texts that search must fold, all of them listed.

    No character of the words is in a scope or name, which only the list looks at.
    """
    names = ["Aé ﬁn", "Straße", "天気 é", "🍅 100%_", 'a"*\\', "ae\u0301\ufffdz", "ſſ ﬀ", "Zé天%"]
    documents = [
        document(f"q/{n}", displayName=name, description=names[-n] if n % 2 else None)
        for n, name in enumerate(names)
    ]
    path = tmp_path_factory.mktemp("texts") / "texts.db"
    Database(path).create(writes.put_documents(map(check_document, documents)))
    app = create_app({"DATABASE": path})
    yield app
    app.extensions["database"].close()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(words=st.lists(FOUND, max_size=2))
def test_words_find_what_the_public_search_finds(texts: Flask, words: list[str]) -> None:
    query = {"q": " ".join(words), "limit": "100"}
    found = texts.test_client().get("/api/v1/widgets/search", query_string=query).json["widgets"]
    assert listed(texts, "--", *words) == sorted(f"{w['scope']}/{w['name']}" for w in found)


NAMED = [
    document("acme/focus-timer", displayName="Concentrate", description="One thing at a time"),
    document("acme/weather", displayName="Sky", listed=False),
    document("lab/Wéather", displayName="Acme"),
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("focus-timer", ["acme/focus-timer"]),
        ("Focus TIME", ["acme/focus-timer"]),
        ("acme/weather", ["acme/weather"]),
        ("weather", ["acme/weather", "lab/Wéather"]),
        ("acme", ["acme/focus-timer", "acme/weather", "lab/Wéather"]),
        ("focus thing", ["acme/focus-timer"]),
        ("weather sky", ["acme/weather"]),
        ("weather thing", []),
        ("weatheracme", []),
        ("sky/weather", []),
    ],
)
def test_words_find_a_widget_by_its_own_name(
    app_with: AppWith, words: str, expected: list[str]
) -> None:
    assert listed(app_with(*NAMED), *words.split()) == expected


def test_public_search_does_not_look_at_the_own_name(app_with: AppWith) -> None:
    client = app_with(*NAMED).test_client()
    for q in ("focus-timer", "acme/weather", "lab"):
        assert client.get("/api/v1/widgets/search", query_string={"q": q}).json["total"] == 0


@pytest.mark.parametrize("path", ["@acme/clock", "acme/clock@home", "ac@me/clock", "a b/é"])
def test_every_widget_that_can_be_stored_can_be_shown(app_with: AppWith, path: str) -> None:
    result = run(app_with(document(path)), "show", path)
    assert (result.exit_code, result.stdout.split("\n")[0].endswith(f"({path})")) == (0, True)


def test_show_refuses_a_widget_that_is_not_there(app_with: AppWith) -> None:
    result = run(app_with(CLOCK), "show", "acme/Clock")
    said = "Error: There is no widget acme/Clock.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", said)


@pytest.mark.parametrize("argument", ["clock", "acme/", "acme/clock/x", ""])
def test_show_of_no_widget_name_is_wrong_usage(app_with: AppWith, argument: str) -> None:
    assert run(app_with(CLOCK), "show", argument).exit_code == 2


@pytest.mark.parametrize("arguments", [["list", "\udcff"], ["list", "--scope", "\udcff"]])
def test_bytes_that_are_no_text_bring_no_traceback(app_with: AppWith, arguments: list[str]) -> None:
    assert isinstance(run(app_with(CLOCK), *arguments).exception, SystemExit | None)


# What each takes of a terminal, counted by hand.
COLUMNS = {
    "CJK": ("天気予報", 8),
    "full width": ("Ａｂ", 4),
    "half width": ("ｱｲ", 2),
    "emoji": ("🍅✨", 4),
    "combining": ("Me\u0301te\u0301o", 5),
    "Thai marks": ("ที่นี่", 2),
    "Hebrew points": ("שָׁלוֹם", 4),
    "Arabic": ("مواقيت", 6),
    "decomposed Hangul": ("\u1112\u1161\u11ab\u1100\u116e\u11a8", 4),
}


@pytest.mark.parametrize(("name", "columns"), COLUMNS.values(), ids=COLUMNS)
def test_columns_line_up_in_every_script(app_with: AppWith, name: str, columns: int) -> None:
    app = app_with(document("acme/a", displayName=name), document("acme/b"))
    lines = run(app, "list").stdout.splitlines()
    assert lines[1:] == [
        f"acme/a  {name}{' ' * (12 - columns)}  none    0         unknown",
        "acme/b  B             none    0         unknown",
    ]


HOSTILE = "a\x1b[2J\x07\x08\r\nb\x7f\x9b31m\x85\u2028\u202ec\u2066\ufeff"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("command", [["list"], ["show", "acme/a"]], ids=["list", "show"])
def test_no_text_of_the_catalog_can_steer_the_terminal(
    app_with: AppWith, command: list[str], options: list[str]
) -> None:
    texts = ("displayName", "description", "icon", "yankedReason", "deprecationMessage")
    hostile = dict.fromkeys((*texts, "sdkVersion"), HOSTILE)
    widget = document("acme/a", version(yanked=True, **hostile), version("2.0.0", **hostile))
    widget["widget"].update(dict.fromkeys(texts[:3], HOSTILE))
    printed = run(app_with(widget), *command, *options).stdout
    assert {c for c in printed if not c.isprintable()} == {"\n"}


def at_terminal(database: Path, columns: int, *arguments: str) -> list[str]:
    """The lines that a real process shows at a terminal of so many columns."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    size = {"COLUMNS", "LINES"}  # of the terminal that the tests run in
    environment = {key: value for key, value in os.environ.items() if key not in size}
    with subprocess.Popen(
        [sys.executable, "-m", "flask", *arguments],
        cwd=ROOT,
        env={**environment, "CATALOG_DATABASE": str(database)},
        stdin=end,
        stdout=end,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(end)
        try:
            shown = b"".join(iter(lambda: read_terminal(terminal), b""))
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
            os.close(terminal)
    return shown.decode().removesuffix("\r\n").split("\r\n")


def read_terminal(terminal: int) -> bytes:
    assert select.select([terminal], [], [], 10)[0], "nothing was shown for ten seconds"
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's way to say that nobody holds the other end
        return b""


def columns_of(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return len(line) + wide - sum(unicodedata.combining(c) > 0 for c in line)


def piped(database: Path, *arguments: str) -> list[str]:
    app = create_app({"DATABASE": database})
    printed = run(app, *arguments).stdout.splitlines()
    app.extensions["database"].close()
    return printed


@pytest.mark.parametrize("columns", [80, 60])
def test_list_fits_the_terminal(demo_database: Path, columns: int) -> None:
    shown = at_terminal(demo_database, columns, "list")
    assert [line for line in shown if columns_of(line) > columns] == []
    assert len(shown) == 35
    assert any("…" in line for line in shown)


def test_long_name_gives_way_with_an_ellipsis(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", displayName="天" * 60), document("acme/b"))
    assert at_terminal(Path(app.config["DATABASE"]), 70, "list") == [
        "WIDGET      DISPLAY NAME             LATEST  VERSIONS  INSTALLS  MARKS",
        "acme/b      B                        none    0         unknown",
        f"acme/clock  {'天' * 11}…  none    0         unknown",
    ]


def test_table_that_fits_is_not_cut(demo_database: Path) -> None:
    assert at_terminal(demo_database, 200, "list") == piped(demo_database, "list")


SDK = ">=1.2.0 <2.0.0 || ~3.1.0 || ^4.0.0 || 5.x || >=6.0.0-beta.1 <7.0.0"
LONG: Json = {"sdkVersion": SDK, "deprecationMessage": "Please update at once. " * 10}


@pytest.fixture
def long_texts(app_with: AppWith) -> Path:
    prerelease = version("2.0.0-nightly.20250102+build.7", **LONG)
    return Path(app_with(document("acme/clock", version(), prerelease)).config["DATABASE"])


def test_versions_fit_the_terminal(long_texts: Path) -> None:
    shown = at_terminal(long_texts, 80, "show", "acme/clock")
    assert [line for line in shown if columns_of(line) > 80] == []


def test_pipe_gets_the_whole_of_every_text(long_texts: Path) -> None:
    line = piped(long_texts, "show", "acme/clock")[9]
    assert f"  {SDK}  latest, deprecated: {LONG['deprecationMessage']}".rstrip() in line


def test_text_of_any_length_is_cut_at_once(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", displayName="x" * 50_000))
    _, line = at_terminal(Path(app.config["DATABASE"]), 80, "list")
    assert line.startswith("acme/clock  xxxxxxxx")
    assert len(line) <= 80
