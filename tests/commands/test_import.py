"""widget-catalog import: reads catalog files, and imports all of their widgets or none."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import Json, document, version
from click.testing import Result
from conftest import error_message, exported, run
from flask import Flask

from app import create_app
from catalog.files.checked_documents import BATCH_SIZE

AppWith = Callable[..., Flask]
BOM = b"\xef\xbb\xbf"


def lines(*documents: Json) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in documents)


def import_(app: Flask, content: bytes) -> Result:
    """Import a file with this content, named input.jsonl."""
    file = Path(app.config["DATABASE"]).with_name("input.jsonl")
    file.write_bytes(content)
    return run(app, "import", file)


def documents(app: Flask) -> list[Json]:
    return [json.loads(line) for line in exported(app).splitlines()]


def names(app: Flask) -> list[str]:
    widgets = [each["widget"] for each in documents(app)]
    return [f"{widget['scope']}/{widget['name']}" for widget in widgets]


def test_import_adds_widgets_and_prints_how_many(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with(document("acme/clock", version()))
    file = tmp_path / "more.jsonl"
    file.write_bytes(lines(document("acme/notes", version(), version("2.0.0")), document("b/c")))
    result = run(app, "import", file)
    assert (result.exit_code, result.stderr) == (
        0,
        "Imported 2 widgets and 2 versions: 2 added, 0 changed, 0 unchanged.\n",
    )
    assert names(app) == ["acme/clock", "acme/notes", "b/c"]


def test_several_files_and_standard_input_are_one_import(app_with: AppWith, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(lines(document("acme/a")))
    (tmp_path / "b").write_bytes(lines(document("acme/b")))
    app = app_with()
    files = (tmp_path / "a", "-", tmp_path / "b")
    result = run(app, "import", *files, stdin=lines(document("acme/c")))
    assert result.stderr == "Imported 3 widgets and 0 versions: 3 added, 0 changed, 0 unchanged.\n"
    assert names(app) == ["acme/a", "acme/b", "acme/c"]


A, B = lines(document("acme/a")).strip(), lines(document("acme/b")).strip()
SHAPES = {
    "no newline at the end": A + b"\n" + B,
    "CRLF": A + b"\r\n" + B + b"\r\n",
    "blank lines": b"\n  \n" + A + b"\n\r\n\t\n" + B + b"\n\n",
    "byte order mark": BOM + A + b"\n" + B,
    "joined files with marks": BOM + A + b"\n" + BOM + B,
    "byte order mark and blank line": BOM + b"\r\n" + A + b"\n" + B,
}


@pytest.mark.parametrize("content", SHAPES.values(), ids=SHAPES)
def test_line_ends_blank_lines_and_byte_order_marks_are_accepted(
    app_with: AppWith, content: bytes
) -> None:
    app = app_with()
    result = import_(app, content)
    assert result.stderr == "Imported 2 widgets and 0 versions: 2 added, 0 changed, 0 unchanged.\n"
    assert names(app) == ["acme/a", "acme/b"]


def test_invalid_file_changes_nothing_and_reports_every_place(
    app_with: AppWith, tmp_path: Path
) -> None:
    app = app_with(document("acme/clock", version()))
    before = documents(app)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(lines(document("acme/clock", displayName="Changed"), document("acme/new")))
    wrong = document("acme/notes", version("1.2.0", bundleSize=-1), listed="no")
    bad.write_bytes(b"\n" + lines(document("acme/tasks"), wrong) + b"[]\n")
    result = run(app, "import", good, bad)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        f"Error: {bad} line 3, acme/notes: listed must be true or false, not 'no'.",
        f"{bad} line 3, acme/notes: version 1.2.0: bundleSize must be "
        "a whole number from 0 to 9007199254740991, not -1.",
        f'{bad} line 4: must be an object {{"widget": {{...}}, "versions": [...]}}.',
    ]
    assert documents(app) == before


def test_invalid_line_after_several_parts_changes_nothing(app_with: AppWith) -> None:
    app = app_with(document("acme/clock", version()))
    before = documents(app)
    valid = [document("acme/clock"), *(document(f"acme/w{n}") for n in range(2 * BATCH_SIZE))]
    result = import_(app, lines(*valid) + b"{}\n")
    assert (result.exit_code, documents(app)) == (1, before)


@pytest.mark.parametrize("bad", [20, 5000])
def test_twenty_problems_are_reported_at_most(app_with: AppWith, bad: int) -> None:
    result = import_(app_with(), b"{}\n" * bad)
    problems = result.stderr.splitlines()
    assert [line.split(":")[0].split("/")[-1] for line in problems[1:20]] == [
        f"input.jsonl line {n}" for n in range(2, 21)
    ]
    assert problems[20:] == ["There may be more problems after these."]


def test_duplicate_widget_is_an_error_that_names_both_places(
    app_with: AppWith, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(lines(document("acme/a"), document("acme/b")))
    two.write_bytes(lines(document("acme/c"), document("acme/b"), document("acme/c")))
    app = app_with()
    assert run(app, "import", one, two).stderr.splitlines() == [
        f"Error: {two} line 2, acme/b: is already in {one} line 2.",
        f"{two} line 3, acme/c: is already in {two} line 1.",
    ]
    assert names(app) == []


def test_invalid_sdk_range_is_imported_with_a_warning(app_with: AppWith) -> None:
    app = app_with()
    result = import_(app, lines(document("acme/clock", version(sdkVersion="any, please"))))
    assert (result.exit_code, result.stderr.splitlines()) == (
        0,
        [
            "Warning: acme/clock: version 1.0.0: sdkVersion 'any, please' is not an npm range; "
            "no SDK will match it.",
            "Imported 1 widget and 1 version: 1 added, 0 changed, 0 unchanged.",
        ],
    )
    assert documents(app)[0]["versions"][0]["sdkVersion"] == "any, please"


BROKEN = {
    "truncated": A[:-20],
    "invalid UTF-8": A.replace(b"acme", b"ac\xffme"),
    "an encoded surrogate": A.replace(b"acme", b"ac\xed\xa0\x80me"),
    "UTF-16": A.decode().encode("utf-16-le"),
    "nested deep": b'{"widget": ' + b"[" * 100_000,
    "two on a line": A + B,
    "a number of many digits": b'{"widget": ' + b"9" * 5000 + b"}",
    "a control character": A.replace(b"acme", b"ac\x01me"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_line_that_is_not_json_is_an_error_that_names_it(
    app_with: AppWith, tmp_path: Path, broken: bytes
) -> None:
    app = app_with()
    result = import_(app, B + b"\n" + broken + b"\n")
    message = error_message(result)
    assert message.startswith(f"{tmp_path}/input.jsonl line 2")
    assert ": is not valid JSON in UTF-8 (" in message
    assert names(app) == []


ODD_NAMES = {"line": "a\nError: all is well", "long": "x" * 5000}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_problem_is_one_short_line_for_any_widget_name(app_with: AppWith, name: str) -> None:
    message = error_message(import_(app_with(), lines(document(f"acme/{name}"))))
    assert message.isprintable()
    assert len(message) < 600


def test_problems_in_standard_input_name_it(app_with: AppWith) -> None:
    content = lines(
        document("acme/\ud800", displayName="x"), document("acme/clock", createdAt="soon")
    )
    result = run(app_with(), "import", "-", stdin=content)
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first.startswith("Error: <stdin> line 1")
    assert second.startswith("<stdin> line 2, acme/clock: createdAt must be ")


def test_version_published_in_the_future_gets_a_warning(app_with: AppWith, tmp_path: Path) -> None:
    app = app_with()
    file = tmp_path / "catalog.jsonl"
    later = version("2.0.0", publishedAt="9999-01-01T00:00:00.000Z")
    file.write_text(json.dumps(document("acme/clock", version(), later)))
    warning = (
        "Warning: acme/clock: version 2.0.0: publishedAt 9999-01-01T00:00:00.000Z is in the future;"
        " until then no other version will be the latest.\n"
    )
    assert run(app, "import", file).stderr.startswith(warning)
    result = run(app, "check")
    assert (result.exit_code, result.stdout) == (0, warning)


class InstallingPipe(io.RawIOBase):
    """A pipe whose writer sends a document after an install of acme/clock was counted."""

    def __init__(self, app: Flask) -> None:
        self._app, self._content = app, lines(document("acme/notes"))
        self.statuses: list[int] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if len(buffer) == 0 or self.statuses:
            return 0
        self.statuses.append(self._app.test_client().post("/api/v1/widgets/acme/clock").status_code)
        buffer[: len(self._content)] = self._content
        return len(self._content)


def test_installs_are_counted_while_an_import_waits_for_its_input(app_with: AppWith) -> None:
    app = app_with(document("acme/clock"))
    service = create_app({"DATABASE": app.config["DATABASE"]})
    pipe = InstallingPipe(service)
    result = app.test_cli_runner().invoke(args=["import", "-"], input=io.BufferedReader(pipe))
    service.extensions["database"].close()
    assert (result.exit_code, pipe.statuses) == (0, [200])
    assert "1 added" in result.stderr
