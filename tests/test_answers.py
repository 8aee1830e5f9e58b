"""Kept answers: how much memory they may take."""

from catalog.answers import MAX_BYTES, Answer, Answers


def test_what_was_used_longest_ago_is_dropped_where_there_is_no_room() -> None:
    answers = Answers()
    half = Answer(0, "r", None, b"", "e", MAX_BYTES // 2)
    for key in ("a", "b"):
        answers.keep(key, half)
    assert answers.get("a") == half
    answers.keep("c", half)
    kept = [key for key in ("a", "b", "c") if answers.get(key)]
    assert kept == ["a", "c"]


def test_answer_larger_than_all_room_is_not_kept() -> None:
    answers = Answers()
    answers.keep("a", Answer(0, "r", None, b"", "e", MAX_BYTES + 1))
    assert answers.get("a") is None


def test_key_counts_as_memory(client_with) -> None:  # type: ignore[no-untyped-def]
    client = client_with()
    client.get("/api/v1/widgets/search", query_string={"scope": "x" * 100_000})
    (kept,) = client.application.extensions["answers"]._kept.values()
    assert kept.size > 400_000
