"""Folding: text in lower case without accents, as search compares it."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.domain.folding import fold

property_settings = settings(derandomize=True, deadline=None, max_examples=200)


@property_settings
@given(st.text(), st.text())
def test_folding_parts_equals_folding_the_whole(before: str, after: str) -> None:
    # So a search for any part of a text finds the text.
    assert fold(before + after) == fold(before) + fold(after)


letters = st.characters(categories=["Lu", "Ll", "Lt", "Mn", "Mc", "Me", "Zs"])


@property_settings
@given(st.text() | st.text(letters) | st.text(st.characters(max_codepoint=127)))
def test_folded_text_is_the_same_for_every_form_of_a_text(text: str) -> None:
    folded = fold(text)
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    assert {fold(form) for form in (*forms, folded)} == {folded}
    assert not text.isascii() or folded == text.lower()


@property_settings
@given(st.text(letters))
def test_folded_text_has_no_marks_and_no_upper_case(text: str) -> None:
    folded = fold(text)
    assert not [c for c in folded if unicodedata.category(c).startswith("M")]
    assert folded == folded.casefold()
