"""No pattern and no parser takes much more than twice the time for a text of twice the length.

The CPU time of the thread is measured, never that of a clock. Quadratic time would be seconds with
these lengths, and linear time is milliseconds: so short times never decide, and neither does a
single measurement.
"""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import catalog
from catalog.api.compression import WEIGHT
from catalog.domain import folding, installed_list, replacement, semver_ranges, validators
from catalog.domain.documents import parse_json
from catalog.web.markdown import first_paragraph, render_markdown

LENGTH = 8_000
# Below it, doubling may show the cost of a cache or of the machine.
FLOOR = 0.05  # seconds
# One of each class of characters, and texts that a pattern could begin with
RUNS = {
    "newlines": "\n",
    "blanks": " ",
    "tabs": "\t",
    "digits": "7",
    "letters": "a",
    "stars": "*",
    "underscores": "_",
    "brackets": "[",
    "angle brackets": ">",
    "backticks": "`",
    "dots": ".",
    "dashes": "-",
    "slashes": "/",
    "colons": ":",
    "commas": ",",
    "equals signs": "=",
    "braces": "{",
    "quotes": '"',
    "backslashes": "\\",
    "combining marks": "\u0301\u0316",
    "capitals with a dot": "\u0130",
    "words": "a ",
    "numbers": "1.",
    "names": "a-",
    "lines": "\n a",
    "replacements": "Replaced by ",
    "ranges": ">=1.0.0 ",
    "alternatives": "1 ||",
    "URLs": "http://",
    "functions": "url(#",
    "weights": "a;q=0,",
}


def cpu_time(function: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    with suppress(ValueError, RecursionError):
        function(text)
    return time.thread_time() - start


def assert_linear(function: Callable[[str], object], unit: str, length: int, tail: str) -> None:
    half, whole = ((unit * (size // len(unit)))[:size] + tail for size in (length // 2, length))
    for _ in range(4):
        long = cpu_time(function, whole)
        if long < FLOOR or long <= 3 * cpu_time(function, half):
            return
    pytest.fail(f"{function!r} takes {long:.3f} s for {whole[:40]!r}…")


SCANS = {"search", "sub", "subn", "split", "findall", "finditer"}


def method(pattern: re.Pattern[str] | re.Pattern[bytes], *, scans: bool) -> Callable[[str], object]:
    """Return a function that applies the pattern to a whole text, or looks for it in one."""
    name = "findall" if scans else "fullmatch"
    apply: Callable[[str | bytes], object] = getattr(pattern, name)
    return apply if isinstance(pattern.pattern, str) else lambda text: apply(text.encode())


@cache
def used_patterns() -> dict[str | bytes, Callable[[str], object]]:
    """Return each pattern of the service as it is used: on a whole text, or inside of one."""
    root = Path(catalog.__file__).parent
    scanned = set()
    patterns: dict[str | bytes, Callable[[str], object]] = {}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=attr),
                    args=[ast.Constant(value=str() | bytes() as pattern), *_],
                ) if attr != "compile":
                    patterns[pattern] = method(re.compile(pattern), scans=attr in SCANS)
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in SCANS:
                    scanned.add(name)
    for module in pkgutil.walk_packages([str(root)], "catalog."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                patterns[value.pattern] = method(value, scans=name in scanned)
    return patterns


@pytest.mark.parametrize("unit", RUNS.values(), ids=RUNS)
def test_every_pattern_takes_linear_time(unit: str) -> None:
    assert len(used_patterns()) > 50
    for apply in used_patterns().values():
        for tail in ("", "\0"):
            assert_linear(apply, unit, LENGTH, tail)


# Each parser of text from outside, with the longest text that it can get
PARSERS: dict[str, tuple[Callable[[str], object], int]] = {
    "range": (semver_ranges.is_range, semver_ranges.MAX_RANGE_LENGTH),
    "version": (semver_ranges.is_version, 10_000),
    "SDK": (semver_ranges.parse_sdk, 16_000),
    "URL": (validators.check_http_url, validators.MAX_URL_LENGTH),
    "URL after its scheme": (
        lambda text: validators.check_http_url(f"https://{text}"),
        validators.MAX_URL_LENGTH - 8,
    ),
    "base URL": (validators.check_base_url, validators.MAX_URL_LENGTH),
    "URL template": (validators.check_url_template, validators.MAX_URL_LENGTH),
    "time": (validators.check_timestamp, 100_000),
    "icon": (validators.is_icon_name, validators.MAX_TEXT_LENGTH),
    "name": (validators.check_new_name, 16_000),
    "search": (folding.fold, 16_000),
    "description": (folding.fold, validators.MAX_TEXT_LENGTH),
    "message": (replacement.find_replacement, validators.MAX_TEXT_LENGTH),
    "JSON": (lambda text: parse_json(text.encode()), 64 * 1024),
    "lockfile": (installed_list.read_installed_list, 64 * 1024),
    "Markdown": (render_markdown, validators.MAX_MARKDOWN_BYTES),
    "card": (first_paragraph, validators.MAX_MARKDOWN_BYTES),
    "weight": (WEIGHT.fullmatch, 16_000),
}


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_takes_linear_time_at_its_limit(name: str) -> None:
    parse, length = PARSERS[name]
    for unit in RUNS.values():
        for tail in ("", "\0"):
            assert_linear(parse, unit, length, tail)
