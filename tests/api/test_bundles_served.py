"""Stored bundles: how they are served, and their URLs in responses."""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from builders import bundled, described, document, png, version
from conftest import Server, create_catalog, hold, put, run, running
from flask import Flask
from flask.testing import FlaskClient

from app import create_app

AppWith = Callable[..., Flask]
CONTENT = b"export default () => 'tick'\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CLOCK = document("acme/clock", bundled("1.0.0", CONTENT), version("2.0.0", yanked=True))
PATH = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
ORIGINAL = "https://cdn.example.com/bundles/1.0.0.js"
ADDRESSES = {
    "search": "/api/v1/widgets/search",
    "compatible": "/api/v1/widgets/search?compatSdk=1.0.0",
    "detail": "/api/v1/widgets/acme/clock",
    "registry": "/api/widgets/acme/registry.json",
}
COPY_ALL = "INSERT INTO mirrored (widget_id, source) SELECT id, :source FROM widget"
# A scope and a name with characters that are special in URLs.
UNUSUAL = "a&b%/日 本?#'\""


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    app = app_with(CLOCK)
    hold(app, CONTENT)
    return app


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server with a stored bundle, also under names that need encoding."""
    path = tmp_path_factory.mktemp("bundles") / "catalog.db"
    unusual = document(UNUSUAL, bundled("1.0.0+x.y", CONTENT))
    app = create_app({"DATABASE": create_catalog(path, CLOCK, unusual)})
    hold(app, CONTENT)
    app.extensions["database"].close()
    running = Server(path)
    yield running
    running.stop()


def bundle_urls(client: FlaskClient, address: str, host: str | None = None) -> set[str]:
    """Return each bundleUrl of version 1.0.0 in the response."""
    headers = {} if host is None else {"Host": host}
    response = client.get(address, headers=headers)
    assert response.headers["Content-Length"] == str(len(response.data))
    urls: set[str] = set()

    def collect(value: dict[str, object]) -> dict[str, object]:
        if value.get("version") == "1.0.0":
            urls.add(str(value["bundleUrl"]))
        return value

    json.loads(response.text, object_hook=collect)
    return urls


def test_the_replaced_bundle_of_a_copy_is_sent_whatever_its_time(app: Flask) -> None:
    tomorrow = {"If-Modified-Since": "Fri, 31 Dec 2100 23:59:59 GMT"}
    with app.test_client().get(PATH, headers=tomorrow) as response:
        assert response.status_code == 304
    values = {"source": "https://upstream.example"}
    app.extensions["database"].transact(running(COPY_ALL, values))
    with app.test_client().get(PATH, headers=tomorrow) as response:
        assert (response.status_code, response.get_data()) == (200, CONTENT)
        assert "Last-Modified" not in response.headers
        etag = {"If-None-Match": response.headers["ETag"]}
    with app.test_client().get(PATH, headers=etag) as response:
        assert response.status_code == 304


def test_bundle_by_its_hash_is_immutable_even_if_it_is_a_copy(app: Flask) -> None:
    client = app.test_client()
    for is_copy in (False, True):
        if is_copy:
            values = {"source": "https://upstream.example"}
            app.extensions["database"].transact(running(COPY_ALL, values))
        with client.get(f"{PATH}?sha256={SHA256}") as response:
            assert (response.status_code, response.get_data()) == (200, CONTENT)
            cached = "public, max-age=31536000, immutable"
            assert response.headers["Cache-Control"] == cached
        with client.get(PATH) as response:
            assert response.headers["Cache-Control"] == ("no-cache" if is_copy else cached)
        for other in ("0" * 64, SHA256.upper(), ""):
            response = client.get(f"{PATH}?sha256={other}")
            message = "The bundle of 'acme/clock@1.0.0' has a different SHA-256."
            assert (response.status_code, response.json) == (404, {"error": message})


def test_bundle_url_of_a_copy_contains_its_hash(app: Flask) -> None:
    client = app.test_client()
    assert bundle_urls(client, ADDRESSES["detail"]) == {f"http://localhost{PATH}"}
    values = {"source": "https://upstream.example"}
    app.extensions["database"].transact(running(COPY_ALL, values))
    hold(app, CONTENT)
    expected = f"http://localhost{PATH}?sha256={SHA256}"
    for address in ADDRESSES.values():
        assert bundle_urls(client, address) == {expected}
    path = "/api/v1/widgets/importmap?compatSdk=1.0.0&widget=acme/clock"
    assert json.loads(client.get(path).data)["imports"] == {"acme/clock": expected}


def test_pages_that_isolate_themselves_may_load_bundles_and_pictures(app_with: AppWith) -> None:
    picture = png()
    app = app_with({**CLOCK, "about": {"picture": described(picture)}})
    hold(app, CONTENT, picture)
    for path in (PATH, "/api/v1/widgets/acme/clock/picture"):
        with app.test_client().get(path) as response:
            assert response.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
            etag = {"If-None-Match": response.headers["ETag"]}
        with app.test_client().get(path, headers=etag) as response:
            assert response.status_code == 304
            assert response.headers["Cross-Origin-Resource-Policy"] == "cross-origin"


def test_bundle_is_served_whole_with_its_hash_whatever_the_range(server: Server) -> None:
    for range_ in ("bytes=0-5", "bytes=28-", "bytes=0-5,7-9"):
        headers = {"Range": range_, "If_Range": f'"{SHA256}"', "If_Match": '"other"'}
        response, body = server.request("GET", PATH, **headers)
        assert (response.status, body) == (200, CONTENT)
        assert response.headers["ETag"] == f'"{SHA256}"'
        assert response.headers["Content-Disposition"] == "inline; filename=clock-1.0.0.js"


def test_bundle_url_of_unusual_names_leads_to_the_bundle(server: Server) -> None:
    scope, name = (quote(part, safe="") for part in UNUSUAL.split("/"))
    _, body = server.request("GET", f"/api/v1/widgets/{scope}/{name}")
    (entry,) = json.loads(body)["versions"]
    assert entry["bundleUrl"] == f"{server.url}/api/v1/widgets/{scope}/{name}/1.0.0%2Bx.y/bundle.js"
    response, body = server.request("GET", urlsplit(entry["bundleUrl"]).path)
    assert (response.status, body) == (200, CONTENT)


def assert_missing(app: Flask, path: str) -> None:
    response = app.test_client().get(path)
    _, scope, name, number, _ = path.removeprefix("/api/v1").rsplit("/", 4)
    message = f"No bundle for '{scope}/{name}@{number}' is stored here."
    assert (response.status_code, response.get_json()) == (404, {"error": message})


def test_missing_bundle_is_404(app: Flask) -> None:
    for number in ("2.0.0", "3.0.0"):
        assert_missing(app, PATH.replace("1.0.0", number))
    assert_missing(app, PATH.replace("clock", "klock"))
    app.extensions["bundles"].remove(SHA256)
    assert_missing(app, PATH)
    app.extensions["bundles"].directory.rmdir()
    assert_missing(app, PATH)


def test_bundle_of_an_unlisted_widget_is_404(app: Flask) -> None:
    assert run(app, "unlist", "acme/clock").exit_code == 0
    assert_missing(app, PATH)


def test_bundle_of_a_yanked_version_is_served(app: Flask) -> None:
    run(app, "yank", "acme/clock@1.0.0")
    with app.test_client().get(PATH) as response:
        assert response.data == CONTENT


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_bundle_url_has_the_host_of_the_request(client: FlaskClient, address: str) -> None:
    etags = set()
    for host in ("a.example", "b.example:8080", "a.example"):
        assert bundle_urls(client, address, host) == {f"http://{host}{PATH}"}
        etags.add(client.get(address, headers={"Host": host}).headers["ETag"])
    assert len(etags) == 2


@pytest.mark.parametrize("host", ["u@a.example", "a.example/x", "<script>", "", "ü"])
def test_invalid_host_is_replaced_by_the_address_of_the_listener(
    client: FlaskClient, host: str
) -> None:
    assert bundle_urls(client, ADDRESSES["detail"], host) == {f"http://localhost{PATH}"}


def test_public_url_replaces_the_host(app_with: AppWith) -> None:
    app = app_with(CLOCK, PUBLIC_URL="https://w.example/catalog/")
    hold(app, CONTENT)
    for host in ("a.example", "<script>"):
        urls = bundle_urls(app.test_client(), ADDRESSES["detail"], host)
        assert urls == {f"https://w.example/catalog{PATH}"}


def test_bundle_url_behind_a_proxy_has_the_public_address(
    app_with: AppWith,
) -> None:
    app = app_with(CLOCK, TRUSTED_PROXY="127.0.0.1")
    hold(app, CONTENT)
    forwarded_values = {"Host": "w.example", "Proto": "https", "Prefix": "/catalog"}
    forwarded = {f"X-Forwarded-{name}": value for name, value in forwarded_values.items()}
    body = app.test_client().get(ADDRESSES["detail"], headers=forwarded)
    by_version = {entry["version"]: entry["bundleUrl"] for entry in body.json["versions"]}
    assert by_version["1.0.0"] == f"https://w.example/catalog{PATH}"
    # It is not stored here.
    assert by_version["2.0.0"] == "https://cdn.example.com/bundles/2.0.0.js"
    assert bundle_urls(app.test_client(), ADDRESSES["detail"]) == {f"http://localhost{PATH}"}


def test_slow_clients_do_not_keep_bundles_in_memory(app_with: AppWith) -> None:
    content = bytes(32 * 1024 * 1024)
    app = app_with(document("acme/clock", bundled("1.0.0", content)))
    hold(app, content)
    with Server(app.config["DATABASE"]) as server, ExitStack() as stack:
        before = server.megabytes()
        for _ in range(8):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
        assert server.request("GET", "/api/health")[0].status == 200
        assert server.megabytes() - before < 32


def test_next_response_shows_that_a_bundle_is_held(app_with: AppWith) -> None:
    app = app_with(CLOCK)
    assert bundle_urls(app.test_client(), ADDRESSES["detail"]) == {ORIGINAL}
    hold(app, CONTENT)
    assert bundle_urls(app.test_client(), ADDRESSES["detail"]) == {f"http://localhost{PATH}"}


CHANGES = {
    "other address": ({"bundleUrl": "https://b.example/x.js"}, f"http://localhost{PATH}"),
    "other bytes": ({"sha256Hash": "0" * 64}, ORIGINAL),
    "other size": ({"bundleSize": 5}, ORIGINAL),
}


@pytest.mark.parametrize(("fields", "url"), CHANGES.values(), ids=CHANGES)
def test_import_releases_a_bundle_only_if_its_bytes_change(
    app: Flask, fields: dict[str, object], url: str
) -> None:
    changed = document("acme/clock", {**bundled("1.0.0", CONTENT), **fields})
    put(app, changed)
    assert bundle_urls(app.test_client(), ADDRESSES["detail"]) == {url}


def test_a_bundle_that_becomes_shorter_while_it_is_sent_ends_only_its_connection(
    tmp_path: Path,
) -> None:
    content = b"x" * 12_000_000
    clock = document("acme/clock", bundled("1.0.0", content))
    app = create_app({"DATABASE": create_catalog(tmp_path / "catalog.db", clock)})
    hold(app, content)
    app.extensions["database"].close()
    with Server(tmp_path / "catalog.db") as server:
        with socket.create_connection(("127.0.0.1", server.port), 20) as client:
            client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            received = len(client.recv(1000))
            (stored,) = Path(f"{tmp_path}/catalog.db-bundles").glob("[0-9a-f]*")
            os.truncate(stored, 500_000)
            with suppress(ConnectionResetError):
                while data := client.recv(65536):
                    received += len(data)
        assert received < len(content)
        assert server.request("GET", "/api/health")[0].status == 200
