"""The q of a search: what its words match, and which matches come first."""

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from builders import Json, document, version
from flask.testing import FlaskClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catalog.documents import check_document
from catalog.store import writes

SEARCH = "/api/v1/widgets/search"
ClientWith = Callable[..., FlaskClient]


def found(client: FlaskClient, **parameters: Any) -> list[str]:
    """The names of the widgets found, in their order; all of them fit a page."""
    response = client.get(SEARCH, query_string={"limit": 100, **parameters})
    assert response.status_code == 200, response.text
    answer = response.get_json()
    assert answer["total"] == len(answer["widgets"])
    return [widget["name"] for widget in answer["widgets"]]


@pytest.mark.parametrize(
    ("q", "display_name", "description"),
    [
        pytest.param("Clock", "Clock", None, id="whole name"),
        pytest.param("lock", "World Clocks", None, id="inside a word"),
        pytest.param("time", "Clock", "Shows the time.", id="description"),
        pytest.param("cLOCK", "ClocK", None, id="case"),
        pytest.param("meteo", "Météo", None, id="accent in the text"),
        pytest.param("MÉTÉO", "meteo", None, id="accent in the word"),
        pytest.param("me\u0301te\u0301o", "M\u00e9t\u00e9o", None, id="composed or not"),
        pytest.param("ΣΊΣΥΦΟΣ", "Σίσυφος", None, id="final sigma"),
        pytest.param("STRASSE", "Straße", None, id="sharp s"),
        pytest.param("istanbul", "İSTANBUL", None, id="dotted capital i"),
        pytest.param("office", "Oﬃce", None, id="ligature"),
        pytest.param("ABC", "ａｂｃ", None, id="full width"),
        pytest.param("天気予報", "東京の天気予報", None, id="CJK"),
        pytest.param("天気", "東京の天気", None, id="CJK of two characters"),
        pytest.param("晴", "Clock", "快晴の空", id="CJK of one character"),
        pytest.param("날씨", "오늘의 날씨", None, id="Hangul"),
        pytest.param("טקס", "טֶקסט", None, id="points of Hebrew"),
        pytest.param("🕒", "Time 🕒", None, id="one emoji"),
        pytest.param("❤", "I ❤️ clocks", None, id="emoji without its variation selector"),
        pytest.param("k", "Clock", None, id="one letter"),
        pytest.param("ck", "Clock", None, id="two letters"),
        pytest.param("clock world", "World Clock", None, id="words in any order"),
        pytest.param("clock time", "Clock", "Shows the time.", id="words over name and text"),
        pytest.param("tim es cloc", "Clock", "Sometimes.", id="words that overlap"),
        pytest.param("clock ti s", "Clock", "Shows the time.", id="long and short words"),
        pytest.param("clock clock", "Clock", None, id="a word twice"),
        pytest.param("\u3000clock\t\nworld\u00a0 ", "World Clock", None, id="any white space"),
    ],
)
def test_every_word_occurs_ignoring_case_and_accents(
    client_with: ClientWith, q: str, display_name: str, description: str | None
) -> None:
    holder = document("a/holder", displayName=display_name, description=description)
    assert found(client_with(holder, document("a/decoy", displayName="–")), q=q) == ["holder"]


@pytest.mark.parametrize(
    ("q", "display_name", "description"),
    [
        pytest.param("clock rain", "Clock", "Shows the time.", id="one word is missing"),
        pytest.param("clock x", "Clock", None, id="a short word is missing"),
        pytest.param("clocks", "Clock", "Shows", id="over the end of the name"),
        pytest.param("clk", "Clock", None, id="letters with others between"),
        pytest.param("kc", "Clock", None, id="letters in another order"),
        pytest.param("天雨", "天気", "雨", id="CJK that is apart"),
        pytest.param("👩‍💻", "👩 💻", None, id="emoji in parts"),
    ],
)
def test_widget_without_every_word_is_not_found(
    client_with: ClientWith, q: str, display_name: str, description: str | None
) -> None:
    client = client_with(document(displayName=display_name, description=description))
    assert found(client, q=q) == []


@pytest.mark.parametrize(
    ("q", "holder", "decoy"),
    [
        ("%", "100 %", "100"),
        ("100%", "100%", "1000"),
        ("_", "a_b", "ab"),
        ("a_bc", "a_bc", "axbc"),
        ("'", "o'clock", "oclock"),
        ("' OR 1=1 --", "' or 1=1 --", "or 1=1"),
        ('"', 'a "b"', "a b"),
        ('"tea milk"', 'milk" or "tea', "tea milk"),
        ('a""b', 'a""b', 'a"b'),
        ('tea" OR "milk', 'tea" or "milk', "tea"),
        ("\\", "a\\b", "ab"),
        ("c\\u0041", "c\\u0041", "cA"),
        ("tea AND milk", "milk and tea", "milk tea"),
        ("tea OR milk", "tea or milk", "tea"),
        ("tea NOT milk", "tea not milk", "tea"),
        ("NEAR(tea milk)", "near(tea milk)", "tea milk"),
        ("clock*", "clock*", "clocks"),
        ("^clock", "a ^clock", "clock"),
        ("-clock", "a -clock", "time"),
        ("+clock", "a +clock", "clock"),
        ("folded_text:clock", "folded_text:clock", "clock"),
        ("{clock}", "{clock}", "clock"),
        ("a;b", "a;b", "a b"),
        ("\ufffeabc", "\ufffeabc", "\ufffdabc"),
    ],
)
def test_no_sign_has_a_meaning_of_its_own(
    client_with: ClientWith, q: str, holder: str, decoy: str
) -> None:
    client = client_with(
        document("a/holder", displayName=holder), document("a/decoy", displayName=decoy)
    )
    assert found(client, q=q) == ["holder"]


