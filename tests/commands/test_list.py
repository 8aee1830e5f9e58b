"""The commands list and show: the catalog as tables for the operator, as JSON for scripts."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import Json, document, version
from conftest import create_catalog, error_message, run, run_at_terminal
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st

from app import create_app

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


def list_names(app: Flask, *arguments: str) -> list[str]:
    result = run(app, "list", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [f"{widget['scope']}/{widget['name']}" for widget in json.loads(result.stdout)]


def test_list_prints_a_table_of_all_widgets(app_with: AppWith) -> None:
    result = run(app_with(CLOCK, NOTES, METEO), "list")
    assert (result.exit_code, result.stderr) == (0, "3 widgets.\n")
    assert result.stdout.splitlines() == [
        "WIDGET      DISPLAY NAME  LATEST      INSTALLS  MARKS",
        "acme/clock  World Clock   2.0.0-rc.1  12        deprecated, official",
        "acme/notes  Notes         none        unknown   unlisted",
        "lab/météo   Météo         1.0.0       0",
    ]


def test_show_prints_all_fields_and_versions(app_with: AppWith) -> None:
    result = run(app_with(CLOCK), "show", "acme/clock")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "World Clock (acme/clock)",
        "  description: Every zone",
        "  icon:        mdi:clock",
        "  official:    yes",
        "  listed:      yes",
        "  installs:    12, 0 in the last 7 days",
        "  created:     2025-01-01T00:00:00.000Z",
        "",
        "VERSION     PUBLISHED                 INSTALLS  BYTES  SDK     MARKS",
        "2.0.0       2025-03-01T00:00:00.000Z  0         1234   ^1.0.0  yanked: Too slow",
        "2.0.0-rc.1  2025-02-15T00:00:00.000Z  0         1234   ^1.0.0  latest, deprecated: Update",
        '1.0.0       2025-02-01T00:00:00.000Z  0         1234   ""',
        "0.9.0       2025-01-01T00:00:00.000Z  0         1234   ^1.0.0  yanked, deprecated: Old",
    ]


FULL = {
    **{"license": "MIT", "permissions": ["network", "storage"], "minSize": {"w": 2, "h": 1}},
    **{"configVersion": 3, "releaseNotes": "Faster.\nSmaller.", "displayName": "Clock 3"},
}


def test_show_of_a_version_prints_all_its_fields(app_with: AppWith) -> None:
    app = app_with(
        document("acme/clock", version("3.0.0", icon="mdi:clock", **FULL), icon="mdi:clock")
    )
    heading, versions = run(app, "show", "acme/clock@3.0.0").stdout.split("\n\n")
    assert heading.splitlines()[0] == "Clock (acme/clock)"
    assert versions.splitlines() == [
        "acme/clock@3.0.0",
        "  marks:       latest",
        "  published:   2025-01-02T03:04:05.000Z",
        "  installs:    0",
        "  sdk:         ^1.0.0",
        "  url:         https://cdn.example.com/bundles/3.0.0.js",
        "  bytes:       1234",
        f"  sha256:      {'0123456789abcdef' * 4}",
        "  license:     MIT",
        "  permissions: network, storage",
        "  size:        2 by 1 to 12 by 12",
        "  config:      3",
        "  name:        Clock 3",
        "  notes:       Faster. Smaller.",
    ]


def test_show_of_a_version_prints_words_for_null_fields(app_with: AppWith) -> None:
    lines = run(app_with(CLOCK), "show", "acme/clock@1.0.0").stdout.splitlines()[8:]
    assert lines[:5] == [
        "acme/clock@1.0.0",
        "  marks:       none",
        "  published:   2025-02-01T00:00:00.000Z",
        "  installs:    0",
        '  sdk:         ""',
    ]
    assert lines[-3:] == [
        "  license:     none",
        "  permissions: none",
        "  size:        1 by 1 to 12 by 12",
    ]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["acme/clock@2.0.0"], ["2.0.0"]),
        (["acme/clock@<=2"], ["2.0.0", "1.0.0", "0.9.0"]),
        (["acme/clock@1.x || 2.0.0-rc.1"], ["2.0.0-rc.1", "1.0.0"]),
        (["acme/clock", "--long"], ["2.0.0", "2.0.0-rc.1", "1.0.0", "0.9.0"]),
    ],
    ids=str,
)
def test_show_prints_the_fields_of_the_versions_asked_for(
    app_with: AppWith, arguments: list[str], numbers: list[str]
) -> None:
    app = app_with(CLOCK)
    _, *blocks = run(app, "show", *arguments).stdout.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [f"acme/clock@{n}" for n in numbers]
    shown = json.loads(run(app, "show", *arguments, "--json").stdout)
    assert [entry["version"] for entry in shown["versions"]] == numbers


SHOW_ERRORS = {
    "acme/clock@3.0.0": "There is no version acme/clock@3.0.0.",
    "acme/clock@>2": "There is no version acme/clock@>2.",
    "acme/klock@1.0.0": "There is no widget acme/klock. Did you mean acme/clock?",
}


@pytest.mark.parametrize(("target", "message"), SHOW_ERRORS.items(), ids=SHOW_ERRORS)
def test_show_of_a_missing_version_is_an_error(
    app_with: AppWith, target: str, message: str
) -> None:
    assert error_message(run(app_with(CLOCK), "show", target)) == message


def test_show_prints_words_for_null_fields(app_with: AppWith) -> None:
    assert run(app_with(NOTES), "show", "acme/notes").stdout.splitlines() == [
        "Notes (acme/notes)",
        "  description: none",
        "  icon:        none",
        "  official:    no",
        "  listed:      no: unlisted",
        "  installs:    unknown",
        "  created:     2025-01-02T00:00:00.000Z",
    ]


def test_list_as_json_has_what_a_search_shows_of_each_widget(
    app_with: AppWith,
) -> None:
    clock, notes = json.loads(run(app_with(CLOCK, NOTES), "list", "--json").stdout)
    # Compared as text, because 1 == True in Python.
    assert json.dumps(clock) == (
        '{"scope": "acme", "name": "clock", "displayName": "World Clock", '
        '"description": "Every zone", "icon": "mdi:clock", "isOfficial": true, '
        '"downloadCount": 12, "listed": true, "latestVersion": "2.0.0-rc.1", '
        '"deprecationMessage": "Update", "updatedAt": "2025-02-15T00:00:00.000Z"}'
    )
    nulls = [key for key, value in notes.items() if value is None]
    latest = ["latestVersion", "deprecationMessage", "updatedAt"]
    assert nulls == ["description", "icon", "downloadCount", *latest]
    assert json.dumps([notes["isOfficial"], notes["listed"]]) == "[false, false]"


def test_show_as_json_prints_what_the_api_shows_also_of_an_unlisted_widget(
    app_with: AppWith,
) -> None:
    app = app_with(CLOCK, NOTES, PUBLIC_URL="https://widgets.example")
    shown = json.loads(run(app, "show", "acme/clock", "--json").stdout)
    api = app.test_client().get("/api/v1/widgets/acme/clock").get_json()
    about = app.test_client().get("/api/v1/widgets/acme/clock/about").get_json()
    assert shown == {
        "widget": {**api["widget"], "listed": True},
        "versions": api["versions"],
        "about": about,
    }
    notes = json.loads(run(app, "show", "acme/notes", "--json").stdout)
    assert (notes["widget"]["listed"], notes["versions"]) == (False, [])


def test_no_match_prints_no_table_or_an_empty_array(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    result = run(app, "list", "calendar")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 widgets.\n")
    assert run(app, "list", "calendar", "--json").stdout == "[]\n"


def test_scope_and_unlisted_filter_the_list(app_with: AppWith) -> None:
    more = [document("acme-labs/clock"), document("lab/old", listed=False)]
    app = app_with(CLOCK, NOTES, METEO, *more)
    assert list_names(app, "--scope", "acme") == ["acme/clock", "acme/notes"]
    assert list_names(app, "--unlisted") == ["acme/notes", "lab/old"]
    assert list_names(app, "--unlisted", "--scope", "lab", "OLD") == ["lab/old"]
    assert list_names(app, "--scope", "Acme") == []


SORTED = [
    document("b/old", version(), downloadCount=5, createdAt="2024-01-01T00:00:00Z"),
    document(
        "a/updated",
        version("2.0.0", publishedAt="2025-09-01T00:00:00Z", yanked=True),
        version("1.0.0", publishedAt="2025-05-01T00:00:00Z"),
        **{"downloadCount": 40, "createdAt": "2025-05-01T00:00:00Z"},
    ),
    document("c/new", createdAt="2025-06-01T00:00:00Z"),
    document("a/popular", version(), downloadCount=300, createdAt="2024-01-01T00:00:00Z"),
    document("d/zero", downloadCount=0, createdAt="2023-01-01T00:00:00Z"),
]
ORDERS = {
    "name": "a/popular a/updated b/old c/new d/zero",
    "installs": "a/popular a/updated b/old d/zero c/new",
    "updated": "a/updated a/popular b/old c/new d/zero",
    "created": "c/new a/updated a/popular b/old d/zero",
}


@pytest.mark.parametrize(("sort", "names"), ORDERS.items(), ids=ORDERS)
def test_list_is_sorted_by_the_given_key_then_by_name(
    app_with: AppWith, sort: str, names: str
) -> None:
    assert list_names(app_with(*SORTED), "--sort", sort) == names.split()


@pytest.mark.parametrize("limit", [2, 5, 10**30])
def test_limit_is_the_number_of_widgets(app_with: AppWith, limit: int) -> None:
    app = app_with(*SORTED)
    result = run(app, "list", "--sort", "installs", "--limit", limit)
    assert len(result.stdout.splitlines()) == min(limit, 5) + 1
    assert result.stderr == ("2 of 5 widgets.\n" if limit == 2 else "5 widgets.\n")
    assert list_names(app, "--limit", str(limit)) == ORDERS["name"].split()[:limit]


def test_list_sorted_by_installs_shows_them(app_with: AppWith) -> None:
    assert run(app_with(*SORTED), "list", "old", "--sort", "installs").stdout.splitlines() == [
        "WIDGET  DISPLAY NAME  LATEST  INSTALLS  MARKS",
        "b/old   Old           1.0.0   5",
    ]


@pytest.mark.parametrize("options", [["--limit", "0"], ["--limit", "x"], ["--sort", "size"]])
def test_invalid_limit_or_sort_is_wrong_usage(app_with: AppWith, options: list[str]) -> None:
    assert run(app_with(), "list", *options).exit_code == 2


WORDS = st.text(alphabet='aAzéÉe\u0301ﬁiß天気🍅%_"*\\\ufffd ', max_size=4)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """The app of a catalog of texts that search must fold, all of them listed.

    No character of WORDS is in a scope or name, which only the list searches.
    """
    names = ["Aé ﬁn", "Straße", "天気 é", "🍅 100%_", 'a"*\\', "ae\u0301\ufffdz", "ſſ ﬀ", "Zé天%"]
    documents = [
        document(f"q/{n}", displayName=name, description=names[-n] if n % 2 else None)
        for n, name in enumerate(names)
    ]
    path = create_catalog(tmp_path_factory.mktemp("texts") / "texts.db", *documents)
    app = create_app({"DATABASE": path})
    yield app
    app.extensions["database"].close()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(words=st.lists(WORDS, max_size=2))
def test_words_find_what_the_public_search_finds(texts: Flask, words: list[str]) -> None:
    query = {"q": " ".join(words), "limit": "100"}
    response = texts.test_client().get("/api/v1/widgets/search", query_string=query)
    assert list_names(texts, "--", *words) == sorted(
        f"{widget['scope']}/{widget['name']}" for widget in response.json["widgets"]
    )


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
def test_words_match_scope_and_name(app_with: AppWith, words: str, expected: list[str]) -> None:
    assert list_names(app_with(*NAMED), *words.split()) == expected


@pytest.mark.parametrize("path", ["@acme/clock", "acme/clock@home", "ac@me/clock", "a b/é"])
def test_every_widget_that_can_be_stored_can_be_shown(app_with: AppWith, path: str) -> None:
    result = run(app_with(document(path)), "show", path)
    assert (result.exit_code, result.stdout.split("\n")[0].endswith(f"({path})")) == (0, True)


@pytest.mark.parametrize("argument", ["clock", "acme/", "acme/clock/x", ""])
def test_show_of_an_invalid_name_is_wrong_usage(app_with: AppWith, argument: str) -> None:
    assert run(app_with(CLOCK), "show", argument).exit_code == 2


# How many columns of a terminal each text takes.
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
def test_columns_are_aligned_in_every_script(app_with: AppWith, name: str, columns: int) -> None:
    app = app_with(document("acme/a", displayName=name), document("acme/b"))
    lines = run(app, "list").stdout.splitlines()
    assert lines[1:] == [
        f"acme/a  {name}{' ' * (12 - columns)}  none    unknown",
        "acme/b  B             none    unknown",
    ]


HOSTILE = "a\x1b[2J\x07\x08\r\nb\x7f\x9b31m\x85\u2028\u202ec\u2066\ufeff"


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    "command", [["list"], ["show", "acme/a"], ["show", "acme/a", "--long"]], ids=" ".join
)
def test_no_text_of_the_catalog_can_control_the_terminal(
    app_with: AppWith, command: list[str], options: list[str]
) -> None:
    texts = ("displayName", "description", "icon", "yankedReason", "deprecationMessage")
    hostile: Json = dict.fromkeys((*texts, "sdkVersion", "license", "releaseNotes"), HOSTILE)
    hostile["permissions"] = [HOSTILE]
    widget = document("acme/a", version(yanked=True, **hostile), version("2.0.0", **hostile))
    widget["widget"].update(dict.fromkeys(texts[:3], HOSTILE))
    printed = run(app_with(widget), *command, *options).stdout
    assert {c for c in printed if not c.isprintable()} == {"\n"}


def display_width(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return len(line) + wide - sum(unicodedata.combining(c) > 0 for c in line)


@pytest.mark.parametrize("columns", [80, 60])
def test_list_fits_the_terminal(demo_database: Path, columns: int) -> None:
    lines = run_at_terminal(demo_database, "list", "-q", columns=columns).splitlines()
    assert [line for line in lines if display_width(line) > columns] == []
    assert len(lines) == 35
    assert any("…" in line for line in lines)


def test_long_display_name_is_cut_with_an_ellipsis(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", displayName="天" * 60), document("acme/b"))
    output = run_at_terminal(app.config["DATABASE"], "list", "-q", columns=60)
    assert output.splitlines() == [
        "WIDGET      DISPLAY NAME             LATEST  INSTALLS  MARKS",
        "acme/b      B                        none    unknown",
        f"acme/clock  {'天' * 11}…  none    unknown",
    ]


SDK = ">=1.2.0 <2.0.0 || ~3.1.0 || ^4.0.0 || 5.x || >=6.0.0-beta.1 <7.0.0"
LONG: Json = {"sdkVersion": SDK, "deprecationMessage": "Please update now. " * 10}


@pytest.fixture
def long_texts(app_with: AppWith) -> Flask:
    prerelease = version("2.0.0-nightly.20250102+build.7", **LONG)
    return app_with(document("acme/clock", version(), prerelease))


def test_versions_fit_the_terminal(long_texts: Flask) -> None:
    output = run_at_terminal(long_texts.config["DATABASE"], "show", "acme/clock")
    assert [line for line in output.splitlines() if display_width(line) > 80] == []


def test_piped_output_is_not_cut(long_texts: Flask) -> None:
    line = run(long_texts, "show", "acme/clock").stdout.splitlines()[9]
    assert f"  {SDK}  latest, deprecated: {LONG['deprecationMessage']}".rstrip() in line
