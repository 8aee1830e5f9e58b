"""mirror reads the upstream's list, reports if it changes, and never reads forever."""

import json
import time
from contextlib import closing

import pytest
from builders import document
from conftest import run
from flask import Flask
from mirrors import exported, mirror_summary, run_mirror
from upstreams import CHANGES, SEARCH, FakeUpstream, Fault, body, numbered

UNSTABLE = "The list: changed while it was being read, or repeats entries."


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
    "the same page again and again": [page("acme/clock", "acme/notes", total=200_000)] * 300,
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


@pytest.mark.parametrize("path", [SEARCH, CHANGES])
def test_lists_that_take_too_long_do_not_hold_up_the_next_upstream(
    mirror_app: Flask, upstream: FakeUpstream, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FakeUpstream(document("other/clock"))) as other:
        for url in sorted([upstream.url, other.url]):
            mirror_summary(mirror_app, url)
        upstream.put(*numbered(120))
        other.put(document("other/new"))
        # The clock of the client jumps with the first page.
        monkeypatch.setattr("catalog.mirror.upstream.time", clock := Clock())
        upstream.on_request = lambda target: clock.jump(target, path)
        result = run(mirror_app, "mirror")
    message = f"Cannot mirror {upstream.url}: its lists took over 30 minutes to read."
    assert (result.exit_code, message in result.stderr) == (1, True), result.stderr
    assert "other/new" in exported(mirror_app)


class Clock:
    """The module time, an hour later after the first request for a path."""

    sleep, hours = staticmethod(time.sleep), 0

    def jump(self, target: str, path: str) -> None:
        self.hours += target.startswith(path)

    def monotonic(self) -> float:
        return time.monotonic() + 3600 * self.hours


def test_a_name_in_a_list_is_limited_in_length(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.fail(SEARCH, page("acme/" + "n" * 1000, total=1))
    assert "is not from a widget catalog" in run_mirror(mirror_app, upstream.url).stderr
