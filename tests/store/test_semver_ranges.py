"""Versions and ranges: the same results as node-semver and the semver package, in linear time."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semver import Version

from catalog.domain.semver_ranges import (
    MAX_RANGE_LENGTH,
    is_range,
    is_version,
    precedence,
    satisfies,
)

# Results of node-semver; the key "format" in the file describes it.
NODE = json.loads((Path(__file__).parent.parent / "data" / "node-semver.json").read_text("utf-8"))
GRID_VERSIONS = NODE["grid"]["versions"]
GRID_RANGES = NODE["grid"]["ranges"]

property_settings = settings(derandomize=True, deadline=None)

numbers = st.integers(0, 12).map(str) | st.integers(0, 2**53 - 1).map(str)
cores = st.tuples(numbers, numbers, numbers).map(".".join)
words = st.from_regex(r"[0-9]{0,2}[A-Za-z-][0-9A-Za-z-]{0,3}", fullmatch=True)
identifiers = st.sampled_from(["0", "1", "10", "2", "a", "a-", "A", "-", "1a"]) | words
identifiers |= st.integers(0, 10**30).map(str)
prereleases = st.lists(identifiers, min_size=1, max_size=4).map(".".join)
builds = st.lists(words | numbers.map("0".__add__), min_size=1, max_size=2).map(".".join)
# Few distinct releases, so that prereleases of the same one are compared.
releases = st.sampled_from(["0.0.0", "1.2.3", "1.2.10"]) | cores
versions = st.builds(
    lambda release, prerelease, build: f"{release}{prerelease}{build}",
    releases,
    st.just("") | prereleases.map("-".__add__),
    st.just("") | builds.map("+".__add__),
)
partials = st.sampled_from(["*", "x", "0", "1", "1.x", "0.0", "1.2", "1.2.x", "0.0.0"]) | releases
simples = st.builds(
    str.__add__, st.sampled_from(["", "=", "<", "<=", ">", ">=", "~", "^"]), partials
)
range_like = st.text("0123x*.-+v=<>~^| \t\n\u00a0\ufeff\x85ab", max_size=40)


def sign(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


def without_build(version: str) -> str:
    return version.partition("+")[0]


# Comparison with node


def test_every_case_has_the_result_of_node() -> None:
    differing = [case for case in NODE["cases"] if satisfies(case[1], case[0]) is not case[2]]
    assert differing == []


def test_every_range_of_the_grid_admits_the_versions_that_node_admits() -> None:
    for text, valid, admitted in GRID_RANGES:
        assert is_range(text) is valid, text
        versions = [v for v, bit in zip(GRID_VERSIONS, admitted, strict=True) if bit == "1"]
        assert [v for v in GRID_VERSIONS if satisfies(v, text)] == versions, text


def test_every_version_is_valid_if_node_says_so() -> None:
    assert [text for text, valid in NODE["versions"] if is_version(text) is not valid] == []


def test_every_pair_of_versions_is_ordered_as_node_orders_it() -> None:
    for a, b, expected in NODE["order"]:
        assert sign(precedence(a), precedence(b)) == expected, (a, b)


# Results of node 7.8.6 for ranges beyond its grammar, which the data above does not have.
@pytest.mark.parametrize(
    ("text", "admits", "refuses"),
    [
        # Spaces after operators
        ("~ > 1.2", "1.2.9", "1.3.0"),
        ("~> > 1.2", "1.2.9", "1.3.0"),
        ("~>= 1.2.3", "1.2.9", "1.3.0"),
        ("^= 1.2.3", "1.9.0", "2.0.0"),
        ("> \u00a0 1.2.3", "1.2.4", "1.2.3"),
        (">+b 1.2.3", "1.2.4", "1.2.3"),
        ("= 1.2.3 <\ufeff2", "1.2.3", "1.2.4"),
        # Prefixes of partial and of whole versions
        (">vv1.2", "1.3.0", "1.2.9"),
        ("~vv1.2.3", "1.2.9", "1.3.0"),
        # Hyphen ranges
        ("1.2 - v = 2", "2.9.9", "3.0.0"),
        ("1 - v=2.0.0-b", "2.0.0-a", "2.0.0"),
        ("1 - +b 2.0.0", "2.0.0", "2.0.1"),
        ("+a +b 1.2.3 - 2 +c", "2.9.9", "1.2.2"),
        ("1.x.99999999999999999999 - 2", "1.0.0", "3.0.0"),
        # Numbers after an x
        ("~1.x.3", "1.0.0", "2.0.0"),
        ("^x.99999999999999999999", "0.0.1", "0.0.1-a"),
        # Stray stars and builds
        ("*1.2.3", "1.2.3", "1.2.4"),
        ("1.2>=*.3", "1.2.3", "1.2.4"),
        ("1.2.3-v= *", "1.2.3-v", "1.2.3"),
        ("1.2.3+*b", "1.2.3", "1.2.4"),
        ("+b", "0.0.1", "0.0.1-a"),
        ("1.2.3+b+c", "1.2.3", "1.2.4"),
        # What counts as "*" hides the other alternatives, the rest does not
        (">=0 || 1.2.3-b", "1.2.3", "1.2.3-b"),
        ("0.0.0 - x || 1.2.3-b", "1.2.3", "1.2.3-b"),
        (">=v0.0.0 || 1.2.3-b", "1.2.3-b", "1.2.3-a"),
        ("v0.0.0 - x || 1.2.3-b", "1.2.3-b", "1.2.3-a"),
        ("^0 ^0.0.0-a", "0.0.0-b", "0.0.0-A"),
        # Below a partial version is below its prereleases too
        ("^1.2 <=2.0.0-b", "1.9.0", "2.0.0-a"),
        ("<2 <=2.0.0-b", "1.9.0", "2.0.0-a"),
        ("<=1 <=2.0.0-b", "1.9.0", "2.0.0-a"),
        # Numbers near the limit
        ("<9007199254740991", "9007199254740990.0.0", "9007199254740991.0.0"),
        ("=1.2.3-9007199254740993", "1.2.3-9007199254740992", "1.2.3-9007199254740994"),
        ("<=1.2.3-9007199254740992", "1.2.3-9007199254740993.1", "1.2.3-9007199254740992.1"),
        # Over 256 characters, with the longest numbers, identifiers and versions
        (" || ".join(f"^{n}.{n + 1}.0" for n in range(300)), "299.300.0", "2.0.0"),
        ("".join(f">{n} " for n in range(800)), "900.0.0", "299.300.0"),
        ("1||" * 1365, "2.0.0", "1.2.3-a"),
        (">0 " * 1365, "1.2.3", "0.0.1"),
        ("1.2.3".ljust(4096), "1.2.3", "1.2.4"),
        (f"^1.2.3+{'b' * 4000}", "1.9.9", "2.0.0"),
        (f"^1.2.3+{'b.' * 2000}b", "1.9.9", "2.0.0"),
        (f"1.x.x-{'a.' * 2000}a", "1.9.9", "2.0.0"),
        (f"1.x.x-{'a' * 251}.b", "1.9.9", "2.0.0"),
        (f"1.x.x-{'1' * 256}{'a' * 251}", "1.9.9", "2.0.0"),
        (f"1.x.x-{'1' * 257}", "1.9.9", "2.0.0"),
        (f"~x.{'1' * 257}", "1.9.9", "1.9.9-a"),
        (f"1.x.{'9' * 257} - 2", "2.9.9", "3.0.0"),
        (f"1 || 1.2.3-{'a' * 250}", f"1.2.3-{'a' * 250}", f"1.2.3-{'a' * 249}"),
        (f"1 || >=v1.2.3-{'a' * 249}", "2.0.0", "0.0.1"),
        (f"1 || ~v1.2.3-{'a' * 250}", f"1.2.3-{'a' * 250}", "2.0.0"),
        (f"v1.2.3-{'a' * 249} - 2", "2.0.0", "0.0.1"),
        (f"1 - v1.2.3-{'a' * 250}", f"1.2.3-{'a' * 249}", "1.2.3"),
        (f"*v1.2.3-{'a' * 249}", f"1.2.3-{'a' * 249}", f"1.2.3-{'a' * 250}"),
        (f"*1.2.3-{'a' * 250}", f"1.2.3-{'a' * 250}", f"1.2.3-{'a' * 249}"),
    ],
)
def test_unusual_ranges_are_parsed_like_node_does(text: str, admits: str, refuses: str) -> None:
    assert is_range(text)
    assert satisfies(admits, text)
    assert not satisfies(refuses, text)


@pytest.mark.parametrize(
    "text",
    [
        *("== v1", "v= 1", "~> = 1", "> = 1.2.3", ">vv1.2.3", "1 - v=2.0.0", "=1.2.3 - 2"),
        *("1 +b - 2", ">=1.x.3", "x.1", "1.2.x-01", "~*1.2.3", "1.2*", "+*b", "1|+b|2"),
        *(">9007199254740991", "~1.9007199254740991.0"),
        *(f"1.x.x-{'a' * 252}.b", f"1.x.x-{'1' * 257}{'a' * 251}", f"1.x.x-{'1' * 258}"),
        *(f"~x.{'1' * 258}", f"1.x.{'9' * 258} - 2", f"{'9' * 4000}"),
        *(f"1 || 1.2.3-{'a' * 251}", f"1 || >=v1.2.3-{'a' * 250}", f"1 || ~1.2.3-{'a' * 251}"),
        *(f"v1.2.3-{'a' * 250} - 2", f"*v1.2.3-{'a' * 250}"),
    ],
)
def test_ranges_that_node_refuses_admit_no_version(text: str) -> None:
    assert not is_range(text)
    assert not any(satisfies(version, text) for version in GRID_VERSIONS)


# Versions and their order


def test_precedence_sorts_the_grid_as_the_semver_package_does() -> None:
    long_numbers = [f"1.2.3-{'9' * 99}", f"1.2.3-{'1' * 100}"]
    versions = GRID_VERSIONS + long_numbers
    assert sorted(versions, key=precedence) == sorted(versions, key=Version.parse)


@property_settings
@given(versions, versions)
def test_precedence_sorts_as_the_semver_package_compares(a: str, b: str) -> None:
    assert sign(precedence(a), precedence(b)) == Version.parse(a).compare(b)


@property_settings
@given(releases, prereleases, prereleases)
def test_prereleases_of_one_version_sort_as_the_semver_package_compares(
    release: str, one: str, other: str
) -> None:
    a, b = f"{release}-{one}", f"{release}-{other}"
    assert sign(precedence(a), precedence(b)) == Version.parse(a).compare(b)
    assert precedence(a) < precedence(release)


@property_settings
@given(versions, builds)
def test_build_metadata_does_not_change_precedence(version: str, build: str) -> None:
    assert precedence(f"{without_build(version)}+{build}") == precedence(version)


# Ranges


@property_settings
@given(versions)
def test_a_version_is_a_range_that_admits_itself(version: str) -> None:
    assert satisfies(version, version)
    assert satisfies(version, f">={version}")
    assert not satisfies(version, f"<{version}")
    assert not satisfies(version, f">{version}")


valid_or_not = simples | st.sampled_from(["x.1", "1.2*", "1.2.3.4"])


@property_settings
@given(releases, valid_or_not, valid_or_not)
def test_a_space_means_both_and_bars_mean_either(release: str, one: str, other: str) -> None:
    if is_range(one) and is_range(other):
        results = satisfies(release, one), satisfies(release, other)
        assert satisfies(release, f"{one} {other}") is all(results)
        assert satisfies(release, f"{one}||{other}") is any(results)
    else:
        assert not is_range(f"{one} {other}")
        assert not is_range(f"{one}||{other}")


@property_settings
@given(versions, prereleases, simples)
def test_range_without_a_prerelease_admits_none(version: str, prerelease: str, text: str) -> None:
    assert not satisfies(f"{without_build(version).partition('-')[0]}-{prerelease}", text)


@pytest.mark.parametrize(
    "space", list("\t\n\v\f\r \u00a0\u1680\u2003\u2028\u202f\u205f\u3000\ufeff")
)
def test_white_space_of_javascript_separates(space: str) -> None:
    text = f"{space}>={space * 2}1.2.3{space}<2{space}||{space}3{space}-{space}4{space}"
    assert [v for v in ("1.2.2", "1.9.9", "2.0.0", "4.9.9") if satisfies(v, text)] == [
        "1.9.9",
        "4.9.9",
    ]


@pytest.mark.parametrize("character", list("\x1c\x1d\x1e\x1f\x85\x00\u180e\u200b\u2060"))
def test_other_control_characters_make_a_range_invalid(character: str) -> None:
    assert not is_range(f">=1.2.3{character}<2")
    assert not is_range(f"{character}1.2.3")


# Any text


@property_settings
@given(st.text() | range_like)
def test_results_for_any_text_are_consistent(text: str) -> None:
    assert is_version(text) in (True, False)
    assert is_range(text) in (True, False)
    assert satisfies(text, text) is (is_version(text) and is_range(text))
    assert satisfies("1.2.3", text) <= is_range(text)
    assert not satisfies(text, "*") or is_version(text)
    assert is_range(f"\t {text}\u00a0\n") is is_range(text)


@pytest.mark.parametrize("digit", ["１", "²", "٣", "߁"])
def test_digits_are_ascii(digit: str) -> None:
    assert not is_version(f"1.2.{digit}")
    assert not is_version(f"1.2.3-1{digit}")
    assert not is_range(f"^{digit}")
    assert not is_range(f"^1{digit}")
    assert not is_range(f">=1.2.3-{digit}")


# Long texts


def test_versions_and_ranges_have_a_limit() -> None:
    longest = f"1.2.3-{'a' * 250}"
    assert satisfies(longest, longest)
    assert not is_version(f"{longest}a")
    assert not satisfies(f"{longest}a", f">={longest}")
    assert satisfies("1.2.3", "*".ljust(4096))
    assert not is_range(" " * 4097)
    assert not satisfies("1.2.3", "*".ljust(4097))


STARTS = ("", "~", "^", ">", "1.2.3-", "1.2.3+", "1.2.3 - ", "=v", "1.x.x-", "<v", " 1")
PIECES = " |1|0|-|.|v|=|= |v |> |~ |~> |^ |*|x.|1.|+|a.|1-|+a|+a | - |1 - |1.2.3-|-1.|=*|>= *"
# Many different words, so that no cache of words helps.
WORDS = {
    "numbers": " ".join(map(str, range(100, 2000))),
    "alternatives": "||".join(map(str, range(100, 2000))),
    "pairs": "||".join(f"{n // 10} {n % 10}" for n in range(10, 1000)),
    "spaced": "||".join(f"~ {n}" for n in range(10, 1000)),
    "hyphens": "||".join(f"{n} - {n + 1}" for n in range(10, 1000)),
    "whole": "||".join(f"1.2.3-{n}" for n in range(1000)),
    "prereleases": " ".join(f">=1.2.3-{'0.' * 120}{n}" for n in range(100)),
    "stars": " ".join(f"*1.2.{n}" for n in range(1000)),
}
PRERELEASE = f"1.2.3-{'0.' * 124}99"


@pytest.mark.parametrize("piece", [*PIECES.split("|"), "|", "||", "\u00a0", "\0", "é"])
def test_repetitive_texts_take_little_time(piece: str) -> None:
    for start in STARTS:
        text = (start + piece * MAX_RANGE_LENGTH)[: MAX_RANGE_LENGTH - 1]
        assert_takes_little_time(text)
        assert not is_range(f"{text}!")
        assert not is_version(f"{text}!")


@pytest.mark.parametrize("words", WORDS)
def test_many_words_take_little_time(words: str) -> None:
    assert_takes_little_time(WORDS[words][:MAX_RANGE_LENGTH].rstrip("|"))


def assert_takes_little_time(text: str) -> None:
    begun = time.thread_time()
    for check in (is_range, is_version):
        check(text)
        check(f"{text}!")
    for version in ("1.2.3", PRERELEASE):
        satisfies(version, text)
    assert time.thread_time() - begun < 3  # seconds


def test_long_ranges_are_not_cached() -> None:
    starts = range(10_000, 30_000, 500)
    texts = ["||".join(f"~{n}" for n in range(start, start + 500)) for start in starts]
    tracemalloc.start()
    try:
        assert all(map(is_range, texts))
        assert tracemalloc.get_traced_memory()[0] < 4_000_000
    finally:
        tracemalloc.stop()
