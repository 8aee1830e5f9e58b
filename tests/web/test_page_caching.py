"""Pages are revalidated by ETag; static files are cached by the hash in their address."""

import re
from collections.abc import Callable

import pytest
from builders import document, version
from flask.testing import FlaskClient
from markup import element, elements

WEATHER = "/widgets/acme/weather"
PAGES = ["/", "/?q=weather&compatSdk=1.4.0", WEATHER, "/docs"]
ClientWith = Callable[..., FlaskClient]


def page_etag(client: FlaskClient, path: str, **headers: str) -> str:
    response = client.get(path, headers=headers)
    assert response.status_code == 200
    return response.headers["ETag"]


def status_with(client: FlaskClient, path: str, etag: str, **headers: str) -> int:
    return client.get(path, headers={"If-None-Match": etag, **headers}).status_code


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_unchanged_page_is_304_with_the_headers_of_the_page(
    demo: FlaskClient, path: str, encoding: str
) -> None:
    page = demo.get(path, headers={"Accept-Encoding": encoding})
    headers = {"Accept-Encoding": encoding, "If-None-Match": page.headers["ETag"]}
    unchanged = demo.get(path, headers=headers)
    assert (unchanged.status_code, unchanged.data) == (304, b"")
    for name in ("ETag", "Vary", "Cache-Control", "Content-Security-Policy"):
        assert unchanged.headers[name] == page.headers[name]


def test_each_encoding_of_a_page_has_an_etag_of_its_own(demo: FlaskClient) -> None:
    plain = page_etag(demo, WEATHER)
    compressed = page_etag(demo, WEATHER, **{"Accept-Encoding": "gzip"})
    assert compressed == f'{plain[:-1]}-gzip"'
    assert status_with(demo, WEATHER, compressed) == 200
    # A client that accepts gzip may also have the page uncompressed.
    assert status_with(demo, WEATHER, plain, **{"Accept-Encoding": "gzip"}) == 304


@pytest.mark.parametrize("path", ["/", "/widgets/acme/clock"])
def test_page_with_another_install_count_is_sent_again(client_with: ClientWith, path: str) -> None:
    client = client_with(document("acme/clock", version(), downloadCount=1))
    etag = page_etag(client, path)
    assert status_with(client, path, etag) == 304
    assert client.post("/api/v1/widgets/acme/clock").status_code == 200
    changed = client.get(path, headers={"If-None-Match": etag})
    assert (changed.status_code, "2 installs" in changed.text) == (200, True)


def test_etag_of_one_page_does_not_match_another(demo: FlaskClient) -> None:
    etag = page_etag(demo, "/")
    for path in ("/?page=2", WEATHER, "/docs"):
        assert status_with(demo, path, etag) == 200
    other_host = demo.get("/", base_url="http://other.example", headers={"If-None-Match": etag})
    assert other_host.status_code == 200


def test_files_of_a_page_are_cached_for_a_year(demo: FlaskClient) -> None:
    page = demo.get("/").text
    scripts = [node.attributes["src"] for node in elements(page, "script")]
    links = [element(page, "link", rel=rel).attributes["href"] for rel in ("stylesheet", "icon")]
    for url in (*scripts, *links):
        plain_url, count = re.subn(r"\.[0-9a-f]{16}\.", ".", url)
        with demo.get(url) as hashed, demo.get(plain_url) as plain:
            assert (count, hashed.data) == (1, plain.data)
            assert hashed.headers["Cache-Control"] == "max-age=31536000, immutable"
            assert plain.headers["Cache-Control"] == "no-cache"


def test_file_with_the_hash_of_another_release_is_revalidated(demo: FlaskClient) -> None:
    with demo.get(f"/static/catalog.{'0' * 16}.css") as response:
        assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-cache")
