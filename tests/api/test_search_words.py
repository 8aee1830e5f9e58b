"""The q of a search: what its words match, and which matches come first."""

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from properties import catalog_for_each_example

SEARCH = "/api/v1/widgets/search"
ClientWith = Callable[..., FlaskClient]


def found_names(client: FlaskClient, **parameters: Any) -> list[str]:
    """Return the names of all results in their order; they must fit on one page."""
    response = client.get(SEARCH, query_string={"limit": 100, **parameters})
    assert response.status_code == 200, response.text
    body = response.get_json()
    assert body["total"] == len(body["widgets"])
    return [widget["name"] for widget in body["widgets"]]


@pytest.mark.parametrize(
    ("q", "display_name", "description"),
    [
        pytest.param("lock", "World Clocks", None, id="inside a word"),
        pytest.param("time", "Clock", "Shows the time.", id="description"),
        pytest.param("cLOCK", "ClocK", None, id="case"),
        pytest.param("meteo", "Météo", None, id="accent in the text"),
        pytest.param("ΣΊΣΥΦΟΣ", "Σίσυφος", None, id="final sigma"),
        pytest.param("STRASSE", "Straße", None, id="sharp s"),
        pytest.param("天気予報", "東京の天気予報", None, id="CJK"),
        pytest.param("晴", "Clock", "快晴の空", id="CJK of one character"),
        pytest.param("טקס", "טֶקסט", None, id="Hebrew points"),
        pytest.param("❤", "I ❤️ clocks", None, id="emoji without its variation selector"),
        pytest.param("k", "Clock", None, id="one letter"),
        pytest.param("clock world", "World Clock", None, id="words in any order"),
        pytest.param("clock time", "Clock", "Shows the time.", id="words over name and text"),
        pytest.param("clock ti s", "Clock", "Shows the time.", id="long and short words"),
        pytest.param("\u3000clock\t\nworld\u00a0 ", "World Clock", None, id="any white space"),
    ],
)
def test_every_word_occurs_ignoring_case_and_accents(
    client_with: ClientWith, q: str, display_name: str, description: str | None
) -> None:
    match = document("a/match", displayName=display_name, description=description)
    assert found_names(client_with(match, document("a/other", displayName="–")), q=q) == ["match"]


@pytest.mark.parametrize(
    ("q", "display_name", "description"),
    [
        pytest.param("clock rain", "Clock", "Shows the time.", id="one word is missing"),
        pytest.param("clocks", "Clock", "Shows", id="over the end of the name"),
        pytest.param("kc", "Clock", None, id="letters in another order"),
        pytest.param("👩‍💻", "👩 💻", None, id="emoji in parts"),
        pytest.param("\u0301", "é", None, id="a combining mark only"),
        pytest.param("\u0301\u0301\u0301 \u0300", "é", None, id="words of combining marks"),
    ],
)
def test_widget_without_every_word_is_not_found(
    client_with: ClientWith, q: str, display_name: str, description: str | None
) -> None:
    client = client_with(document(displayName=display_name, description=description))
    assert found_names(client, q=q) == []


@pytest.mark.parametrize(
    ("q", "match", "other"),
    [
        ("100%", "100%", "1000"),
        ("a_bc", "a_bc", "axbc"),
        ("' OR 1=1 --", "' or 1=1 --", "or 1=1"),
        ('"tea milk"', 'milk" or "tea', "tea milk"),
        ('tea" OR "milk', 'tea" or "milk', "tea"),
        ("c\\u0041", "c\\u0041", "cA"),
        ("tea NOT milk", "tea not milk", "tea"),
        ("NEAR(tea milk)", "near(tea milk)", "tea milk"),
        ("clock*", "clock*", "clocks"),
        ("^clock", "a ^clock", "clock"),
        ("-clock", "a -clock", "time"),
        ("folded_text:clock", "folded_text:clock", "clock"),
        ("\ufffeabc", "\ufffeabc", "\ufffdabc"),
    ],
)
def test_special_characters_are_taken_literally(
    client_with: ClientWith, q: str, match: str, other: str
) -> None:
    client = client_with(
        document("a/match", displayName=match), document("a/other", displayName=other)
    )
    assert found_names(client, q=q) == ["match"]


