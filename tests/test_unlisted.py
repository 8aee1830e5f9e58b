"""An unlisted widget leaves no trace: not a byte of any public answer tells that it is there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import Server

from catalog.documents import check_document
from catalog.store import writes
from catalog.store.database import Database

V1 = "/api/v1/widgets/"
LISTED = [
    document(
        "acme/clock", version(), version("1.1.0"), description="Secret of time", isOfficial=True
    ),
    document("acme/notes", version(), downloadCount=5),
    document("other/lamp", version(), downloadCount=7, isOfficial=False),
]
HIDDEN = ["acme/secret", "other/secret", "hidden/secret"]
SEARCHES = [
    "",
    "?q=secret",
    "?q=se",
    "?q=s",
    "?q=unlisted+words",
    "?scope=acme",
    "?scope=hidden",
    "?official=true",
    "?official=false",
    "?compatSdk=1.0.0",
    "?compatSdk=9.9.9&q=secret",
    "?limit=1",
    "?limit=1&page=2",
    "?limit=2&page=2",
    "?page=9",
    "?q=secret&scope=acme&official=true&compatSdk=1.0.0&page=1&limit=5",
    "?compatSdk=secret",
    "?official=secret",
    "?page=0",
]
PATHS = [
    *(f"{V1}search{query}" for query in SEARCHES),
    *(V1 + path for path in ("acme/clock", "acme/notes", "other/lamp", "acme/none", *HIDDEN)),
    *(f"/api/widgets/{scope}/registry.json" for scope in ("acme", "other", "hidden", "none")),
    *(f"/api/{name}" for name in ("stats", "health", "version", "settings", "widgets/cli-version")),
    *(f"/api/{path}" for path in ("hidden", "widgets/hidden", "widgets/hidden/secret", "hidden/x")),
    *(f"{V1}{path}/1.0.0/bundle.js" for path in ("acme/clock", *HIDDEN)),
    *("/", "/?q=secret", "/?scope=hidden", "/docs", "/openapi.json", "/widgets/acme/clock"),
    *(f"/widgets/{path}" for path in HIDDEN),
]

Answer = tuple[int, list[tuple[str, str]], bytes]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "catalog.db")
    database.create(put(*LISTED))
    yield database
    database.close()


@pytest.fixture
def server(catalog: Database) -> Iterator[Server]:
    with Server(catalog.path) as running:
        yield running


def put(*documents: dict[str, Any]) -> list[tuple[str, Any]]:
    return writes.put_documents(map(check_document, documents))


def hidden(path: str, *versions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return document(path, *(versions or (version(),)), listed=False, **fields)


def answers(server: Server, etags: dict[str, str]) -> dict[str, Answer]:
    """What the public is told, with and without a body, and to whoever has an earlier answer."""
    told = {}
    for path in PATHS:
        for method, headers in (
            ("GET", {}),
            ("HEAD", {}),
            ("OPTIONS", {}),
            ("GET", {"If_None_Match": etags.get(path, '"none"')}),
        ):
            response, body = server.request(method, path, **headers)
            kept = [pair for pair in response.headers.items() if pair[0] != "Date"]
            told[f"{method} {path} {headers}"] = (response.status, kept, body)
    return told


def etags(server: Server) -> dict[str, str]:
    given = {path: server.request("GET", path)[0].headers["ETag"] for path in PATHS}
    return {path: etag for path, etag in given.items() if etag}


CHANGES = {
    "added": [],
    "described": [
        hidden(path, displayName="Unlisted", description="Unlisted words", isOfficial=True)
        for path in HIDDEN
    ],
    "installed": [hidden(path, downloadCount=2**53 - 1) for path in HIDDEN],
    "given versions": [
        hidden(path, version("1.0.0", yanked=True), version("9.9.9", sdkVersion="^9.0.0"))
        for path in HIDDEN
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_answer_changes_by_what_is_unlisted(
    catalog: Database, server: Server, change: str
) -> None:
    held = etags(server)
    before = answers(server, held)
    catalog.write(put(*(hidden(path) for path in HIDDEN)))
    catalog.write(put(*CHANGES[change]))
    assert answers(server, held) == before


def test_no_answer_changes_by_installs_of_what_is_unlisted(
    catalog: Database, server: Server
) -> None:
    catalog.write(put(*(hidden(path) for path in HIDDEN)))
    held = etags(server)
    before = answers(server, held)
    for path in HIDDEN * 2:
        assert server.request("POST", V1 + path)[0].status == 200
    assert answers(server, held) == before


def test_what_is_unlisted_after_all_is_as_if_it_had_never_been(
    catalog: Database, server: Server
) -> None:
    held = etags(server)
    before = answers(server, held)
    shown = [document(path, version(), downloadCount=9, isOfficial=True) for path in HIDDEN]
    catalog.write(put(*shown))
    assert answers(server, held) != before
    catalog.write(put(*(hidden(path) for path in HIDDEN)))
    assert answers(server, held) == before


def test_an_unlisted_widget_is_refused_in_the_words_of_one_that_is_not_there(
    catalog: Database, server: Server
) -> None:
    catalog.write(put(*(hidden(path) for path in HIDDEN)))

    def told(path: str, name: str) -> tuple[int, list[tuple[str, str]], object]:
        response, body = server.request("GET", path.format(name))
        kept = [pair for pair in response.headers.items() if pair[0] != "Date"]
        return response.status, kept, json.loads(body.decode().replace(name, "it"))

    assert told(V1 + "acme/{}", "secret") == told(V1 + "acme/{}", "absent")
    assert told("/api/widgets/{}/registry.json", "hidden") == told(
        "/api/widgets/{}/registry.json", "absent"
    )
