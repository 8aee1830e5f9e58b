"""mirror: the first run copies everything, a refresh transfers and writes what changed."""

import threading

import pytest
from builders import document, version
from flask import Flask
from mirrors import exported, mirror_summary, stored_rows
from upstreams import (
    CHANGES,
    SEARCH,
    FakeUpstream,
    Fault,
    detail,
    hang_up,
    status,
    truncate,
)

CREATED = "2025-01-01T00:00:00.000Z"
CLOCK = document(
    "acme/clock", version("1.0.0"), version("2.0.0"), downloadCount=7, createdAt=CREATED
)
ADDED = "3 added, 0 changed, 0 unchanged, 0 failed, 0 gone."
UNCHANGED = "0 added, 0 changed, 3 unchanged, 0 failed, 0 gone."


@pytest.fixture(autouse=True)
def three_widgets(upstream: FakeUpstream) -> None:
    upstream.put(
        CLOCK,
        document("acme/notes", version("1.0.0"), createdAt=CREATED),
        document("lab/tide", createdAt=CREATED),
    )


def versions(app: Flask, path: str) -> list[str]:
    return [each["version"] for each in exported(app)[path]["versions"]]


def download_count(app: Flask, path: str = "acme/clock") -> int | None:
    return exported(app)[path]["widget"]["downloadCount"]


def test_first_run_creates_the_catalog_and_copies_everything(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    assert mirror_summary(mirror_app, upstream.url) == ADDED
    assert list(exported(mirror_app)) == ["acme/clock", "acme/notes", "lab/tide"]
    assert versions(mirror_app, "acme/clock") == ["2.0.0", "1.0.0"]
    assert download_count(mirror_app) == 7
    assert download_count(mirror_app, "acme/notes") is None


def test_refresh_without_changes_sends_etags_and_changes_nothing(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    mirror_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    upstream.requests.clear()
    assert mirror_summary(mirror_app, upstream.url) == UNCHANGED
    assert stored_rows(mirror_app) == before
    requests = [(path, "If-None-Match" in headers) for path, headers in upstream.requests]
    # This upstream does not list its changes.
    changes = (f"{CHANGES}?limit=100", False)
    details = [(detail(path), True) for path in upstream.documents]
    assert requests[:2] == [changes, (f"{SEARCH}?page=1&limit=100", False)]
    assert sorted(requests[2:]) == details


def test_refresh_from_an_upstream_without_etags_changes_nothing_either(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    upstream.has_etags = False
    mirror_summary(mirror_app, upstream.url)
    before = stored_rows(mirror_app)
    assert mirror_summary(mirror_app, upstream.url) == UNCHANGED
    assert stored_rows(mirror_app) == before


def test_refresh_copies_what_changed(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    yanked = version("1.0.0", yanked=True, yankedReason="Old.")
    others = version("2.0.0"), version("3.0.0")
    upstream.put(document("acme/clock", *others, yanked, displayName="Watch"))
    upstream.put(document("acme/alarm"))
    summary = mirror_summary(mirror_app, upstream.url)
    assert summary == "1 added, 1 changed, 2 unchanged, 0 failed, 0 gone."
    clock = exported(mirror_app)["acme/clock"]
    assert clock["widget"]["displayName"] == "Watch"
    assert [each["yankedReason"] for each in clock["versions"]] == [None, None, "Old."]
    assert "acme/alarm" in exported(mirror_app)


def install(app: Flask, times: int) -> None:
    for _ in range(times):
        assert app.test_client().post("/api/v1/widgets/acme/clock").status_code == 200


COUNTS = {
    "both": (7, 2, 10, 12),
    "only upstream": (7, 0, 10, 10),
    "only local": (7, 2, 7, 9),
    "null upstream, no local": (None, 0, None, None),
    "null upstream, some local": (None, 2, None, 2),
    "null upstream at first": (None, 2, 5, 7),
    "null upstream later": (7, 2, None, 2),
    "null upstream later, no local": (7, 0, None, None),
    "fewer upstream later": (7, 2, 3, 5),
    "maximum": (7, 2, 2**53 - 2, 2**53 - 1),
}


@pytest.mark.parametrize(("first", "local", "later", "expected"), COUNTS.values(), ids=COUNTS)
def test_download_count_is_the_sum_of_upstream_and_local_installs(
    mirror_app: Flask,
    upstream: FakeUpstream,
    first: int | None,
    local: int,
    later: int | None,
    expected: int | None,
) -> None:
    upstream.put(document("acme/clock", downloadCount=first))
    mirror_summary(mirror_app, upstream.url)
    install(mirror_app, local)
    upstream.put(document("acme/clock", downloadCount=later))
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == expected
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == expected


def test_other_changes_do_not_change_the_count(mirror_app: Flask, upstream: FakeUpstream) -> None:
    mirror_summary(mirror_app, upstream.url)
    install(mirror_app, 2)
    upstream.put(document("acme/clock", downloadCount=7, icon="mdi:clock"))
    mirror_summary(mirror_app, upstream.url)
    assert download_count(mirror_app) == 9


FAULTS = {
    "hang-up": hang_up,
    "truncated": truncate(10),
    **{str(code): status(code) for code in (500, 502, 503, 504, 429)},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_passing_faults_are_retried(
    mirror_app: Flask, upstream: FakeUpstream, fault: Fault
) -> None:
    upstream.fail(SEARCH, fault, fault)
    upstream.fail(detail("acme/clock"), fault, fault)
    assert mirror_summary(mirror_app, upstream.url) == ADDED
    assert versions(mirror_app, "acme/clock") == ["2.0.0", "1.0.0"]


def test_names_with_special_characters_are_mirrored(
    mirror_app: Flask, upstream: FakeUpstream
) -> None:
    names = ["天気", "a b", "50%", "%2e%2e", "a?b#c", "a+b&c=d", "@x;y", "...", "search", "Ünï"]
    for name in [*names, "'\""]:
        upstream.put(document(f"天 {name}/{name}"))
    assert mirror_summary(mirror_app, upstream.url).startswith("14 added, ")
    assert set(exported(mirror_app)) == set(upstream.documents)
    assert mirror_summary(mirror_app, upstream.url).startswith("0 added, 0 changed, 14 unchanged")


def test_details_are_fetched_concurrently(mirror_app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/alarm"))
    four_requests = threading.Barrier(4, timeout=10)

    def wait_for_others(path: str) -> None:
        if path.removeprefix("/api/v1/widgets/") in upstream.documents:
            four_requests.wait()

    upstream.on_request = wait_for_others
    assert mirror_summary(mirror_app, upstream.url).startswith("4 added, 0 changed, 0 unchanged, 0")