@pytest.mark.parametrize("others", [0, 8])
def test_word_with_nul_matches_nothing(client_with: ClientWith, others: int) -> None:
    words = "abcdefgh"[:others]
    client = client_with(document(displayName="Clock", description=" ".join(words)))
    for q in ("\0", "clock\0", "clo\0ck"):
        assert found_names(client, q=" ".join([q, *words])) == []


@pytest.mark.parametrize("q", ["", "\t\u3000\u00a0"], ids=ascii)
def test_q_without_words_is_like_no_q(client_with: ClientWith, q: str) -> None:
    client = client_with(
        document("a/some", downloadCount=1),
        document("a/most", downloadCount=2),
        document("a/hidden", listed=False),
    )
    assert found_names(client, q=q) == ["most", "some"]


def test_text_of_versions_and_identifiers_is_not_searched(client_with: ClientWith) -> None:
    text = {"displayName": "Manifest", "description": "Manifest", "icon": "mdi:manifest"}
    client = client_with(document("manifest/manifest", version(**text), displayName="Clock"))
    assert found_names(client, q="manifest") == []


@pytest.mark.parametrize("q", ["x" * 1001, "x" + " " * 1000, "\u0301" * 1001])
def test_q_of_more_than_a_thousand_characters_is_refused(client_with: ClientWith, q: str) -> None:
    response = client_with().get("/api/v1/widgets/search", query_string={"q": q})
    message = f"q must be at most 1000 characters, not {len(q)}."
    assert (response.status_code, response.json) == (400, {"error": message})


@pytest.mark.parametrize("character", ["\ufdfa", "\U0001d400"])
def test_limit_of_q_counts_the_sent_characters(client_with: ClientWith, character: str) -> None:
    client = client_with(document("a/long", description=character * 1000))
    assert found_names(client, q=character * 1000) == ["long"]


def with_rising_counts(*rows: tuple[str, str, str | None]) -> list[Json]:
    """Return documents that each have more downloads than the one before."""
    return [
        document(f"a/{name}", displayName=display_name, description=description, downloadCount=n)
        for n, (name, display_name, description) in enumerate(rows)
    ]


def test_order_is_exact_name_then_prefix_then_all_words_then_others(
    client_with: ClientWith,
) -> None:
    client = client_with(
        *with_rising_counts(
            ("exact", "Wörld Clock", None),
            ("begins", "World Clocks", None),
            ("all-words", "Clock of the World", None),
            ("two-texts", "World", "A clock."),
            ("description", "Time", "A world clock."),
        )
    )
    expected = ["exact", "begins", "all-words", "description", "two-texts"]
    assert found_names(client, q="world CLOCK") == expected


@pytest.mark.parametrize("number", [8, 9, 100])
def test_any_number_of_words_must_all_occur(client_with: ClientWith, number: int) -> None:
    words = [*(f"wo{place:03}" for place in range(number - 1)), "z"]
    client = client_with(
        *with_rising_counts(
            ("in-name", " ".join(reversed(words)), None),
            ("in-text", "Words", " ".join(words)),
            ("in-both", words[0], " ".join(words[1:])),
            ("incomplete", " ".join(words[:-1]), None),
        )
    )
    assert found_names(client, q=" ".join(words)) == ["in-name", "in-both", "in-text"]


# The query, the number of results in the demo catalog, and the first of them.
EXPECTED = [
    ("weather", 4, ["weather", "air-quality", "meteo-marine", "rain-radar"]),
    ("rain", 4, ["rain-radar", "weather"]),
    ("MÉTÉO", 1, ["meteo-marine"]),
    ("天", 1, ["tenki-yoho"]),
    ("GIESSPLAN", 1, ["giessplan"]),
    ("مواقيت", 1, ["prayer-times"]),
    ("timer", 2, ["focus-timer", "gesture-pad"]),
    ("up", 3, ["uptime", "clock", "lights"]),
    ("currency convert", 1, ["currency-converter"]),
    ("nuts & bolts", 1, ["recipe-box"]),
    ("clock-classic", 0, []),
]


