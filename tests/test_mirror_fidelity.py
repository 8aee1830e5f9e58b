"""A mirror answers like the original: byte for byte, of a mirror too, and after any kill."""

import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

from builders import Json, bundled, document, version
from conftest import ROOT, Server, hold
from upstreams import FakeUpstream

from app import create_app
from bench import generate
from bench.words import WORDS
from catalog.documents import check_document
from catalog.store import writes
from catalog.store.database import Database
from catalog.store.export import catalog_lines

WIDGETS = 2000
SEARCHES = 200
SCOPES = [generate.FIXED_SCOPE, *generate.SCOPES[:5], "odd", "odd 天気", "nobody"]
SAME_TIME = "2024-02-29T12:00:00.000Z"
AWKWARD = [
    document("odd/nothing-said"),
    document("odd/no-versions", downloadCount=0, isOfficial=False, description="", icon=""),
    document("odd/hidden", version(), listed=False),
    document("odd/all-yanked", *(version(f"{n}.0.0", yanked=True) for n in range(3))),
    document("odd/yanked-newest", version("1.0.0"), version("1.1.0", yanked=True)),
    document("odd/tied", *(version(f"1.0.{n}", publishedAt=SAME_TIME) for n in (9, 10, 2))),
    document("odd/tied-builds", *(version(f"1.0.0+{n}", publishedAt=SAME_TIME) for n in "bac")),
    document("odd/prereleases", *(version(f"2.0.0-{n}") for n in ("rc.1", "alpha", "rc.11"))),
    document("odd/no-range", version(sdkVersion="latest"), version("2.0.0", sdkVersion="")),
    document("odd/most", downloadCount=2**53 - 1, createdAt="0001-01-01T00:00:00.000Z"),
    document("odd/sizes", version(minSize={"w": 0, "h": 0}, maxSize={"w": 0, "h": 9})),
    document("odd/numbers", version(configVersion=1.5), version("2.0.0", configVersion=-1)),
    document("odd/own", version(displayName="Own", description="", icon="o"), description="D"),
    document("odd/text", version(releaseNotes='"\\ \n\t\u2028 </script>', license="")),
    document("odd/permissions", version(permissions=["", "网络", 'a"b'])),
    *(
        document(f"odd {name}/{name}", version("1.0.0+a.b"), displayName=name)
        for name in ("天気", "50% off", "%2e%2e", "a?b#c&d=e+f", "Ünï", "...", "@x@1.0.0", "🍅")
    ),
]


