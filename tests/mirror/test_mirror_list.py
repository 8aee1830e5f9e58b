"""mirror reads the upstream's list, reports if it changes, and never reads forever."""

import json

import pytest
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import SEARCH, FakeUpstream, Fault, body, numbered

UNSTABLE = "The list: changed while it was read, or repeats itself."


def test_widget_that_moves_to_a_page_already_read_is_copied_by_the_next_run(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(*numbered(120))

    def rank_first(path: str) -> None:
        if "page=2" in path:
            last = "acme/w0119"
            upstream.documents = {last: upstream.documents[last], **upstream.documents}

    upstream.on_request = rank_first
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, UNSTABLE in result.stderr) == (1, True)
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary.startswith("1 added, 0 changed, 119 unchanged, 0 failed")
    assert set(exported(mirror_app)) == set(upstream.documents)


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
