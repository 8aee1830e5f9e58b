"""Limits of a widget document, and bounds of the time and memory to check one."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json, document, version
from click.testing import Result
from flask import Flask

from catalog.domain.documents import check_document

AppWith = Callable[..., Flask]
MARKS = "a" + "\u0301\u0316" * 100_000


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with()


def import_file(app: Flask, content: bytes) -> Result:
    file = Path(app.config["DATABASE"]).with_name("input.jsonl")
    file.write_bytes(content)
    return app.test_cli_runner().invoke(args=["import", str(file)])


def empty_versions(count: int) -> bytes:
    return json.dumps(document("acme/clock", *[{}] * count), separators=(",", ":")).encode()


def many_versions(count: int) -> Json:
    return document("acme/clock", *(version(f"1.0.{number}") for number in range(count)))


def import_quickly(app: Flask, *documents: Json) -> list[str]:
    """Return the lines about an invalid file, which must take at most two seconds of CPU time."""
    content = b"".join(json.dumps(each).encode() + b"\n" for each in documents)
    begun = time.process_time()
    result = import_file(app, content)
    assert time.process_time() - begun < 2
    assert result.exit_code == 1
    return result.stderr.splitlines()


def test_a_document_has_at_most_ten_thousand_versions(app: Flask) -> None:
    assert len(check_document(many_versions(10_000)).versions) == 10_000
    (line,) = import_quickly(app, document("acme/clock", *[{}] * 10_001))
    assert line.endswith(
        "input.jsonl line 1, acme/clock: versions has 10001 entries, more than the 10000 allowed."
    )


def test_problems_of_one_document_end_after_twenty_with_a_closing_line(app: Flask) -> None:
    lines = import_quickly(app, document("acme/clock", *[{}] * 9000))
    assert len(lines) == 21
    assert lines[0].endswith("input.jsonl line 1, acme/clock: versions[0]: version is missing.")
    assert lines[-1] == "There may be more problems after these."


def peak_memory(app: Flask, content: bytes) -> int:
    """Return the bytes of memory that the import of an invalid file takes at most."""
    tracemalloc.start()
    try:
        assert import_file(app, content).exit_code == 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_proportional_to_the_length_of_a_line(app: Flask) -> None:
    # At this rate, the most values that a line may have take 200 MB.
    assert peak_memory(app, empty_versions(60_000)) < 20_000_000


def test_line_with_too_many_values_is_refused_before_it_is_parsed(app: Flask) -> None:
    content = b"[" + b"{}," * 1_000_000 + b"{}]"
    assert peak_memory(app, content) < 5 * len(content)
    result = import_file(app, content)
    assert result.stderr.endswith(
        "input.jsonl line 1: has more than 2000000 commas and brackets.\n"
    )


def test_line_without_an_end_is_refused(app: Flask) -> None:
    file = Path(app.config["DATABASE"]).with_name("input.jsonl")
    with file.open("wb") as output:
        output.write(json.dumps(document("acme/clock")).encode() + b"\n")
        output.truncate(2**32)
    result = app.test_cli_runner().invoke(args=["import", str(file)])
    assert result.exit_code == 1
    assert result.stderr.endswith("input.jsonl line 2: is longer than 67108864 bytes.\n")


MARKED = [
    ({"displayName": MARKS}, "displayName must be text of at most 10000 characters"),
    ({"bundleUrl": f"http://{MARKS}/x.js"}, "bundleUrl must be an absolute http or https URL of"),
    ({"bundleUrl": f"http://a/{MARKS}"}, "bundleUrl must be an absolute http or https URL of"),
    ({"bundleUrl": f"http://{MARKS[:8000]}/x"}, "bundleUrl must be an absolute http or https URL,"),
]


@pytest.mark.parametrize(("fields", "problem"), MARKED, ids=["text", "host", "path", "short host"])
def test_texts_of_many_marks_are_refused_in_linear_time(
    app: Flask, fields: Json, problem: str
) -> None:
    count = 500 if len(str(fields)) < 10_000 else 1
    documents = [document(f"acme/n{number}", version(**fields)) for number in range(count)]
    assert problem in import_quickly(app, *documents)[0]
