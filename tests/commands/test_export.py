"""widget-catalog export: writes the whole catalog so that an import gives the same catalog."""

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from builders import Json, document, version
from conftest import DEMO, create_catalog, error_message, exported, run, start_command
from flask import Flask

from app import create_app

AppWith = Callable[..., Flask]

TEXTS = [
    None,
    "",
    " ",
    "  two  spaces\tand a tab ",
    "lines\r\nand\nmore\u2028and\u2029more",
    "\x01\x1f\x7f\x85\ufeff\ufffd\uffff",
    "<script>alert('1')</script> & \"quotes\" \\ \\n \\u0000 %s {} ' -- ;",
    "Météo Straße ﬁ Å Å ｆｕｌｌ",
    "天気予報 한국어 ภาษาไทย",
    "مواقيت \u202eالصلاة\u202c עברית",
    "👩‍👩‍👧 🇫🇷 \U0010ffff",
    "x" * 2_000,
    "null",
    "12",
]
NAMES = [
    *("clock", "Clock", "CLOCK", "clöck", "clo\u0308ck", "時計", "🕰", "a b", " ", "...", "-", "~"),
    *("a.b", "a%2Fb", "a?b", "a#b", "a+b", "a&b=c", "a\\b", "a'b", 'a"b', "x" * 214, "search", "0"),
]
TIMES = [
    "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
    "2024-02-29T23:59:59.001Z",
    "1969-12-31T23:59:59.999Z",
]
VERSIONS = [
    *("0.0.0", "1.9.0", "1.10.0", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0", "1.0.0+build.2"),
    *("1.0.0+build.10", "9007199254740991.0.0", "1.0.0-0.99999999999999999999", "1.0.0--"),
]
CONFIGS = [None, 0, -1, 2**53 - 1, 0.1, -2.5, 1e-7, 5e-324, 123456789.125]
PERMISSIONS = [[], [""], ["network", "network"], ["é\n\"'\\", "天気", "👩‍👩‍👧"], ["x"] * 100]
RANGES = ["^1.0.0", "", "*", ">=1.2.0 <2.0.0 || ~3", "latest please", "\u00a0^1\ufeff", "1 - 2"]
COUNTS = [None, 0, 1, 2**53 - 1]
SIZES = [(1, 1, 12, 12), (0, 0, 0, 0), (2, 3, 2**53 - 1, 3)]


def pick(values: list[Any], turn: int) -> Any:
    return values[turn % len(values)]


def awkward_version(number: str, turn: int) -> Json:
    min_w, min_h, max_w, max_h = pick(SIZES, turn)
    return {
        "version": number,
        "bundleUrl": f"https://cdn.example.com/%20/{turn}.js?a=1&b=é#x",
        "bundleSize": pick([0, 1, 2**53 - 1], turn),
        "sha256Hash": f"{turn:064x}",
        "publishedAt": pick(TIMES, turn),
        "yanked": turn % 3 == 0,
        "yankedReason": pick(TEXTS, turn),
        "deprecationMessage": pick(TEXTS, turn + 1),
        "releaseNotes": pick(TEXTS, turn + 2),
        "displayName": pick(TEXTS, turn + 3) or None,
        "description": pick(TEXTS, turn + 4),
        "icon": pick(TEXTS, turn + 5),
        "minSize": {"w": min_w, "h": min_h},
        "maxSize": {"w": max_w, "h": max_h},
        "sdkVersion": pick(RANGES, turn),
        "configVersion": pick(CONFIGS, turn),
        "permissions": pick(PERMISSIONS, turn),
        "license": pick(TEXTS, turn + 6),
    }


def awkward_widget(turn: int) -> Json:
    scope = pick(["acme", "Acme", "äcme", "a c", "%"], turn // len(NAMES))
    widget = {
        "scope": scope if turn < 5 * len(NAMES) else f"{scope}-{turn}",
        "name": pick(NAMES, turn),
        "displayName": pick(TEXTS, turn + 1) or "x",
        "description": pick(TEXTS, turn),
        "icon": pick(TEXTS, turn + 7),
        "isOfficial": pick([None, False, True], turn),
        "downloadCount": pick(COUNTS, turn),
        "createdAt": pick(TIMES, turn),
        "listed": turn % 7 != 0,
    }
    numbers = VERSIONS[: turn % (len(VERSIONS) + 1)]
    versions = [awkward_version(number, turn + i) for i, number in enumerate(numbers)]
    return {"widget": widget, "versions": versions}


AWKWARD = [awkward_widget(turn) for turn in range(200)]


def import_(app: Flask, catalog: bytes) -> None:
    file = Path(app.config["DATABASE"]).with_name("catalog.jsonl")
    file.write_bytes(catalog)
    result = run(app, "import", file)
    assert result.exit_code == 0, result.stderr


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """The app of the awkward catalog, shared by the tests here: do not change it."""
    path = create_catalog(tmp_path_factory.mktemp("awkward") / "awkward.db", *AWKWARD)
    app = create_app({"DATABASE": path})
    yield app
    app.extensions["database"].close()


def test_export_of_the_imported_demo_file_is_the_same_file(app_with: AppWith) -> None:
    app = app_with()
    import_(app, DEMO.read_bytes())
    assert exported(app) == DEMO.read_bytes()


def test_export_of_an_imported_export_is_the_same_bytes(app_with: AppWith, awkward: Flask) -> None:
    first = exported(awkward)
    assert len(first.split(b"\n")) == 201
    app = app_with()
    # The second import is into a catalog that has all of it already.
    for _ in range(2):
        import_(app, first)
        assert exported(app) == first


def test_export_has_every_field_as_imported(awkward: Flask) -> None:
    documents = json.loads(json.dumps(AWKWARD))
    lines = exported(awkward).splitlines()
    assert sort_documents(map(json.loads, lines)) == sort_documents(documents)


def sort_documents(documents: Iterable[Json]) -> list[Json]:
    result = sorted(documents, key=lambda each: str(each["widget"]))
    for each in result:
        each["versions"].sort(key=lambda entry: entry["version"])
    return result


def test_detail_of_every_widget_is_its_document(awkward: Flask) -> None:
    client = awkward.test_client()
    for each in AWKWARD:
        widget = {key: value for key, value in each["widget"].items() if key != "listed"}
        path = "/".join(quote(widget[key], safe="") for key in ("scope", "name"))
        response = client.get(f"/api/v1/widgets/{path}")
        assert response.status_code == (200 if each["widget"]["listed"] else 404), path
        if response.status_code == 200:
            assert response.json["widget"] == widget
            entries = {entry["version"]: entry for entry in response.json["versions"]}
            assert entries == {
                entry["version"]: with_fallbacks(entry, widget) for entry in each["versions"]
            }


def with_fallbacks(entry: Json, widget: Json) -> Json:
    """Return a version of a document as the detail endpoint shows it."""
    defaults = {key: widget[key] for key in ("displayName", "description", "icon")}
    own = {key: value for key, value in entry.items() if value is not None}
    return {"scope": widget["scope"], "name": widget["name"], **entry, **defaults, **own}


def test_widgets_are_ordered_by_scope_and_name(app_with: AppWith) -> None:
    paths = ["b/a", "a/b", "a/B", "a/é", "a-/a", "A/z", "a/a", "天/a"]
    lines = exported(app_with(*map(document, paths))).decode().splitlines()
    widgets = [json.loads(line)["widget"] for line in lines]
    assert [f"{each['scope']}/{each['name']}" for each in widgets] == [
        *("A/z", "a/B", "a/a", "a/b", "a/é", "a-/a", "b/a", "天/a")
    ]


def test_file_and_standard_output_have_the_same_content(app_with: AppWith, tmp_path: Path) -> None:
    app, file = app_with(*AWKWARD[:20]), tmp_path / "out.jsonl"
    result = run(app, "export", file)
    assert (result.exit_code, result.stdout) == (0, "")
    assert file.read_bytes() == exported(app) == run(app, "export", "-").stdout_bytes


def test_export_to_a_file_prints_what_it_wrote(app_with: AppWith, tmp_path: Path) -> None:
    app, file = app_with(document("acme/a"), document("acme/b", version())), tmp_path / "out.jsonl"
    assert run(app, "export", file).stderr == f"Exported 2 widgets and 1 version to {file}.\n"
    assert run(app, "export", file, "--quiet").stderr == ""
    assert run(app, "export", "-").stderr == ""


def test_export_that_fails_does_not_change_the_file(app_with: AppWith, tmp_path: Path) -> None:
    app, file = app_with(document("acme/a"), document("acme/b", version())), tmp_path / "out.jsonl"
    with closing(sqlite3.connect(app.config["DATABASE"])) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        triggers = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE version SET permissions = 'damaged'")
    file.write_bytes(b"an earlier export\n")
    assert run(app, "export", file).exit_code == 1
    assert file.read_bytes() == b"an earlier export\n"
    assert [path.name for path in tmp_path.iterdir() if "catalog-" not in path.name] == [file.name]


def test_export_to_a_missing_directory_is_an_error(app_with: AppWith, tmp_path: Path) -> None:
    file = tmp_path / "none" / "out.jsonl"
    message = error_message(run(app_with(document()), "export", file))
    assert message == f"{file} cannot be written: No such file or directory."


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A device like /dev/full: by an error of ours, root could replace that of the machine."""
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.stat("/dev/full").st_rdev)
        device.open("wb").close()
    except OSError:
        return Path("/dev/full")
    return device


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_export_to_a_full_disk_is_an_error(app_with: AppWith, full: Path) -> None:
    message = error_message(run(app_with(document()), "export", full))
    assert message == f"{full} cannot be written: No space left on device."


def test_maximum_count_can_be_imported_after_one_more_install(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", downloadCount=2**53 - 1))
    assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == 200
    first, other = exported(app), app_with()
    import_(other, first)
    assert exported(other) == first


def test_output_is_utf_8_in_every_locale(demo_database: Path) -> None:
    settings = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with start_command(demo_database, "export", settings=settings, text=False) as process:
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    assert output == DEMO.read_bytes()


def test_export_to_the_database_file_is_an_error(app_with: AppWith) -> None:
    app = app_with(document())
    path = app.config["DATABASE"]
    assert error_message(run(app, "export", path)) == f"{path} is the catalog itself."
    assert exported(app).count(b"\n") == 1


# The commands that write a file, each with the first bytes of the file.
WRITERS = {"export": b'{"widget"', "pack": b"SHA256SUMS", "backup": b"SQLite format 3"}


@pytest.mark.parametrize(("command", "begin"), WRITERS.items(), ids=WRITERS)
def test_an_existing_file_is_replaced_by_one_that_only_its_owner_may_read(
    app_with: AppWith, tmp_path: Path, command: str, begin: bytes
) -> None:
    app, file, other = app_with(document()), tmp_path / "out", tmp_path / "other-name"
    assert run(app, command, file).exit_code == 0
    earlier = file.read_bytes()
    file.chmod(0o666)
    os.link(file, other)
    run(app, "unlist", "acme/clock")
    assert run(app, command, file).exit_code == 0
    assert (stat.S_IMODE(file.stat().st_mode), file.read_bytes()[: len(begin)]) == (0o600, begin)
    assert (other.read_bytes() == earlier, file.read_bytes() == earlier) == (True, False)


KINDS = {"export": "an export", "pack": "a pack", "backup": "a backup"}


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("kind", ["text", *WRITERS])
def test_a_file_of_another_kind_is_replaced_with_force_only(
    app_with: AppWith, tmp_path: Path, command: str, kind: str
) -> None:
    app, file = app_with(document()), tmp_path / "out"
    if kind == "text":
        file.write_text("My notes.\n")
    else:
        assert run(app, kind, file).exit_code == 0
    before = file.read_bytes()
    result = run(app, command, file)
    if kind == command:
        assert result.exit_code == 0
    else:
        expected = f"{file} exists and is not {KINDS[command]}. To replace it, use --force."
        assert (error_message(result), file.read_bytes()) == (expected, before)
    assert run(app, command, file, "--force").exit_code == 0
    assert file.read_bytes().startswith(WRITERS[command])


@pytest.mark.parametrize("command", WRITERS)
def test_an_empty_file_is_replaced(app_with: AppWith, tmp_path: Path, command: str) -> None:
    file = tmp_path / "out"
    file.touch()
    assert run(app_with(document()), command, file).exit_code == 0
    assert file.read_bytes().startswith(WRITERS[command])


def test_an_sqlite_file_of_another_program_is_not_a_backup(
    app_with: AppWith, tmp_path: Path
) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE note (text TEXT)")
    before = file.read_bytes()
    message = error_message(run(app_with(document()), "backup", file))
    assert message == f"{file} exists and is not a backup. To replace it, use --force."
    assert file.read_bytes() == before


@pytest.mark.parametrize(("command", "begin"), WRITERS.items(), ids=WRITERS)
def test_a_link_is_replaced_and_the_file_behind_it_is_unchanged(
    app_with: AppWith, tmp_path: Path, command: str, begin: bytes
) -> None:
    app, behind, dangling = app_with(document()), tmp_path / "behind", tmp_path / "dangling"
    behind.write_bytes(b"of another user")
    for link, target in ((tmp_path / "link", behind), (tmp_path / "second", dangling)):
        link.symlink_to(target)
        assert run(app, command, link, "--force").exit_code == 0
        assert (link.is_symlink(), link.read_bytes()[: len(begin)]) == (False, begin)
        assert stat.S_IMODE(link.stat().st_mode) == 0o600
    assert (behind.read_bytes(), dangling.exists()) == (b"of another user", False)


@pytest.mark.parametrize("command", ["export", "pack"])
def test_a_link_to_a_device_is_written_directly(
    app_with: AppWith, tmp_path: Path, command: str
) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    assert run(app_with(document()), command, link).exit_code == 0
    assert (link.is_symlink(), Path("/dev/null").is_char_device()) == (True, True)


def test_a_descriptor_by_its_name_is_written_directly(app_with: AppWith, tmp_path: Path) -> None:
    # /dev/stdout is a link like this one, to a file where standard output is redirected.
    app, file = app_with(document()), tmp_path / "out.jsonl"
    expected = exported(app)
    with file.open("wb") as output:
        number = file.stat().st_ino
        assert run(app, "export", f"/proc/self/fd/{output.fileno()}").exit_code == 0
    assert (file.read_bytes(), file.stat().st_ino) == (expected, number)
