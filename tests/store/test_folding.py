"""Folding: text in lower case without accents, as search compares it."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.text import fold

property_settings = settings(derandomize=True, deadline=None, max_examples=200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("World CLOCK 24/7", "world clock 24/7", id="ASCII"),
        pytest.param("Météo Ñandú", "meteo nandu", id="accents"),
        pytest.param("Me\u0301te\u0301o", "meteo", id="combining accents"),
        pytest.param("Việt Nam", "viet nam", id="two accents on a letter"),
        pytest.param("Ærøskøbing Łódź", "ærøskøbing łodz", id="letters without accents"),
        pytest.param("Straße STRASSE ẞ", "strasse strasse ss", id="sharp s"),
        pytest.param("İstanbul ıI", "istanbul ıi", id="dotted and dotless i"),
        pytest.param("ΣΊΣΥΦΟΣ Σίσυφος", "σισυφοσ σισυφοσ", id="Greek"),
        pytest.param("ЁЛКА йод", "елка иод", id="Cyrillic"),
        pytest.param("ﬁﬂ Oﬃce", "fifl office", id="ligatures"),
        pytest.param("ＡＢＣ１２", "abc12", id="full width"),
        pytest.param("ｶﾞ ガ が", "カ カ か", id="voiced kana"),
        pytest.param("天気", "天気", id="CJK"),
        pytest.param("x² ½ №", "x2 1⁄2 no", id="compatibility forms"),
        pytest.param("مُحَمَّد", "محمد", id="Arabic points"),
        pytest.param("👩‍💻 ❤️ 1️⃣", "👩‍💻 ❤ 1", id="emoji"),
        pytest.param("a\u00a0b\u3000c", "a b c", id="white space"),
        pytest.param('100% "a_b" \\ \'', '100% "a_b" \\ \'', id="punctuation"),
        pytest.param("\u0301\u20dd\u0903", "", id="marks of every kind"),
    ],
)
def test_text_is_folded(text: str, expected: str) -> None:
    assert fold(text) == unicodedata.normalize("NFKD", expected)


def test_hangul_syllables_fold_to_their_letters() -> None:
    assert fold("한") == "\u1112\u1161\u11ab"


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
