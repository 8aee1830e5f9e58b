"""gzip: which responses have it, the ETag of each form, and how large bodies are compressed."""

import gzip
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import bundled, document, version
from conftest import headers_without_date, hold
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import example, given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from app import create_app
from catalog.api.response_cache import MAX_COMPRESSED_ON_IO_THREAD
from catalog.store.bundles.compressed import MIN_LENGTH
from catalog.store.connection.sqlite import WouldBlock

WEATHER = "/api/v1/widgets/acme/weather"
REGISTRY = "/api/widgets/acme/registry.json"
GZIP = {"Accept_Encoding": "gzip"}
# Of the demo catalog, and all over 1,000 bytes.
WITH_ETAG = [
    *(WEATHER, "/api/v1/widgets/search", REGISTRY, "/api/v1/widgets/changes"),
    *("/feed.atom", "/openapi.json", "/static/catalog.css"),
]
WITHOUT_ETAG = ["/", "/widgets/acme/weather", "/docs"]
# Compressible types under 1,000 bytes.
SMALL = ["/api/v1/widgets/search?q=xyzzy", "/api/health", "/api/stats", "/static/favicon.svg"]
NOTES = "Now with a compressed form. " * 300


def fetch(client: FlaskClient, path: str, method: str = "GET", **headers: str) -> TestResponse:
    """Send a request; write _ for each - in a header's name."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.open(path, method=method, headers=fields)
    # A file is read while it is open.
    _ = response.data
    response.close()
    return response


def decoded(response: TestResponse) -> bytes:
    """Return the body without its content coding."""
    if "Content-Encoding" not in response.headers:
        return response.data
    assert response.headers["Content-Encoding"] == "gzip"
    return gzip.decompress(response.data)


@pytest.fixture(scope="module")
def demo(demo_database: Path) -> Iterator[FlaskClient]:
    """A client of the demo catalog, shared by the tests of this module."""
    app = create_app({"DATABASE": demo_database})
    yield app.test_client()
    app.extensions["database"].close()


@pytest.mark.parametrize("path", WITH_ETAG + WITHOUT_ETAG)
def test_long_body_is_compressed_for_clients_that_accept_it(demo: FlaskClient, path: str) -> None:
    plain, compressed = fetch(demo, path), fetch(demo, path, **GZIP)
    assert "Content-Encoding" not in plain.headers
    assert compressed.headers.getlist("Content-Encoding") == ["gzip"]
    assert decoded(compressed) == plain.data
    assert len(compressed.data) < len(plain.data) / 2
    assert compressed.headers["Content-Length"] == str(len(compressed.data))
    assert compressed.headers["Content-Type"] == plain.headers["Content-Type"]
    if path in WITH_ETAG:
        assert compressed.headers["ETag"] == plain.headers["ETag"][:-1] + '-gzip"'


@pytest.mark.parametrize("path", SMALL)
def test_short_body_is_not_compressed_but_varies(demo: FlaskClient, path: str) -> None:
    response = fetch(demo, path, **GZIP)
    assert response.status_code == 200
    assert len(response.data) <= MIN_LENGTH
    assert "Content-Encoding" not in response.headers
    assert response.headers.getlist("Vary") == ["Accept-Encoding"]


ENCODINGS = {
    **dict.fromkeys(["GZip", "x-gzip", "br;q=1.0, gzip;q=0.1", "deflate, *;q=0.5"], True),
    **dict.fromkeys(["identity;q=0, gzip", "gzip, *;q=0", "gzip;q=0.5, identity;q=0.5"], True),
    **dict.fromkeys(["", "br", "gzip;q=0.000", "*;q=0", "gzip;q=0, *"], False),
    **dict.fromkeys(["identity, gzip;q=0.5", "gzip;q=0.5, *", "identity;q=0"], False),
    **dict.fromkeys(["gzipped", "gzip;q=x", "gzip;q=2", "gzip" + ", br" * 1000], False),
}


@pytest.mark.parametrize(
    ("header", "is_compressed"), ENCODINGS.items(), ids=[header[:30] for header in ENCODINGS]
)
def test_encoding_follows_the_qualities(
    demo: FlaskClient, header: str, is_compressed: bool
) -> None:
    for path in (WEATHER, "/static/catalog.css"):
        response = fetch(demo, path, Accept_Encoding=header)
        assert response.status_code == 200
        assert ("Content-Encoding" in response.headers) == is_compressed


CODINGS = st.sampled_from(["gzip", "x-gzip", "GZIP", "br", "identity", "*", "deflate", ""])
QUALITIES = st.sampled_from(["", ";q=0", ";q=1", ";q=0.5", "; q=0.001", ";q=9", ";q", ";x=1"])
LISTS = st.lists(st.tuples(CODINGS, QUALITIES).map("".join), max_size=5).map(", ".join)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(header=LISTS | TEXTS)
@example(header='gzip;q="0"')
def test_any_accept_encoding_gets_the_same_body(demo: FlaskClient, header: str) -> None:
    for path in (WEATHER, "/static/catalog.css"):
        response = fetch(demo, path, Accept_Encoding=header)
        assert response.status_code == 200
        assert decoded(response) == fetch(demo, path).data
        assert response.headers.getlist("Vary") == ["Accept-Encoding"]


def etags(client: FlaskClient, path: str) -> dict[str, str]:
    plain, compressed = fetch(client, path), fetch(client, path, **GZIP)
    return {"plain": plain.headers["ETag"], "gzip": compressed.headers["ETag"]}


# Accept-Encoding, If-None-Match, and the form that the 304 names; None for a 200.
CONDITIONS = [
    ("gzip", "W/{gzip}", "gzip"),
    ("gzip", "{plain}", "plain"),
    ("gzip", "{plain}, {gzip}", "gzip"),
    ("gzip", "*", "gzip"),
    ("gzip", '"other", W/"more"', None),
    ("identity", '""', None),
    ("identity", '"', None),
    ("identity", "{plain}, {gzip}", "plain"),
    ("identity", "*", "plain"),
    # A cache must not send the compressed form to this client.
    ("identity", "{gzip}", None),
]


@pytest.mark.parametrize(("accepted", "known", "expected"), CONDITIONS)
@pytest.mark.parametrize("path", WITH_ETAG)
def test_known_form_is_304_with_its_etag(
    demo: FlaskClient, path: str, accepted: str, known: str, expected: str | None
) -> None:
    tags = etags(demo, path)
    response = fetch(demo, path, Accept_Encoding=accepted, If_None_Match=known.format(**tags))
    assert response.headers.getlist("Vary") == ["Accept-Encoding"]
    if expected is None:
        sent = "gzip" if accepted == "gzip" else "plain"
        assert (response.status_code, response.headers["ETag"]) == (200, tags[sent])
    else:
        assert (response.status_code, response.data) == (304, b"")
        assert response.headers.getlist("ETag") == [tags[expected]]
        assert not {"Content-Encoding", "Content-Type"} & set(response.headers.keys())


def test_a_file_of_another_release_is_told_apart_by_its_content_not_its_time(
    demo: FlaskClient,
) -> None:
    path = "/static/catalog.css"
    response = fetch(demo, path, If_Modified_Since="Fri, 31 Dec 2100 23:59:59 GMT")
    assert (response.status_code, response.headers.get("Last-Modified")) == (200, None)
    sha256 = hashlib.sha256(response.data).hexdigest()
    assert etags(demo, path)["plain"] == f'"{sha256}"'


@pytest.fixture
def client(app_with: Callable[..., Flask]) -> FlaskClient:
    """A client of a catalog with one stored bundle of 3 kB."""
    content = b"export default 1;\n" * 170
    app = app_with(document("acme/clock", bundled("1.0.0", content, releaseNotes=NOTES)))
    hold(app, content)
    return app.test_client()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404),
        ("GET", "/api/v1/widgets/acme/" + "x" * 2000, 404),
        ("POST", "/api/v1/widgets/acme/clock", 200),
    ],
)
def test_errors_and_other_methods_are_not_compressed(
    client: FlaskClient, method: str, path: str, status: int
) -> None:
    plain, response = fetch(client, path, method), fetch(client, path, method, **GZIP)
    assert (response.status_code, response.data) == (status, plain.data)
    assert headers_without_date(response) == headers_without_date(plain)
    assert not {"Vary", "Content-Encoding"} & set(response.headers.keys())


def test_compressed_body_changes_with_the_catalog_and_the_host(client: FlaskClient) -> None:
    path = "/api/v1/widgets/acme/clock"
    before = fetch(client, path, **GZIP)
    client.post(path)
    tags = {before.headers["ETag"]}
    for host in ("a.example", "b.example", "a.example"):
        response = fetch(client, path, **GZIP, Host=host)
        assert b'"downloadCount":1' in decoded(response)
        assert f"http://{host}{path}/1.0.0/bundle.js".encode() in decoded(response)
        tags.add(response.headers["ETag"])
    assert len(tags) == 3


# About 10 kB that gzip can halve.
HEX = random.Random(1).randbytes(5_000).hex()  # noqa: S311  (no secret)
LARGE = [
    document(f"acme/w{number}", version(releaseNotes=HEX))
    for number in range(MAX_COMPRESSED_ON_IO_THREAD // len(HEX) + 2)
]


def test_io_thread_does_not_compress_a_large_body_but_sends_it_compressed(
    client_with: Callable[..., FlaskClient],
) -> None:
    client = client_with(*LARGE)
    database = client.application.extensions["database"]
    fetch(client, REGISTRY)
    database.deadline.on_io_thread = True
    assert fetch(client, REGISTRY).status_code == 200
    with pytest.raises(WouldBlock):
        fetch(client, REGISTRY, **GZIP)
    database.deadline.on_io_thread = False
    compressed = fetch(client, REGISTRY, **GZIP)
    assert decoded(compressed) == fetch(client, REGISTRY).data
    database.deadline.on_io_thread = True
    assert fetch(client, REGISTRY, **GZIP).data == compressed.data
