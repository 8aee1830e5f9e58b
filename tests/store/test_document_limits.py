"""Limits of a widget document, and bounds of the time and memory to check one."""

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import Json, document, version
from click.testing import Result
from flask import Flask

AppWith = Callable[..., Flask]
MARKS = "a" + "\u0301\u0316" * 100_000
# Used in place of 10,000 where a test needs as many valid versions as are allowed.
FEW = 20


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


@contextmanager
def at_most_two_seconds() -> Iterator[None]:
    """Fail if the block takes more CPU time."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < 2


def test_document_with_the_most_versions_allowed_is_imported(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.documents.MAX_VERSIONS", FEW)
    result = import_file(app, json.dumps(many_versions(FEW)).encode())
    assert (result.exit_code, result.stderr) == (
        0,
        "Imported 1 widget and 20 versions: 1 added, 0 changed, 0 unchanged.\n",
    )
    result = import_file(app, json.dumps(many_versions(FEW + 1)).encode())
    assert result.exit_code == 1
    assert "versions has 21 entries, more than the 20 allowed" in result.stderr


def test_more_than_ten_thousand_versions_are_refused_in_a_sentence(app: Flask) -> None:
    result = import_file(app, empty_versions(10_001))
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "input.jsonl line 1, acme/clock: versions has 10001 entries, more than the 10000 allowed\n"
    )


def test_publish_does_not_exceed_the_most_versions_allowed(
    app_with: AppWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.store.write.publishing.MAX_VERSIONS", FEW)
    app = app_with(many_versions(FEW), BUNDLE_URL="https://cdn.example.com/{version}.js")
    files = [Path(app.config["DATABASE"]).with_name(name) for name in ("clock.json", "clock.js")]
    manifest = {"scope": "acme", "name": "clock", "version": "2.0.0", "sdkVersion": "^1.0.0"}
    files[0].write_text(json.dumps(manifest), "utf-8")
    files[1].write_bytes(b"tick")
    result = app.test_cli_runner().invoke(args=["publish", *map(str, files)])
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: acme/clock has 20 versions, which is as many as a widget may have.\n",
    )


@pytest.mark.parametrize("count", [9000, 16_000])
def test_many_problems_in_one_line_take_as_long_as_a_few(app: Flask, count: int) -> None:
    with at_most_two_seconds():
        result = import_file(app, empty_versions(count))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) <= 21


def test_problems_of_one_document_end_after_twenty_with_a_closing_line(app: Flask) -> None:
    lines = import_file(app, empty_versions(1000)).stderr.splitlines()
    assert len(lines) == 21
    assert lines[0].endswith("input.jsonl line 1, acme/clock: versions[0]: version is missing")
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
    assert result.stderr.endswith("input.jsonl line 1: has more than 2000000 commas and brackets\n")


def test_line_without_an_end_is_refused(app: Flask) -> None:
    file = Path(app.config["DATABASE"]).with_name("input.jsonl")
    with file.open("wb") as output:
        output.write(json.dumps(document("acme/clock")).encode() + b"\n")
        output.truncate(2**32)
    result = app.test_cli_runner().invoke(args=["import", str(file)])
    assert result.exit_code == 1
    assert result.stderr.endswith("input.jsonl line 2: is longer than 67108864 bytes\n")


@pytest.mark.parametrize("key", ["displayName", "description"])
def test_text_of_many_marks_is_refused_in_linear_time(app: Flask, key: str) -> None:
    content = json.dumps(document("acme/clock", **{key: MARKS})).encode()
    with at_most_two_seconds():
        result = import_file(app, content)
    assert f"{key} must be text of at most 10000 characters" in result.stderr


@pytest.mark.parametrize("url", [f"http://{MARKS}/x.js", f"http://a/{MARKS}"], ids=["host", "path"])
def test_url_of_many_marks_is_refused_in_linear_time(app: Flask, url: str) -> None:
    content = json.dumps(document("acme/clock", version(bundleUrl=url))).encode()
    with at_most_two_seconds():
        result = import_file(app, content)
    assert "bundleUrl must be an absolute http or https URL of at most 8192 " in result.stderr


def test_hosts_of_many_marks_are_refused_in_linear_time(app: Flask) -> None:
    urls = [f"http://{MARKS[:8000]}{number}/x.js" for number in range(500)]
    versions = [version(f"1.0.{number}", bundleUrl=url) for number, url in enumerate(urls)]
    lines = [document(f"acme/n{number}", each) for number, each in enumerate(versions)]
    content = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    with at_most_two_seconds():
        result = import_file(app, content)
    assert "bundleUrl must be an absolute http or https URL, not " in result.stderr