@pytest.mark.parametrize("q", ["\0", "c\0", "\0c", "clock\0", "clo\0ck", "clock \0"], ids=ascii)
@pytest.mark.parametrize("others", [0, 7, 8, 20])
def test_word_with_nul_is_in_no_text(client_with: ClientWith, q: str, others: int) -> None:
    words = "abcdefghijklmnopqrst"[:others]
    client = client_with(document(displayName="Clock", description=" ".join(words)))
    assert found(client, q=" ".join(words)) == ["clock"]
    assert found(client, q=" ".join([q, *words])) == []


def test_bytes_that_are_not_utf8_are_in_no_text(client_with: ClientWith) -> None:
    response = client_with(document()).get(f"{SEARCH}?q=%FF%FEclock")
    assert (response.status_code, response.get_json()["total"]) == (200, 0)


@pytest.mark.parametrize("q", ["", " ", "\t\u3000\u00a0", "\u0301"], ids=ascii)
def test_q_without_a_word_finds_all_in_the_order_without_q(client_with: ClientWith, q: str) -> None:
    client = client_with(
        document("a/some", downloadCount=1),
        document("a/most", downloadCount=2),
        document("a/hidden", listed=False),
    )
    assert found(client, q=q) == ["most", "some"]


def test_only_the_widgets_own_name_and_description_are_matched(client_with: ClientWith) -> None:
    text = {"displayName": "Manifest", "description": "Manifest", "icon": "mdi:manifest"}
    client = client_with(document("manifest/manifest", version(**text), displayName="Clock"))
    assert found(client, q="manifest") == []


def test_as_many_words_as_q_can_hold_are_all_looked_for(client_with: ClientWith) -> None:
    words = [chr(code) for code in range(0x4E00, 0x4E00 + 500)]
    client = client_with(
        document("a/all", description="".join(words)),
        document("a/less", description="".join(words[:-1])),
    )
    assert found(client, q=" ".join(words)) == ["all"]


def test_hundreds_of_words_are_all_looked_for(client_with: ClientWith) -> None:
    words = [one + two for one in "abcdefghijklmnopqr" for two in "abcdefghijklmnopqr"]
    client = client_with(
        document("a/all", description=" ".join(words)),
        document("a/less", description=" ".join(words[:-1])),
    )
    assert found(client, q=" ".join(reversed(words))) == ["all"]


@pytest.mark.parametrize(
    "q", ["x" * 1001, "a " * 501, "\ufdfa" * 1001, "x" + " " * 1000, "\u0301" * 1001]
)
def test_q_of_more_than_a_thousand_characters_is_refused(client_with: ClientWith, q: str) -> None:
    answer = client_with().get("/api/v1/widgets/search", query_string={"q": q})
    said = f"q must be at most 1000 characters, not {len(q)}."
    assert (answer.status_code, answer.json) == (400, {"error": said})


@pytest.mark.parametrize("character", ["각", "\ufdfa", "\u0390", "ﬃ", "\U0001d400"])
def test_limit_of_q_counts_the_characters_that_were_sent(
    client_with: ClientWith, character: str
) -> None:
    client = client_with(document("a/long", description=character * 1000))
    assert found(client, q=character * 1000) == ["long"]


def test_q_of_a_thousand_characters_is_looked_for(client_with: ClientWith) -> None:
    client = client_with(document("a/long", description="x" * 1000))
    assert found(client, q="x" * 1000) == ["long"]


def counted(*rows: tuple[str, str, str | None]) -> list[Json]:
    """Documents of which each has more downloads than the one before."""
    return [
        document(f"a/{name}", displayName=display_name, description=description, downloadCount=n)
        for n, (name, display_name, description) in enumerate(rows)
    ]


def test_exact_name_then_beginning_then_all_words_then_the_rest(client_with: ClientWith) -> None:
    client = client_with(
        *counted(
            ("exact", "Wörld Clock", None),
            ("begins", "World Clocks", None),
            ("all-words", "Clock of the World", None),
            ("two-texts", "World", "A clock."),
            ("description", "Time", "A world clock."),
        )
    )
    expected = ["exact", "begins", "all-words", "description", "two-texts"]
    assert found(client, q="world CLOCK") == expected


