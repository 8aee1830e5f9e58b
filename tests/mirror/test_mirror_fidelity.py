"""A mirror responds like its upstream, byte for byte, and so does a mirror of a mirror."""

import random
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, urlencode

from builders import Json, bundled, document, version
from conftest import hold, putting
from flask import Flask
from mirrors import (
    bundle_summary,
    bundle_urls,
    held_bundle,
    mirror_summary,
    serve,
    stored_rows,
)
from upstreams import CHANGES, SEARCH, detail

from app import create_app
from bench import generate
from bench.words import WORDS
from catalog.domain.documents import check_document

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
    document("odd/numbers", version(configVersion=0.1 + 0.2), version("2.0.0", configVersion=-1)),
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
    found = ((path, client.get(path)) for path in paths)
    return {path: (response.status_code, response.data) for path, response in found}


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


def test_mirror_of_a_mirror_has_the_same_bytes_and_a_refresh_transfers_and_writes_nothing(
    tmp_path: Path,
) -> None:
    long_history = generate.document(generate.LONG_HISTORY)
    documents = [*generate.documents(GENERATED), long_history, *UNUSUAL]
    original = create_catalog(tmp_path / "original.db", documents)
    mirrors = [create_app({"DATABASE": tmp_path / f"{name}.db"}) for name in ("first", "second")]
    listed = [each for each in documents if each["widget"].get("listed", True)]
    paths = [*details(documents), *registries(documents), *searches(SEARCHES, SCOPES)]
    paths += ["/api/stats", "/api/settings"]
    expected = responses(original, paths)
    for upstream_app, mirror in zip([original, *mirrors], mirrors, strict=False):
        with serve(upstream_app) as upstream:
            summary = mirror_summary(mirror, upstream.url)
            assert summary == f"{len(listed)} added, 0 changed, 0 unchanged, 0 failed, 0 gone."
            upstream.responses.clear()
            before = stored_rows(mirror)
            summary = mirror_summary(mirror, upstream.url)
            assert summary == f"0 added, 0 changed, {len(listed)} unchanged, 0 failed, 0 gone."
            assert stored_rows(mirror) == before
        # What changed, and two pages of the list with the counts.
        assert upstream.responses == [(CHANGES, 200), (SEARCH, 200), (SEARCH, 200)]
        actual = responses(mirror, paths)
        assert [path for path in paths if actual[path] != expected[path]] == []
    unlisted = [each for each in documents if each not in listed]
    assert [path for path in details(documents) if expected[path][0] == 404] == details(unlisted)
    for app in (original, *mirrors):
        app.extensions["database"].close()


def test_bundles_of_a_service_are_downloaded_and_served(mirror_app: Flask, tmp_path: Path) -> None:
    contents = {f"{n}.0.0+b": content for n, content in enumerate((b"one", b"", b"three"))}
    versions = [bundled(number, content) for number, content in contents.items()]
    original = create_catalog(tmp_path / "original.db", [document("odd 50%/a?b", *versions)])
    hold(original, *contents.values())
    with serve(original) as upstream:
        summary = bundle_summary(mirror_app, upstream.url)
    assert summary == "3 fetched, 0 already stored, 0 failed."
    client = mirror_app.test_client()
    urls = bundle_urls(client, "odd 50%25/a%3Fb")
    assert {number: held_bundle(client, url) for number, url in urls.items()} == contents
    original.extensions["database"].close()