class Relay:
    """Passes everything on to a server, and counts the bytes that come back."""

    def __init__(self, port: int) -> None:
        self.target, self.received = ("127.0.0.1", port), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(self.target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=(*ends, ends[0] is server)).start()

    def copy(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with source:
            while read := source.recv(65536):
                target.sendall(read)
                self.received += len(read) if is_answer else 0
            with suppress(OSError):  # closed on both sides
                target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def create(path: Path, documents: Iterable[Json]) -> Path:
    Database(path).create(writes.put_documents(map(check_document, documents)))
    return path


def mirror(url: str, database: Path, *options: str) -> str:
    """What a real process says that mirrors into a database."""
    done = subprocess.run(
        [sys.executable, "-m", "flask", "mirror", url, *options],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


@contextmanager
def served(database: Path) -> Iterator[Server]:
    server = Server(database)
    try:
        yield server
    finally:
        server.stop()


def answers(server: Server, paths: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    """What the server says at each path, over one connection."""
    found = {}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        for path in paths:
            connection.request("GET", path)
            response = connection.getresponse()
            found[path] = (response.status, response.read())
    return found


def answers_in_process(database: Path, paths: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    """What a service of the database says at each path; thousands come sooner than over a wire."""
    app = create_app({"DATABASE": database})
    client = app.test_client()
    found = {path: client.get(path) for path in paths}
    app.extensions["database"].close()
    return {path: (answer.status_code, answer.data) for path, answer in found.items()}


def details(documents: Iterable[Json]) -> list[str]:
    names = [(each["widget"]["scope"], each["widget"]["name"]) for each in documents]
    return [
        f"/api/v1/widgets/{quote(scope, safe='')}/{quote(name, safe='')}" for scope, name in names
    ]


def registries(documents: Iterable[Json]) -> list[str]:
    scopes = sorted({each["widget"]["scope"] for each in documents})
    return [f"/api/widgets/{quote(scope, safe='')}/registry.json" for scope in scopes]


def searches(count: int, scopes: list[str]) -> list[str]:
    """Searches of every kind, the same in every run."""
    chance = random.Random(6)  # noqa: S311, the same searches each time
    words = [*WORDS[:600], "天気", "MÉTÉO", "odd", "%", '"', "50% off", ""]
    made = []
    for _ in range(count):
        asked = {
            "q": " ".join(chance.sample(words, chance.choice([0, 0, 1, 1, 2]))),
            "scope": chance.choice(["", "", *scopes]),
            "official": chance.choice(["true", "false"]),
            "compatSdk": chance.choice(["1.0.0", "1.6.2", "2.3.0", "3.0.0-beta.2"]),
            "page": str(chance.choice([1, 1, 1, 2, 3, 40])),
            "limit": str(chance.choice([1, 7, 20, 100])),
        }
        kept = {key: value for key, value in asked.items() if chance.random() < 0.6}
        made.append(f"/api/v1/widgets/search?{urlencode(kept)}")
    return made


def test_mirror_of_two_thousand_widgets_gives_the_same_bytes_and_a_refresh_takes_few(
    tmp_path: Path,
) -> None:
    documents = [*generate.documents(WIDGETS - len(AWKWARD)), *AWKWARD]
    listed, said, received = WIDGETS - 1, [], [0]
    with (
        served(create(tmp_path / "upstream.db", documents)) as upstream,
        closing(Relay(upstream.port)) as relay,
    ):
        for _ in range(2):
            said.append(mirror(relay.url, tmp_path / "mirror.db").partition(": ")[2])
            received.append(relay.received - sum(received))
    paths = [*details(documents), *registries(documents), *searches(SEARCHES, SCOPES)]
    expected, found = (
        answers_in_process(tmp_path / name, [*paths, "/api/stats", "/api/settings"])
        for name in ("upstream.db", "mirror.db")
    )
    assert said == [
        f"{listed} added, 0 changed, 0 unchanged, 0 failed, 0 gone.\n",
        f"0 added, 0 changed, {listed} unchanged, 0 failed, 0 gone.\n",
    ]
    assert 0 < received[2] < received[1] / 20
    assert [path for path in expected if found[path] != expected[path]] == []
    hidden = details(each for each in documents if each["widget"].get("listed") is False)
    assert [path for path in details(documents) if expected[path][0] == 404] == hidden


CONTENTS = {f"acme/w{n}": [b"one %d" % n, b"", b"three %d" % (n // 2)] for n in range(20)}
BUNDLED = [
    document(path, *(bundled(f"{n}.0.0+b", content) for n, content in enumerate(contents)))
    for path, contents in CONTENTS.items()
]


def test_mirror_of_a_mirror_gives_the_same_answers_and_bundles_with_nobody_above_it(
    tmp_path: Path,
) -> None:
    app = create_app({"DATABASE": create(tmp_path / "upstream.db", [*BUNDLED, *AWKWARD])})
    hold(app, *(content for contents in CONTENTS.values() for content in contents))
    app.extensions["database"].close()
    documents = [*BUNDLED, *AWKWARD]
    paths = [*details(documents), *registries(documents), *searches(50, SCOPES)]
    with served(tmp_path / "upstream.db") as upstream:
        expected = answers(upstream, paths)
        said = mirror(upstream.url, tmp_path / "first.db", "--bundles", *scopes_of(BUNDLED))
        assert said.endswith("Bundles: 31 fetched, 0 here already, 0 failed.\n")
        mirror(upstream.url, tmp_path / "first.db")
    with served(tmp_path / "first.db") as first:
        mirror(first.url, tmp_path / "second.db", "--bundles", *scopes_of(BUNDLED))
        mirror(first.url, tmp_path / "second.db")
    with served(tmp_path / "second.db") as second:
        found = answers(second, paths)
        loaded = {path: loaded_from(second, found[path][1]) for path in details(BUNDLED)}
    assert list(map(without_addresses, found.values())) == list(
        map(without_addresses, expected.values())
    )
    assert loaded == {
        path: {f"{n}.0.0+b": (200, each) for n, each in enumerate(contents)}
        for path, contents in zip(details(BUNDLED), CONTENTS.values(), strict=True)
    }


def scopes_of(documents: Iterable[Json]) -> list[str]:
    return [f"--scope={scope}" for scope in sorted({each["widget"]["scope"] for each in documents})]


def without_addresses(answer: tuple[int, bytes]) -> tuple[int, bytes]:
    return answer[0], re.sub(rb'"bundleUrl":"[^"]*"', b"", answer[1])


def loaded_from(server: Server, detail: bytes) -> dict[str, tuple[int, bytes]]:
    """The bundle of each version in a detail, all of them from this server."""
    versions = {each["version"]: each["bundleUrl"] for each in json.loads(detail)["versions"]}
    paths = {number: url.removeprefix(server.url) for number, url in versions.items()}
    bundles = answers(server, paths.values())
    return {number: bundles[path] for number, path in paths.items()}


def contents(database: Path) -> tuple[list[str], list[tuple[object, ...]], dict[str, bytes]]:
    """All that a mirror is made of: its documents, what it knows of the upstream, its bundles."""
    with closing(Database(database)) as opened, opened.read() as connection:
        lines = list(catalog_lines(connection))
        rows = connection.execute(
            "SELECT scope, name, version, bundle_path, source, etag, upstream_count "
            "FROM version JOIN widget ON widget.id = version.widget_id "
            "JOIN mirrored ON mirrored.widget_id = widget.id ORDER BY 1, 2, 3"
        )
        known = [tuple(row) for row in rows]
    bundles = database.with_name(f"{database.name}-bundles")
    return lines, known, {file.name: file.read_bytes() for file in bundles.iterdir()}


def test_mirror_that_is_killed_at_ten_moments_ends_like_one_that_is_not(tmp_path: Path) -> None:
    upstream = FakeUpstream()
    for number in range(120):
        given = upstream.with_bundle(f"1.0.{number}", b"%d " % number * 3000)
        upstream.put(document(f"acme/w{number:03}", given, downloadCount=number))
    chance = random.Random(10)  # noqa: S311, the same moments each time
    try:
        mirror(upstream.url, tmp_path / "whole.db", "--bundles")
        for _ in range(10):
            killed_after(chance.randrange(1, 150), upstream, tmp_path / "killed.db")
        mirror(upstream.url, tmp_path / "killed.db", "--bundles")
    finally:
        upstream.close()
    assert contents(tmp_path / "killed.db") == contents(tmp_path / "whole.db")


def killed_after(requests: int, upstream: FakeUpstream, database: Path) -> None:
    """Run a mirror that is killed as it makes so many requests."""
    left = iter(range(requests))
    started = threading.Event()

    def kill(path: str) -> None:
        if next(left, None) is None:
            started.wait(10)
            process.kill()

    upstream.on_request = kill
    process = subprocess.Popen(
        [sys.executable, "-m", "flask", "mirror", upstream.url, "--bundles"],
        cwd=ROOT,
        env={**os.environ, "CATALOG_DATABASE": str(database)},
        stderr=subprocess.DEVNULL,
    )
    started.set()
    process.wait(timeout=60)
    upstream.on_request = lambda path: None
    assert process.returncode == -9