@pytest.mark.parametrize("q", ["x", "é", "天"], ids=ascii)
def test_one_character_has_the_same_order(client_with: ClientWith, q: str) -> None:
    client = client_with(
        *counted(
            ("exact", q.upper(), None),
            ("begins", f"{q} Clock", None),
            ("inside", f"Clock {q}", None),
            ("description", "Clock", q),
        )
    )
    assert found(client, q=q) == ["exact", "begins", "inside", "description"]


@pytest.mark.parametrize("name", ["World  Clock", " World Clock", "World\tClock", "World Clock "])
def test_white_space_does_not_keep_a_name_from_being_exact(
    client_with: ClientWith, name: str
) -> None:
    client = client_with(*counted(("exact", name, None), ("begins", "World Clock Pro", None)))
    assert found(client, q=name) == ["exact", "begins"]
    assert found(client, q="world clock") == ["exact", "begins"]


def test_search_follows_a_change_of_text_and_of_listing(app_with: Callable[..., Any]) -> None:
    app = app_with(document(displayName="Alpha"), document("acme/other", displayName="Other"))
    changes = [({"displayName": "Beta"}, "beta"), ({"displayName": "Beta", "listed": False}, "")]
    changes += [({"displayName": "Gamma"}, ""), ({"displayName": "Gamma", "listed": True}, "gamma")]
    for fields, findable in changes:
        checked = check_document(document(**fields))
        app.extensions["database"].write(writes.put_document(checked))
        words = ("alpha", "beta", "gamma", "a")
        hits = [word for word in words if "clock" in found(app.test_client(), q=word)]
        assert hits == ([findable, "a"] if findable else [])


@pytest.mark.parametrize("number", [7, 8, 9, 10, 100])
def test_any_number_of_words_must_all_occur(client_with: ClientWith, number: int) -> None:
    words = [*(f"wo{place:03}" for place in range(number - 1)), "z"]
    client = client_with(
        *counted(
            ("named", " ".join(reversed(words)), None),
            ("told", "Words", " ".join(words)),
            ("over", words[0], " ".join(words[1:])),
            ("wanting", " ".join(words[:-1]), None),
        )
    )
    assert found(client, q=" ".join(words)) == ["named", "over", "told"]


# The whole rule once more, as plainly as Python can say it.


def folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if unicodedata.category(c)[0] != "M").casefold()


def expected_names(widgets: list[Json], q: str, scope: str, official: str) -> list[str]:
    words = folded(q).split()

    def matches(widget: Json) -> bool:
        texts = [folded(widget["displayName"]), folded(widget["description"] or "")]
        return (
            widget["listed"]
            and scope in ("", widget["scope"])
            and (not official or (widget["isOfficial"] is True) == (official == "true"))
            and all(any(word in text for text in texts) for word in words)
        )

    def rank(widget: Json) -> tuple[Any, ...]:
        name = " ".join(folded(widget["displayName"]).split())
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
    """A small catalog and searches of it, written with so few words that they often meet."""
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
    asked = st.sampled_from([text[:n] for text in words for n in (1, 2, 3)]) | text
    filters = st.sampled_from(["", "", "x"]), st.sampled_from(["", "", "true", "false"])
    return widgets, draw(st.lists(st.tuples(asked, *filters), min_size=4, max_size=8))


by_the_rule = settings(
    derandomize=True,
    deadline=None,
    max_examples=50,
    phases=[Phase.generate],  # small as they are: shrinking would take longer than it helps
    # Each example makes a catalog of its own, so that nothing of one is left for the next.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@by_the_rule
@given(searches())
def test_search_is_what_the_plain_rule_says(
    client_with: ClientWith, drawn: tuple[list[Json], list[tuple[str, str, str]]]
) -> None:
    widgets, asked = drawn
    client = client_with(*({"widget": widget} for widget in widgets))
    for q, scope, official in asked:
        parameters = {"q": q, "scope": scope} | ({"official": official} if official else {})
        assert found(client, **parameters) == expected_names(widgets, q, scope, official)


@by_the_rule
@given(searches(), st.integers(1, 3))
def test_pages_are_what_the_plain_rule_says(
    client_with: ClientWith, drawn: tuple[list[Json], list[tuple[str, str, str]]], limit: int
) -> None:
    widgets, asked = drawn
    client = client_with(*({"widget": widget} for widget in widgets))
    for q, scope, official in asked:
        expected = expected_names(widgets, q, scope, official)
        query = {"q": q, "scope": scope, "limit": limit} | (
            {"official": official} if official else {}
        )
        for page in range(1, len(expected) // limit + 2):
            answer = client.get(SEARCH, query_string={**query, "page": page}).get_json()
            names = [widget["name"] for widget in answer["widgets"]]
            assert (names, answer["total"]) == (
                expected[(page - 1) * limit : page * limit],
                len(expected),
            )


def test_a_page_can_be_as_far_past_the_end_as_any(
    client_with: ClientWith,
) -> None:
    client = client_with(document(displayName="Clock"))
    answer = client.get(SEARCH, query_string={"q": "clock", "page": 2**53 - 1}).get_json()
    assert (answer["widgets"], answer["total"]) == ([], 1)
