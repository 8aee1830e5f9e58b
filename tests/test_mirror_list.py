"""mirror reads the upstream's list completely, also while it changes, and never forever."""

import json
from collections.abc import Callable

import pytest
from builders import document
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import SEARCH, FakeUpstream, Fault, body, detail, numbered

# Two pages.
WIDGETS = 120
UNSTABLE = "The list: changed or repeated itself in each of 5 readings."


def test_list_of_several_pages_is_read_completely(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(201))
    assert mirror_summary(mirror_app, upstream.url).startswith("201 added, ")
    pages = [path for path, _ in upstream.requests if "limit=100" in path and "page" in path]
    assert pages == [f"{SEARCH}?page={number}&limit=100" for number in (1, 2, 3)]


def rank_first(upstream: FakeUpstream, path: str) -> None:
    """Move a widget to the top of the list, as many installs would."""
    upstream.documents = {path: upstream.documents[path], **upstream.documents}


def change_before_page_two(upstream: FakeUpstream, *changes: Callable[[], object]) -> None:
    """Make one change each time that the second page is requested."""
    remaining = iter(changes)

    def on_request(path: str) -> None:
        if "page=2" in path:
            next(remaining, lambda: None)()

    upstream.on_request = on_request


def test_widget_that_moves_to_a_page_already_read_is_copied(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(WIDGETS))
    change_before_page_two(
        upstream,
        lambda: rank_first(upstream, "acme/w0119"),
        lambda: rank_first(upstream, "acme/w0110"),
    )
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary.startswith(f"{WIDGETS} added, 0 changed, 0 unchanged, 0 failed")
    assert set(exported(mirror_app)) == set(upstream.documents)


def test_widgets_added_and_removed_while_the_list_is_read_hide_no_others(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(WIDGETS))
    change_before_page_two(
        upstream,
        lambda: (upstream.documents.pop("acme/w0001"), rank_first(upstream, "acme/w0110")),
        lambda: upstream.put(document("new/widget")),
    )
    assert run_mirror(mirror_app, upstream.url).exit_code == 0
    assert set(exported(mirror_app)) >= set(upstream.documents)
    assert run_mirror(mirror_app, upstream.url, "--prune").exit_code == 0
    listed = {path for path, each in exported(mirror_app).items() if each["widget"]["listed"]}
    assert listed == set(upstream.documents)


def test_list_that_always_changes_is_read_five_times_and_reported(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(WIDGETS))
    numbers = iter(range(1000))

    def add(path: str) -> None:
        if "page=" in path:
            upstream.put(document(f"new/w{next(numbers)}"))

    upstream.on_request = add
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert UNSTABLE in result.stderr
    assert sum("page=1&limit=100" in path for path, _ in upstream.requests) == 5
    assert set(exported(mirror_app)) >= {f"acme/w{number:04}" for number in range(WIDGETS)}


def page(*names: str, total: int) -> Fault:
    """Respond with a page of these widgets and this total."""
    widgets = [dict(zip(("scope", "name"), name.split("/"), strict=True)) for name in names]
    return body(json.dumps({"widgets": widgets, "total": total}).encode())


ENDLESS_LISTS = {
    "the same page again and again": [page("acme/clock", "acme/notes", total=1_000_000)] * 300,
    "one new name on each page": [
        page("acme/clock", f"acme/n{number}", total=200) for number in range(300)
    ],
    "a total that grows with each page": [
        page(f"acme/n{number}", total=100 + 1000 * number) for number in range(300)
    ],
    "empty pages before the end": [page("acme/clock", total=500), *[page(total=500)] * 300],
}


@pytest.mark.parametrize("pages", ENDLESS_LISTS.values(), ids=ENDLESS_LISTS)
def test_reading_of_an_endless_list_ends(
    mirror_app: Flask, upstream: FakeUpstream, pages: list[Fault]
) -> None:
    upstream.fail(SEARCH, *pages)
    result = run_mirror(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert UNSTABLE in result.stderr
    assert upstream.faults[SEARCH], "all pages were read"


def test_page_with_more_widgets_than_the_limit_is_refused(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.fail(SEARCH, page(*(f"acme/w{number}" for number in range(101)), total=101))
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {upstream.url} cannot be mirrored: a page of the list has 101 widgets, "
        "more than 100.\n",
    )


def test_widget_unlisted_between_list_and_detail_is_not_a_failure(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/clock"), document("acme/notes"))

    def remove(path: str) -> None:
        if path == detail("acme/notes"):
            upstream.documents.pop("acme/notes", None)

    upstream.on_request = remove
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary == "1 added, 0 changed, 0 unchanged, 0 failed, 0 gone."
    assert list(exported(mirror_app)) == ["acme/clock"]
