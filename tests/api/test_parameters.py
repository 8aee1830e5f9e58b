"""The parameters of a search: parsing, invalid values, and the time it takes."""

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalog.store.read.search_params import ParameterError, parse_search
from catalog.text import fold

GREATEST = 2**53 - 1

number_like = st.text("0123456789", max_size=20) | st.integers().map(str) | st.text(max_size=5)
boolean_like = st.text("trueTRUE", min_size=4, max_size=4) | st.text(max_size=6)
property_settings = settings(derandomize=True, deadline=None)


def parse(**parameters: str) -> object:
    """Return the parsed value of the one parameter, or None if it is invalid."""
    ((name, _),) = parameters.items()
    try:
        return getattr(parse_search(parameters), name)
    except ParameterError:
        return None


@property_settings
@given(number_like)
@example(str(GREATEST))
@example(str(GREATEST + 1))
@example("0" * 5000 + "7")
@example("9" * 5000)
def test_page_and_limit_are_whole_numbers_from_1_to_2_to_the_53(value: str) -> None:
    is_number = re.fullmatch("[0-9]+", value) and len(value.lstrip("0")) < 20
    number = int(value.lstrip("0") or "0") if is_number else 0
    allowed = number if 1 <= number <= GREATEST else None
    assert parse(page=value) == (allowed if value else 1)
    assert parse(limit=value) == (allowed and min(allowed, 100) if value else 20)


@property_settings
@given(boolean_like)
@example("")
@example("True")
@example("FALSE")
def test_official_is_true_or_false_in_any_case(value: str) -> None:
    expected = {"true": True, "false": False}.get(value.lower())
    assert parse(official=value) is expected


@property_settings
@given(st.text(max_size=30), st.integers(0, 1001))
def test_q_is_folded_and_has_at_most_a_thousand_characters(text: str, length: int) -> None:
    q = (text + " " * 1001)[:length]
    assert parse(q=q) == (" ".join(fold(q).split()) if length <= 1000 else None)


# Runs of combining marks that normalization must sort, and characters that decompose into many.
HOSTILE = {
    "marks": "\u0301\u0323" * 16_000,
    "marks that decompose": "\u0344\u0323" * 16_000,
    "ligatures": "\ufdfa" * 32_000,
    "syllables": "각" * 32_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("length", [1000, 32_000])
def test_hostile_q_takes_little_time(kind: str, length: int) -> None:
    begun = time.thread_time()
    parse(q=HOSTILE[kind][:length])
    assert time.thread_time() - begun < 2  # seconds


@pytest.mark.parametrize("name", ["q", "official", "compatSdk", "page", "limit"])
def test_long_value_takes_little_time(name: str) -> None:
    for value in ("9" * 32_000, "0" * 32_000, "1.2.3-" + "a." * 16_000, " " * 32_000):
        begun = time.thread_time()
        with pytest.raises(ParameterError):
            parse_search({name: value})
        assert time.thread_time() - begun < 2  # seconds
