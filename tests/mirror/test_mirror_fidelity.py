"""A mirror responds like its upstream, byte for byte, and so does a mirror of a mirror."""

import json
import random
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, urlencode

from builders import Json, bundled, document, version
from conftest import hold, putting
from flask import Flask
from flask.testing import FlaskClient
from mirrors import mirror_summary, serve
from upstreams import detail

from app import create_app
from bench import generate
from bench.words import WORDS
from catalog.documents import check_document

# With those below: two pages of the upstream's list, and three batches.
GENERATED = 120
SEARCHES = 100
SCOPES = [generate.FIXED_SCOPE, *generate.SCOPES[:5], "odd", "odd 天気", "none"]
PUBLISHED = "2024-02-29T12:00:00.000Z"
UNUSUAL = [
    document("odd/minimal"),
    document("odd/no-versions", downloadCount=0, isOfficial=False, description="", icon=""),
    document("odd/hidden", version(), listed=False),
    document("odd/all-yanked", *(version(f"{n}.0.0", yanked=True) for n in range(3))),
    document("odd/yanked-newest", version("1.0.0"), version("1.1.0", yanked=True)),
    document("odd/tied", *(version(f"1.0.{n}", publishedAt=PUBLISHED) for n in (9, 10, 2))),
    document("odd/tied-builds", *(version(f"1.0.0+{n}", publishedAt=PUBLISHED) for n in "bac")),
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
        for name in ("天気", "50% off", "%2e%2e", "a?b#c&d=e+f", "Ünï", "...", "@x@1.0.0", "search")
    ),
]


def create_catalog(path: Path, documents: Iterable[Json]) -> Flask:
    app = create_app({"DATABASE": path})
    app.extensions["database"].create(putting(map(check_document, documents)))
    return app


def responses(app: Flask, paths: Iterable[str]) -> dict[str, tuple[int, bytes]]:
    """Return status and body of each path."""
    client = app.test_client()
    return {path: read(client, path) for path in paths}


def read(client: FlaskClient, path: str) -> tuple[int, bytes]:
    with client.get(path) as response:
        return response.status_code, response.data


def details(documents: Iterable[Json]) -> list[str]:
    widgets = [each["widget"] for each in documents]
    return [detail(f"{widget['scope']}/{widget['name']}") for widget in widgets]


def registries(documents: Iterable[Json]) -> list[str]:
    scopes = sorted({each["widget"]["scope"] for each in documents})
    return [f"/api/widgets/{quote(scope, safe='')}/registry.json" for scope in scopes]


def searches(count: int, scopes: list[str]) -> list[str]:
    """Return searches of every kind, the same in every run."""
    rng = random.Random(6)  # noqa: S311
    words = [*WORDS[:600], "天気", "MÉTÉO", "odd", "%", '"', "50% off", ""]
    paths = []
    for _ in range(count):
        query = {
            "q": " ".join(rng.sample(words, rng.choice([0, 0, 1, 1, 2]))),
            "scope": rng.choice(["", "", *scopes]),
            "official": rng.choice(["true", "false"]),
            "compatSdk": rng.choice(["1.0.0", "1.6.2", "2.3.0", "3.0.0-beta.2"]),
            "page": str(rng.choice([1, 1, 1, 2, 3, 40])),
            "limit": str(rng.choice([1, 7, 20, 100])),
        }
        selected = {key: value for key, value in query.items() if rng.random() < 0.6}
        paths.append(f"/api/v1/widgets/search?{urlencode(selected)}")
    return paths


def test_mirror_responds_with_the_same_bytes_and_a_refresh_transfers_no_widget(
    mirror_app: Flask, tmp_path: Path
) -> None:
    long_history = generate.document(generate.LONG_HISTORY)
    documents = [*generate.documents(GENERATED), long_history, *UNUSUAL]
    upstream_app = create_catalog(tmp_path / "upstream.db", documents)
    listed = [each for each in documents if each["widget"].get("listed", True)]
    with serve(upstream_app) as upstream:
        first = mirror_summary(mirror_app, upstream.url)
        upstream.responses.clear()
        second = mirror_summary(mirror_app, upstream.url)
    assert first == f"{len(listed)} added, 0 changed, 0 unchanged, 0 failed, 0 gone."
    assert second == f"0 added, 0 changed, {len(listed)} unchanged, 0 failed, 0 gone."
    # The number of widgets before and after, what changed, and two pages of the list.
    search = ("/api/v1/widgets/search", 200)
    changes = ("/api/v1/widgets/changes", 200)
    assert upstream.responses == [changes, search, search]
    paths = [*details(documents), *registries(documents), *searches(SEARCHES, SCOPES)]
    paths += ["/api/stats", "/api/settings"]
    expected = responses(upstream_app, paths)
    actual = responses(mirror_app, paths)
    assert [path for path in paths if actual[path] != expected[path]] == []
    unlisted = [each for each in documents if each not in listed]
    assert [path for path in details(documents) if expected[path][0] == 404] == details(unlisted)
    upstream_app.extensions["database"].close()


CONTENTS = {f"acme/w{n}": [b"one %d" % n, b"", b"three %d" % (n // 2)] for n in range(20)}
BUNDLED = [
    document(path, *(bundled(f"{n}.0.0+b", content) for n, content in enumerate(contents)))
    for path, contents in CONTENTS.items()
]


def test_mirror_of_a_mirror_responds_the_same_and_serves_the_bundles(tmp_path: Path) -> None:
    documents = [*BUNDLED, *UNUSUAL]
    original = create_catalog(tmp_path / "original.db", documents)
    hold(original, *(content for contents in CONTENTS.values() for content in contents))
    first = create_app({"DATABASE": tmp_path / "first.db"})
    second = create_app({"DATABASE": tmp_path / "second.db"})
    for upstream_app, mirror in ((original, first), (first, second)):
        with serve(upstream_app) as upstream:
            # The bundles of the other scopes do not exist.
            summary = mirror_summary(mirror, upstream.url, "--bundles", "--scope", "acme")
            assert summary.endswith("Bundles: 31 fetched, 0 here already, 0 failed.")
            mirror_summary(mirror, upstream.url)
    paths = [*details(documents), *registries(documents), *searches(50, SCOPES)]
    expected = responses(original, paths)
    actual = responses(second, paths)
    assert without_urls(actual) == without_urls(expected)
    client = second.test_client()
    for path, contents in zip(details(BUNDLED), CONTENTS.values(), strict=True):
        versions = json.loads(actual[path][1])["versions"]
        urls = {each["version"]: each["bundleUrl"] for each in versions}
        bundles = {number: read(client, url) for number, url in urls.items()}
        assert bundles == {f"{n}.0.0+b": (200, content) for n, content in enumerate(contents)}
    for app in (original, first, second):
        app.extensions["database"].close()


def without_urls(responses: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    return {
        path: (status, re.sub(rb'"bundleUrl":"[^"]*"', b"", body))
        for path, (status, body) in responses.items()
    }
