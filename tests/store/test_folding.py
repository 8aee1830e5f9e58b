"""Folding: text in lower case without accents, as search compares it."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.text import fold

property_settings = settings(derandomize=True, deadline=None, max_examples=200)


@property_settings
@given(st.text(), st.text())
def test_folding_parts_equals_folding_the_whole(before: str, after: str) -> None:
    # So a search for any part of a text finds the text.
    assert fold(before + after) == fold(before) + fold(after)


@property_settings
@given(st.text())
def test_folded_text_folds_to_itself(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@property_settings
@given(st.text())
def test_composed_and_decomposed_text_fold_alike(text: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fold(unicodedata.normalize(form, text)) == fold(text)


@property_settings
@given(st.text(alphabet=st.characters(categories=["Lu", "Ll", "Lt", "Mn", "Mc", "Me", "Zs"])))
def test_folded_text_has_no_marks_and_no_upper_case(text: str) -> None:
    folded = fold(text)
    assert not [c for c in folded if unicodedata.category(c).startswith("M")]
    assert folded == folded.casefold()


@property_settings
@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_ascii_folds_to_lower_case(text: str) -> None:
    assert fold(text) == text.lower()
