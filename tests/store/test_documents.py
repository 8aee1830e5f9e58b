"""check_document: valid and invalid values of each field, and the problems that are reported."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from builders import Json, document, version
from conftest import DEMO, ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.domain.documents import DocumentError, check_document
from catalog.domain.messages import quoted
from catalog.store.connection.transaction import Transaction
from catalog.store.write.documents import put_documents

GREATEST = 2**53 - 1
DIGEST = "0123456789abcdef" * 4
BOOLEAN = "true or false"
COUNT = f"a whole number from 0 to {GREATEST}"
NOT_EMPTY = "a non-empty string"
IDENTIFIER = "1 to 214 printable characters without a slash, not . or .."
TEXT = "a Unicode string without NUL characters"
TIME = "an ISO 8601 time with an offset, such as 2025-01-02T03:04:05.000Z"

NAN, INFINITY = float("nan"), float("inf")


def problems_of(value: object) -> list[str]:
    with pytest.raises(DocumentError) as refused:
        check_document(value)
    return refused.value.problems


def short_id(value: object) -> str:
    """Return the id of a test case for a value of any length."""
    return ascii(value)[:40]


REQUIRED = {
    "widget": "scope name displayName",
    "version": "version bundleUrl bundleSize sha256Hash publishedAt sdkVersion",
}


@pytest.mark.parametrize("absent", [{}, {"key": None}], ids=["absent", "null"])
@pytest.mark.parametrize(
    ("part", "key"), [(part, key) for part, keys in REQUIRED.items() for key in keys.split()]
)
def test_field_is_required(part: str, key: str, absent: Json) -> None:
    invalid = document("acme/clock", version())
    fields = {"widget": invalid["widget"], "version": invalid["versions"][0]}[part]
    del fields[key]
    fields |= dict.fromkeys([key] * len(absent))
    (problem,) = problems_of(invalid)
    assert problem.endswith(f"{key} is missing")


@pytest.mark.parametrize("value", [None, [], "text", NAN, {}, {"widget": []}], ids=short_id)
def test_value_that_is_no_document_is_refused(value: object) -> None:
    assert problems_of(value) == ['must be an object {"widget": {...}, "versions": [...]}']


@pytest.mark.parametrize("absent", [{}, {"versions": None}, {"versions": []}], ids=short_id)
def test_versions_may_be_absent_null_or_empty(absent: Json) -> None:
    assert check_document({"widget": document()["widget"], **absent}).versions == []


def test_versions_must_be_an_array_of_objects() -> None:
    no_array = {**document(), "versions": {"1.0.0": 1}}
    assert problems_of(no_array) == ['versions must be an array, not {"1.0.0": 1}']
    no_object = {**document(), "versions": [version(), "2.0.0"]}
    assert problems_of(no_object) == ["versions[1] must be an object, not '2.0.0'"]


INVALID_NAMES = ["", ".", "..", "a/b", "a\nb", "a\0b", "a\u200bb", "x" * 215, "\ud800", 5, []]
INVALID_COUNTS = [-1, True, 1.5, "12", NAN, -INFINITY, GREATEST + 1, 10**400]
INVALID_SIZES = [[1, 1], {"w": 1}, {"w": -1, "h": 1}, {"w": 1, "h": True}]
INVALID_URLS = [
    *("", "javascript:alert(1)", "ftp://example.com/x.js", "//example.com/x.js", "x.js", 5),
    *("https:x.js", "https:///x.js", "https://:80/", "https://@/", "https://[::1/x.js"),
    *("https:\\\\example.com\\x.js", " https://example.com/", "https://example.com/ x"),
    *("https://example.com/\n", "java\nscript:x", "https://a\u00a0b/", "https://a/\ud800"),
]
INVALID_TIMES = [
    *("", "now", "2025-01-02", "2025-01-02T03:04:05", "1735787045", 5, "2025-02-29T00:00:00Z"),
    *("2016-12-31T23:59:60Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"),
    *("2025-01-02T03:04:05+24:00", "2025-01-02\x0003:04:05Z", "2025-01-02T03:04:05Z "),
    *("٢٠٢٥-01-02T03Z", "x" * 1_000_000),
]
INVALID_VERSIONS = [
    *("", "1.0", "v1.0.0", " 1.0.0", "1.0.0\n", "01.0.0", "1.0.0-٣", 1, True),
    *("1\nError: all is well", "\x1b[2J", "x" * 1000, "\ud800"),
]
DIGITS, NUMBER = "64 hexadecimal digits", f"a number of at most {GREATEST}"
SIZE, STRINGS = (
    'an object of two whole numbers, such as {"w": 1, "h": 1}',
    "an array of at most 100 strings",
)
INVALID: dict[str, list[tuple[str, str, list[Any]]]] = {
    "widget": [
        ("scope", IDENTIFIER, INVALID_NAMES),
        ("name", IDENTIFIER, [""]),
        ("displayName", NOT_EMPTY, [""]),
        *((key, TEXT, [5, ["x"], "a\0b", "\ud83d"]) for key in ("displayName", "icon")),
        ("description", TEXT, [5, {}, "\0", "\ud83d"]),
        *((key, BOOLEAN, [0, 1, "true", ""]) for key in ("isOfficial", "listed")),
        ("downloadCount", COUNT, INVALID_COUNTS),
        ("createdAt", TIME, INVALID_TIMES),
    ],
    "version": [
        ("version", "a SemVer version such as 1.4.0", INVALID_VERSIONS),
        ("bundleUrl", "an absolute http or https URL", INVALID_URLS),
        ("bundleSize", COUNT, [-1, True]),
        ("sha256Hash", DIGITS, [DIGEST[1:], DIGEST + "0", "g" * 64, 5, "٣" * 64, "０" * 64]),
        ("publishedAt", TIME, ["2025-01-02T03:04:05", 5]),
        ("yanked", BOOLEAN, [0, "false"]),
        *((key, TEXT, [False, "\ud83d"]) for key in ("yankedReason", "deprecationMessage")),
        *((key, TEXT, [["x"], "\0"]) for key in ("releaseNotes", "description", "icon")),
        *((key, TEXT, [1, "\ud83d"]) for key in ("sdkVersion", "license")),
        ("displayName", NOT_EMPTY, [""]),
        *((key, SIZE, INVALID_SIZES) for key in ("minSize", "maxSize")),
        ("configVersion", NUMBER, [True, "1", NAN, INFINITY, 2**53, -(2**53), 1e300]),
        ("permissions", STRINGS, ["x", {}, [1], ["a", None], ["\0"]]),
    ],
}
INVALID_CASES = [
    pytest.param(part, key, allowed, value, id=f"{part}-{key}-{short_id(value)}")
    for part, rows in INVALID.items()
    for key, allowed, values in rows
    for value in values
]


@pytest.mark.parametrize(("part", "key", "allowed", "value"), INVALID_CASES)
def test_problem_names_field_value_and_what_is_allowed(
    part: str, key: str, allowed: str, value: object
) -> None:
    invalid = document("acme/clock", version())
    {"widget": invalid["widget"], "version": invalid["versions"][0]}[part][key] = value
    (problem,) = problems_of(invalid)
    # The problem may say more about what is allowed.
    place = "versions[0]: " if key == "version" else "version 1.0.0: " * (part == "version")
    assert problem.startswith(f"{place}{key} must be {allowed}")
    assert problem.endswith(f", not {quoted(value)}")
    assert problem.isprintable()
    assert len(problem) < 300


ACCEPTED = [
    ("bundleSize", 1.0, "bundle_size", 1),
    ("bundleSize", GREATEST, "bundle_size", GREATEST),
    ("sha256Hash", DIGEST.upper(), "sha256_hash", DIGEST),
    ("configVersion", 2.0, "config_version", 2),
    ("configVersion", -1.5, "config_version", "-1.5"),
    ("configVersion", 0.1 + 0.2, "config_version", "0.30000000000000004"),
    ("permissions", ["b", "", "é\n", "b"], "permissions", '["b", "", "é\\n", "b"]'),
    ("releaseNotes", "\u202eabc\x01\u2028👩‍👩‍👧", "release_notes", "\u202eabc\x01\u2028👩‍👩‍👧"),
    ("sdkVersion", "", "sdk_version", ""),
    ("bundleUrl", "HTTP://[::1]:8080/x.js?y#z", "bundle_url", "HTTP://[::1]:8080/x.js?y#z"),
    ("bundleUrl", "https://müller.example/ö", "bundle_url", "https://müller.example/ö"),
    ("maxSize", {"w": 12.0, "h": 1, "d": 9}, "max_w", 12),
]


@pytest.mark.parametrize(("key", "value", "column", "stored"), ACCEPTED, ids=short_id)
def test_version_field_is_accepted(key: str, value: object, column: str, stored: object) -> None:
    (row,) = check_document(document("acme/clock", version(**{key: value}))).versions
    assert (row[column], type(row[column])) == (stored, type(stored))


TIMES = {
    "2025-01-02T03:04:05.6789999Z": "2025-01-02T03:04:05.678Z",
    "2025-01-02T03:04Z": "2025-01-02T03:04:00.000Z",
    "2025-01-02 03:04:05+00:00": "2025-01-02T03:04:05.000Z",
    "20250102T030405Z": "2025-01-02T03:04:05.000Z",
    "2025-W01-4T03:04:05,5-00:00": "2025-01-02T03:04:05.500Z",
    "2025-01-02T03:04:05+05:30": "2025-01-01T21:34:05.000Z",
    "2024-02-29T23:00:00-0200": "2024-03-01T01:00:00.000Z",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z",
}


@pytest.mark.parametrize(("text", "stored"), TIMES.items())
def test_time_with_an_offset_is_converted_to_utc(text: str, stored: str) -> None:
    checked = check_document(document("acme/clock", version(publishedAt=text), createdAt=text))
    assert (checked.widget["created_at"], checked.versions[0]["published_at"]) == (stored, stored)


def test_all_problems_of_a_document_are_reported() -> None:
    invalid = version("1.0.0", bundleSize=-1, yanked="no")
    assert problems_of(document("acme/", invalid, version("2"), createdAt=1, isOfficial="")) == [
        f"name must be {IDENTIFIER}, not ''",
        f"displayName must be {NOT_EMPTY}, not ''",
        f"isOfficial must be {BOOLEAN}, not ''",
        f"createdAt must be {TIME}, not 1",
        f"version 1.0.0: bundleSize must be {COUNT}, not -1",
        f"version 1.0.0: yanked must be {BOOLEAN}, not 'no'",
        "versions[1]: version must be a SemVer version such as 1.4.0, not '2'",
    ]


def test_scope_and_name_of_a_version_must_match_the_widget() -> None:
    assert check_document(document("acme/clock", version(scope="acme", name="clock")))
    assert problems_of(document("acme/clock", version(scope="Acme", name=5))) == [
        "version 1.0.0: scope must match the widget's scope 'acme', not 'Acme'",
        "version 1.0.0: name must match the widget's name 'clock', not 5",
    ]


def test_duplicate_version_is_refused() -> None:
    versions = [version(number) for number in ("1.0.0", "1.0.0+a", "1.0.0+b", "1.0.0")]
    assert problems_of(document("acme/clock", *versions)) == ["version 1.0.0 appears twice"]


@pytest.mark.parametrize(
    ("min_size", "max_size"), [((3, 1), (2, 9)), ((1, 3), (9, 2)), ((13, 1), None)]
)
def test_min_size_must_not_exceed_max_size(min_size: Any, max_size: Any) -> None:
    sizes = {"minSize": min_size, "maxSize": max_size}
    sizes = {key: dict(zip("wh", size, strict=True)) for key, size in sizes.items() if size}
    (problem,) = problems_of(document("acme/clock", version(**sizes)))
    assert re.fullmatch(r"version 1\.0\.0: minSize, .*, must not exceed maxSize, .*", problem)


def test_unknown_keys_and_latest_version_are_ignored() -> None:
    plain = document("acme/clock", version())
    extended = document("acme/clock", version(latestVersion=5, x=NAN), latestVersion=[], y={})
    assert check_document({**extended, "latestVersion": "9.9.9", "z": 1}) == check_document(plain)


def test_deeply_nested_value_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    (problem,) = problems_of(document(description=deep))
    assert problem.startswith(f"description must be {TEXT}")


any_text = st.text(st.characters(exclude_categories=[]), max_size=5)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(any_text, inner, max_size=2),
    max_leaves=4,
)
COMPLETE = json.loads(DEMO.read_bytes().splitlines()[0])
some_changes = st.dictionaries(
    st.sampled_from(sorted({*COMPLETE["widget"], *COMPLETE["versions"][0]})), any_json, max_size=2
)


@given(any_json)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_arbitrary_json_is_refused(value: object) -> None:
    assert problems_of(value)
    assert problems_of({"widget": value, "versions": value})


@pytest.fixture(scope="module")
def tables() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript((ROOT / "schema.sql").read_text(encoding="utf-8"))
        yield connection


@given(some_changes, some_changes)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_accepted_documents_satisfy_the_schema(
    tables: sqlite3.Connection, widget_changes: Json, version_changes: Json
) -> None:
    widget, entry = COMPLETE["widget"] | widget_changes, COMPLETE["versions"][0] | version_changes
    try:
        checked = check_document({"widget": widget, "versions": [entry]})
    except DocumentError:
        return
    tables.execute("BEGIN")
    transaction = Transaction(tables)
    put_documents(transaction, [checked])
    transaction.finish()
    (found,) = tables.execute("SELECT count(*) FROM version").fetchone()
    tables.execute("ROLLBACK")
    assert found == 1
