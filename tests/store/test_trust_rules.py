"""The rules of a trust: which claims match it, and what an id token must look like."""

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.domain.messages import NotAllowedError
from catalog.domain.permissions import Access
from catalog.domain.trusts import (
    CHECKED_CLAIMS,
    PATTERN_CLAIMS,
    IdTokenError,
    Trust,
    is_issuer_url,
    match_trust,
    parse_claim,
    parse_id_token,
)

property_settings = settings(derandomize=True, deadline=None, max_examples=100)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
values = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
exact = values.filter(lambda value: not value.endswith("*"))
claim_keys = names.filter(lambda name: name not in CHECKED_CLAIMS)


def make_trust(claims: dict[str, str], name: str = "ci") -> Trust:
    return Trust(name, name, "https://ci.example", claims, Access(["publish"]), 15, None, None, "")


@property_settings
@given(st.dictionaries(claim_keys, exact, min_size=1), st.dictionaries(names, values))
def test_claims_match_if_each_has_its_exact_value(
    wanted: dict[str, str], others: dict[str, str]
) -> None:
    trust = make_trust(wanted)
    assert trust.find_differences({**others, **wanted}) == []
    for key in wanted:
        changed = {**others, **wanted, key: wanted[key] + "x"}
        (difference,) = trust.find_differences(changed)
        assert difference.startswith(f"{key} is ")
        missing = {name: each for name, each in changed.items() if name != key}
        assert trust.find_differences(missing)[0].startswith(f"it has no {key}, which must be")


@property_settings
@given(claim_keys, exact, values)
def test_an_asterisk_matches_only_in_some_claims(key: str, prefix: str, rest: str) -> None:
    trust = make_trust({key: f"{prefix}*"})
    assert bool(trust.find_differences({key: prefix + rest})) is (
        key not in PATTERN_CLAIMS and rest != "*"
    )
    for pattern_key in PATTERN_CLAIMS:
        trust = make_trust({pattern_key: f"{prefix}*"})
        assert trust.find_differences({pattern_key: prefix + rest}) == []
        if not rest.startswith(prefix):
            assert trust.find_differences({pattern_key: rest})


@pytest.mark.parametrize("value", [None, 1.0, [], ["x"], {}, {"x": 1}, "X", "x ", ""])
def test_values_of_other_types_never_match(value: object) -> None:
    assert make_trust({"key": "x"}).find_differences({"key": value})


@pytest.mark.parametrize(("value", "wanted"), [(True, "true"), (False, "false"), (7, "7")])
def test_numbers_and_booleans_match_their_json(value: object, wanted: str) -> None:
    assert make_trust({"key": wanted}).find_differences({"key": value}) == []
    assert make_trust({"key": wanted.title() + "0"}).find_differences({"key": value})


@property_settings
@given(claim_keys, values)
def test_a_claim_is_read_as_key_and_value(key: str, value: str) -> None:
    try:
        assert parse_claim(f"{key}={value}") == (key, value)
    except NotAllowedError:
        assert value.endswith("*") or len(value) > 900 or not value.isprintable()


def test_the_first_trust_by_name_counts_among_equal_ones() -> None:
    trusts = [make_trust({"sub": "x"}, name) for name in ("a", "b")]
    assert match_trust(trusts, {"sub": "x"}).name == "a"


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://ci.example", True),
        ("https://ci.example/realms/x", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080/x", True),
        ("http://localhost", True),
        ("http://ci.example", False),
        ("http://127.0.0.1.ci.example", False),
        ("https://user@ci.example", False),
        ("https://", False),
        ("https://[", False),
        ("ftp://ci.example", False),
        ("file:///etc/passwd", False),
        ("", False),
    ],
)
def test_keys_come_over_https_or_from_this_machine(url: str, is_allowed: bool) -> None:
    assert is_issuer_url(url) is is_allowed


segments = st.binary(min_size=1).map(lambda content: encode(content))
objects = st.dictionaries(names, values | st.integers() | st.booleans() | st.none())


def encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


@property_settings
@given(objects, objects, segments)
def test_an_id_token_has_one_spelling(
    header: dict[str, object], claims: dict[str, object], signature: str
) -> None:
    parts = [*(encode(json.dumps(each).encode()) for each in (header, claims)), signature]
    token = parse_id_token(".".join(parts))
    assert (token.header, token.claims) == (header, claims)
    for position in range(3):
        for other in (f"{parts[position]}=", f"{parts[position]}\n", f" {parts[position]}"):
            spelled = [*parts]
            spelled[position] = other
            with pytest.raises(IdTokenError):
                parse_id_token(".".join(spelled))


@property_settings
@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with pytest.raises(IdTokenError):
        parse_id_token(text)


@pytest.mark.parametrize("signature", ["AB", "AP", "AAB", "AAD", "A", "A+A/", "AA==", "AA.", ""])
def test_another_spelling_of_the_same_signature_is_refused(signature: str) -> None:
    assert parse_id_token("e30.e30.AA").claims == {}
    with pytest.raises(IdTokenError):
        parse_id_token(f"e30.e30.{signature}")
