"""Ranges as intervals: they contain the key of an SDK if and only if the range admits it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document, version
from conftest import put, run
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.domain.sdk_intervals import sdk_intervals, sdk_key
from catalog.domain.semver_ranges import is_version, satisfies

NODE = json.loads((Path(__file__).parent.parent / "data" / "node-semver.json").read_text("utf-8"))
RANGES = [*(case[0] for case in NODE["cases"]), *(row[0] for row in NODE["grid"]["ranges"])]
VERSIONS = {*(case[1] for case in NODE["cases"]), *(text for text, _ in NODE["versions"])}
VALID = sorted(filter(is_version, {*VERSIONS, *NODE["grid"]["versions"]}))


def test_intervals_admit_the_versions_that_node_admits() -> None:
    keys = {version: sdk_key(version) for version in VALID}
    for range_ in dict.fromkeys(RANGES):
        intervals = sdk_intervals(range_)
        admitted = [v for v in VALID if any(low <= keys[v] < high for low, high in intervals)]
        assert admitted == [v for v in VALID if satisfies(v, range_)], range_


numbers = st.sampled_from(["0", "1", "2", "3", "10", "9007199254740991"])
# The last four numbers are only three doubles.
prereleases = st.sampled_from(
    [
        *("", "", "", "-0", "-1", "-10", "-a", "-a.1", "-a.b", "-a-b", "-A", "-rc.9", "-rc.10"),
        *("-9007199254740991", "-9007199254740992", "-9007199254740993", "-" + "9" * 200),
    ]
)
versions = st.tuples(numbers, numbers, numbers, prereleases, st.sampled_from(["", "+b.1"])).map(
    lambda drawn: ".".join(drawn[:3]) + drawn[3] + drawn[4]
)
partials = st.lists(numbers | st.sampled_from(["x", "*"]), min_size=1, max_size=2).map(".".join)
operators = st.sampled_from(["", "^", "~", "<", "<=", ">", ">=", "="])
comparators = st.tuples(operators, versions | partials).map("".join)
hyphens = st.tuples(versions, versions).map(" - ".join)
alternatives = st.lists(comparators, min_size=1, max_size=3).map(" ".join) | hyphens
ranges = st.lists(alternatives, min_size=1, max_size=3).map(" || ".join)


@given(ranges, st.lists(versions, min_size=5, max_size=5))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_intervals_are_in_order_and_admit_what_satisfies_admits(
    range_: str, sdks: list[str]
) -> None:
    intervals = sdk_intervals(range_)
    bounds = [bound for interval in intervals for bound in interval]
    assert bounds == sorted(set(bounds))
    for sdk in sdks:
        is_admitted = any(low <= sdk_key(sdk) < high for low, high in intervals)
        assert is_admitted is satisfies(sdk, range_)


@pytest.mark.parametrize("range_", ["banana", "1.0.0 || banana", "^1.0.0 <1.0.0", ">1.0.0 <=1.0.0"])
def test_range_that_admits_nothing_has_no_interval(range_: str) -> None:
    assert sdk_intervals(range_) == []


STORED_RANGES = "SELECT range FROM sdk_range ORDER BY range"


def test_range_that_no_version_has_is_not_kept(app_with: Callable[..., Flask]) -> None:
    ranges = {"1.0.0": "^1.0.0", "1.1.0": "^1.0.0 || ^2.0.0", "2.0.0": "^2.0.0"}
    versions = [version(number, sdkVersion=range_) for number, range_ in ranges.items()]
    app = app_with(document("acme/clock", *versions), document("acme/notes", versions[0]))

    def stored() -> list[str]:
        return [each for (each,) in app.extensions["database"].fetch(STORED_RANGES, {})]

    assert stored() == sorted(ranges.values())
    run(app, "delete", "acme/clock@1.1.0", "--yes")
    assert stored() == ["^1.0.0", "^2.0.0"]
    run(app, "delete", "acme/clock", "--yes")
    assert stored() == ["^1.0.0"]
    put(app, document("acme/notes", version("1.0.0", sdkVersion="^3.0.0")))
    assert stored() == ["^3.0.0"]
    assert run(app, "check").exit_code == 0
