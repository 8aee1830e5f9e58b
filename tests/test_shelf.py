"""What is kept from search to search: of one revision only, and only so much."""

from catalog.shelf import MAX_BYTES, MAX_KINDS, Shelf


def test_things_stay_for_as_long_as_the_revision_does() -> None:
    shelf = Shelf()
    shelf.things((0, 1), "kind")["a"] = "then"
    assert shelf.things((0, 1), "kind") == {"a": "then"}
    assert shelf.things((0, 1), "other") == {}
    assert shelf.things((0, 2), "kind") == {}
    assert shelf.things((0, 1), "kind") == {}


def test_things_of_an_older_revision_are_not_put_among_those_of_a_newer() -> None:
    shelf = Shelf()
    older = shelf.things((0, 1), "kind")
    newer = shelf.things((0, 2), "kind")
    older["a"] = "then"
    assert newer == shelf.things((0, 2), "kind") == {}


def test_where_there_is_no_room_the_older_half_goes() -> None:
    shelf = Shelf()
    numbers, letters = shelf.things(1, "numbers"), shelf.things(1, "letters")
    numbers.update({1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
    letters["a"] = "large"
    shelf.count(MAX_BYTES)
    assert (list(numbers), list(letters)) == ([1, 2, 3, 4, 5], ["a"])
    shelf.count(2)
    assert (list(numbers), list(letters)) == ([4, 5], [])
    shelf.count(MAX_BYTES // 2 - 1)
    assert list(numbers) == [4, 5]
    shelf.count(1)
    assert list(numbers) == [5]


def test_of_more_kinds_than_there_can_be_none_is_left() -> None:
    shelf = Shelf()
    for kind in range(MAX_KINDS):
        shelf.things(1, kind)["a"] = kind
    assert shelf.things(1, 0) == {"a": 0}
    assert shelf.things(1, "one more") == {}
    assert shelf.things(1, 0) == {}
