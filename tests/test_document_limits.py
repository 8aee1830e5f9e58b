"""What a document may hold at most, and that the time and memory to check it stay in bounds."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json, document, version
from click.testing import Result
from flask import Flask

AppWith = Callable[..., Flask]
MARKS = "a" + "\u0301\u0316" * 100_000


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with()


def run(app: Flask, content: bytes) -> Result:
    file = Path(app.config["DATABASE"]).with_name("given.jsonl")
    file.write_bytes(content)
    return app.test_cli_runner().invoke(args=["import", str(file)])


def empty_versions(count: int) -> bytes:
    given = document("acme/clock", *[{} for _ in range(count)])
    return json.dumps(given, separators=(",", ":")).encode()


def many_versions(count: int) -> Json:
    return document("acme/clock", *(version(f"1.0.{number}") for number in range(count)))


def test_document_of_as_many_versions_as_are_allowed_is_imported(app: Flask) -> None:
    result = run(app, json.dumps(many_versions(10_000)).encode())
    assert (result.exit_code, result.stderr) == (
        0,
        "Imported 1 widget and 10000 versions: 1 added, 0 changed, 0 unchanged.\n",
    )


def test_document_of_more_versions_is_refused_in_a_sentence(app: Flask) -> None:
    result = run(app, json.dumps(many_versions(10_001)).encode())
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "given.jsonl line 1, acme/clock: versions has 10001 entries, more than the 10000 allowed\n"
    )


def test_publish_adds_no_version_beyond_those_that_are_allowed(app_with: AppWith) -> None:
    app = app_with(many_versions(10_000), BUNDLE_URL="https://cdn.example.com/{version}.js")
    files = [Path(app.config["DATABASE"]).with_name(name) for name in ("clock.json", "clock.js")]
    manifest = {"scope": "acme", "name": "clock", "version": "2.0.0", "sdkVersion": "^1.0.0"}
    files[0].write_text(json.dumps(manifest), "utf-8")
    files[1].write_bytes(b"tick")
    result = app.test_cli_runner().invoke(args=["publish", *map(str, files)])
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: acme/clock has 10000 versions, which is as many as a widget may have.\n",
    )


@pytest.mark.parametrize("count", [9000, 16_000])
def test_many_problems_of_one_line_cost_no_more_than_a_few(app: Flask, count: int) -> None:
    content = empty_versions(count)
    began = time.process_time()
    result = run(app, content)
    assert time.process_time() - began < 2
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) <= 21


def test_problems_of_one_document_end_after_twenty_with_a_closing_line(app: Flask) -> None:
    lines = run(app, empty_versions(1000)).stderr.splitlines()
    assert len(lines) == 21
    assert lines[0].endswith("given.jsonl line 1, acme/clock: versions[0]: version is missing")
    assert lines[-1] == "There may be more problems after these."


@pytest.mark.parametrize("count", [600_000, 1_000_000])
def test_memory_stays_in_proportion_to_a_line(app: Flask, count: int) -> None:
    content = empty_versions(count)
    tracemalloc.start()
    try:
        result = run(app, content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 1
    assert peak < 200_000_000


def test_line_with_more_values_than_memory_should_hold_is_refused(app: Flask) -> None:
    result = run(app, b"[" + b"{}," * 1_000_000 + b"{}]")
    assert result.exit_code == 1
    assert result.stderr.endswith("given.jsonl line 1: has more than 2000000 commas and brackets\n")


def test_line_without_an_end_is_refused(app: Flask) -> None:
    file = Path(app.config["DATABASE"]).with_name("given.jsonl")
    with file.open("wb") as output:
        output.write(json.dumps(document("acme/clock")).encode() + b"\n")
        output.truncate(2**32)
    result = app.test_cli_runner().invoke(args=["import", str(file)])
    assert result.exit_code == 1
    assert result.stderr.endswith("given.jsonl line 2: is longer than 67108864 bytes\n")


@pytest.mark.parametrize("key", ["displayName", "description"])
def test_text_of_many_marks_is_imported_in_linear_time(app: Flask, key: str) -> None:
    content = json.dumps(document("acme/clock", **{key: MARKS})).encode()
    began = time.process_time()
    result = run(app, content)
    assert time.process_time() - began < 2
    assert result.exit_code == 0


@pytest.mark.parametrize("url", [f"http://{MARKS}/x.js", f"http://a/{MARKS}"], ids=["host", "path"])
def test_url_of_many_marks_is_refused_in_linear_time(app: Flask, url: str) -> None:
    content = json.dumps(document("acme/clock", version(bundleUrl=url))).encode()
    began = time.process_time()
    result = run(app, content)
    assert time.process_time() - began < 2
    assert "bundleUrl must be an absolute http or https URL of at most 8192 " in result.stderr


def test_hosts_of_many_marks_are_refused_in_linear_time(app: Flask) -> None:
    urls = [f"http://{MARKS[:8000]}{number}/x.js" for number in range(500)]
    versions = [version(f"1.0.{number}", bundleUrl=url) for number, url in enumerate(urls)]
    lines = [document(f"acme/n{number}", each) for number, each in enumerate(versions)]
    content = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    began = time.process_time()
    result = run(app, content)
    assert time.process_time() - began < 2
    assert "bundleUrl must be an absolute http or https URL, not " in result.stderr