@pytest.mark.parametrize(("q", "total", "first"), EXPECTED, ids=[q for q, _, _ in EXPECTED])
def test_expected_widgets_of_the_demo_catalog_come_first(
    demo: FlaskClient, q: str, total: int, first: list[str]
) -> None:
    names = found_names(demo, q=q)
    assert (len(names), names[: len(first)]) == (total, first)


# A plain implementation of search, to compare with.


def plain_fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if unicodedata.category(c)[0] != "M").casefold()


def expected_names(widgets: list[Json], q: str, scope: str, official: str) -> list[str]:
    words = plain_fold(q).split()

    def matches(widget: Json) -> bool:
        texts = [plain_fold(widget["displayName"]), plain_fold(widget["description"] or "")]
        return (
            widget["listed"]
            and scope in ("", widget["scope"])
            and (not official or (widget["isOfficial"] is True) == (official == "true"))
            and all(any(word in text for text in texts) for word in words)
        )

    def rank(widget: Json) -> tuple[Any, ...]:
        name = " ".join(plain_fold(widget["displayName"]).split())
        tiers = [name == " ".join(words), name.startswith(" ".join(words))]
        tiers += [all(word in name for word in words), True]
        count = widget["downloadCount"]
        downloads = -1 if count is None else count
        return tiers.index(True) if words else 0, -downloads, widget["scope"], widget["name"]

    return [widget["name"] for widget in sorted(filter(matches, widgets), key=rank)]


CHARACTERS = [*"aAbéÉßsSİiıﬁf天気カガ한'\"%_*\\-:", "e\u0301", "🕒", "👩‍💻", "❤️", "¨"]
SPACES = ["", " ", " ", "  ", "\t", "\u3000"]


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[Json], list[tuple[str, str, str]]]:
    """Return a small catalog and queries, made of few words so that many queries match."""
    word = st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=4).map("".join)
    words = draw(st.lists(word, min_size=2, max_size=3))
    pieces = st.tuples(st.sampled_from(SPACES), st.sampled_from([*words, words[0].swapcase()]))
    text = st.lists(pieces, min_size=1, max_size=3).map(lambda drawn: "".join(sum(drawn, ())))
    widget = st.fixed_dictionaries(
        {
            "scope": st.sampled_from(["x", "y"]),
            "displayName": text,
            "description": st.none() | text,
            "isOfficial": st.sampled_from([True, False, None]),
            "downloadCount": st.sampled_from([None, 0, 1, 2]),
            "listed": st.sampled_from([True, True, True, False]),
        }
    )
    drawn = draw(st.lists(widget, min_size=2, max_size=8))
    widgets = [{**fields, "name": f"w{number}"} for number, fields in enumerate(drawn)]
    q = st.sampled_from([text[:n] for text in words for n in (1, 2, 3)]) | text
    filters = st.sampled_from(["", "", "x"]), st.sampled_from(["", "", "true", "false"])
    return widgets, draw(st.lists(st.tuples(q, *filters), min_size=4, max_size=8))


@catalog_for_each_example(40)
@given(searches(), st.integers(1, 3))
def test_search_and_its_pages_match_a_plain_implementation(
    client_with: ClientWith, drawn: tuple[list[Json], list[tuple[str, str, str]]], limit: int
) -> None:
    widgets, queries = drawn
    client = client_with(*({"widget": widget} for widget in widgets))
    for q, scope, official in queries:
        query = {"q": q, "scope": scope} | ({"official": official} if official else {})
        expected = expected_names(widgets, q, scope, official)
        assert found_names(client, **query) == expected
        for page in range(1, len(expected) // limit + 2):
            parameters = {**query, "page": page, "limit": limit}
            body = client.get(SEARCH, query_string=parameters).get_json()
            names = [widget["name"] for widget in body["widgets"]]
            assert names == expected[(page - 1) * limit : page * limit]
            assert body["total"] == len(expected)
