"""Compressed bundles: who gets them, when they are written, and that nothing else notices them."""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import bundled, described, document, png
from conftest import Server, create_catalog, hold, run
from flask import Flask
from flask.testing import FlaskClient
from publishers import FORM_TYPE, bearer, create_token, form, manifest
from werkzeug.test import TestResponse

from app import create_app
from catalog.store.bundles.compressed import compress_bundle
from catalog.store.connection.sqlite import DeadlineExceeded

AppWith = Callable[..., Flask]
CONTENT = b"export default () => 'tick'\n" * 110
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NOISE = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(70))
SHORT = b"x" * 1000
PATH = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
ETAG, GZIP_ETAG = f'"{SHA256}"', f'"{SHA256}-gzip"'
GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    """A catalog with bundles that an earlier release stored, uncompressed, and a picture."""
    picture = png()
    widget = document("acme/clock", bundled("1.0.0", CONTENT), bundled("2.0.0", b"short"))
    app = app_with({**widget, "about": {"picture": described(picture)}})
    hold(app, CONTENT, b"short", picture)
    return app


def fetch(client: FlaskClient, path: str = PATH, **headers: str) -> TestResponse:
    response = client.get(path, headers=headers)
    response.get_data()
    response.close()
    return response


def compressed_files(app: Flask) -> dict[str, bytes]:
    """Return the content of the compressed forms by the hashes of their bundles."""
    return {
        each.stem: each.read_bytes() for each in app.extensions["bundles"].directory.glob("*.gz")
    }


def test_a_bundle_that_is_removed_while_it_is_compressed_leaves_no_file(app: Flask) -> None:
    bundles = app.extensions["bundles"]
    compress_bundle(bundles, SHA256, check=lambda: bundles.remove(SHA256))
    assert not list(bundles.directory.glob(f"{SHA256}*"))


def test_client_that_accepts_gzip_gets_the_compressed_form(app: Flask) -> None:
    client = app.test_client()
    for _ in range(2):
        response = client.get(PATH, headers=GZIP)
        assert gzip.decompress(response.data) == CONTENT
        assert response.headers["Content-Encoding"] == "gzip"
        assert response.headers["Content-Length"] == str(len(response.data))
        assert response.headers["ETag"] == GZIP_ETAG
        assert response.headers["Vary"] == "Accept-Encoding"
        assert response.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert compressed_files(app) == {SHA256: response.data}
        response.close()


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip;q=0.5, identity"])
def test_other_clients_get_the_plain_form(app: Flask, accepted: str) -> None:
    for headers in ({}, GZIP):
        fetch(app.test_client(), **headers)
        response = fetch(app.test_client(), **{"Accept-Encoding": accepted})
        assert response.data == CONTENT
        assert "Content-Encoding" not in response.headers
        assert response.headers["ETag"] == ETAG
        assert response.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("known", "accepted", "status", "etag"),
    [
        (GZIP_ETAG, "gzip", 304, GZIP_ETAG),
        (ETAG, "gzip", 304, ETAG),
        (f"{ETAG}, {GZIP_ETAG}", "gzip", 304, GZIP_ETAG),
        (ETAG, "", 304, ETAG),
        # The client no longer accepts the form that it has.
        (GZIP_ETAG, "", 200, ETAG),
        ('"other"', "gzip", 200, GZIP_ETAG),
    ],
)
def test_each_form_is_revalidated_by_its_own_etag(
    app: Flask, known: str, accepted: str, status: int, etag: str
) -> None:
    headers = {"If-None-Match": known, "Accept-Encoding": accepted}
    response = fetch(app.test_client(), **headers)
    assert (response.status_code, response.headers["ETag"]) == (status, etag)
    assert response.headers["Vary"] == "Accept-Encoding"
    has_encoding = status == 200 and accepted == "gzip"
    assert ("Content-Encoding" in response.headers) == has_encoding


@pytest.mark.parametrize("content", [NOISE, SHORT])
def test_bundle_that_gzip_does_not_help_is_sent_plain(app_with: AppWith, content: bytes) -> None:
    app = app_with(document("acme/clock", bundled("1.0.0", content)))
    hold(app, content)
    for _ in range(2):
        response = fetch(app.test_client(), **GZIP)
        assert (response.data, "Content-Encoding" in response.headers) == (content, False)
        assert response.headers["Vary"] == "Accept-Encoding"
    assert not any(compressed_files(app).values())


def test_bundle_that_cannot_be_compressed_now_is_sent_plain(app: Flask) -> None:
    # The file is damaged: the client compares the hash, and the damage is not made permanent.
    app.extensions["bundles"].path(SHA256).write_bytes(NOISE)
    response = fetch(app.test_client(), **GZIP)
    assert (response.data, response.headers["ETag"]) == (NOISE, ETAG)
    assert compressed_files(app) == {}
    assert [*app.extensions["bundles"].directory.glob("*.partial")] == []


def test_thread_without_time_leaves_compression_to_another_one(app: Flask) -> None:
    deadline = app.extensions["database"].deadline
    deadline.set_budget(-1.0)
    with pytest.raises(DeadlineExceeded):
        fetch(app.test_client(), **GZIP)
    assert [*app.extensions["bundles"].directory.glob("*.partial")] == []
    deadline.set(60)
    assert gzip.decompress(fetch(app.test_client(), **GZIP).data) == CONTENT


def test_pictures_have_one_form_only(app: Flask) -> None:
    response = fetch(app.test_client(), "/api/v1/widgets/acme/clock/picture", **GZIP)
    assert not {"Vary", "Content-Encoding"} & set(response.headers.keys())
    assert compressed_files(app) == {}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    path = create_catalog(
        tmp_path / "catalog.db", document("acme/clock", bundled("1.0.0", CONTENT))
    )
    app = create_app({"DATABASE": path})
    hold(app, CONTENT)
    app.extensions["database"].close()
    with Server(path) as server:
        yield server


def test_the_server_sends_the_compressed_file_whole_whatever_the_range(server: Server) -> None:
    for headers in ({}, {"Range": "bytes=0-5", "If_Range": GZIP_ETAG}):
        response, body = server.request("GET", PATH, Accept_Encoding="gzip", **headers)
        assert (response.status, response.headers["ETag"]) == (200, GZIP_ETAG)
        assert gzip.decompress(body) == CONTENT
    response, body = server.request("HEAD", PATH, Accept_Encoding="gzip")
    assert (response.headers["Content-Encoding"], body) == ("gzip", b"")
    assert server.request("GET", PATH)[1] == CONTENT


def test_published_bundle_is_compressed_when_it_is_stored(app_with: AppWith) -> None:
    app = app_with()
    headers = bearer(create_token(app.extensions["database"]))
    response = app.test_client().put(
        "/api/widgets/acme/clock/1.0.0",
        data=form(manifest(), CONTENT),
        headers={"Content-Type": FORM_TYPE, **headers},
    )
    assert response.status_code == 201
    assert gzip.decompress(compressed_files(app)[SHA256]) == CONTENT


def test_gc_compresses_bundles_of_earlier_releases(app: Flask) -> None:
    nothing = "0 unused bundles (0 bytes in total)."
    result = run(app, "gc", "--dry-run")
    assert result.stderr == f"Would remove {nothing}\nWould compress 1 bundle.\n"
    assert compressed_files(app) == {}
    assert run(app, "gc").stderr == f"Removed {nothing}\nCompressed 1 bundle.\n"
    assert gzip.decompress(compressed_files(app)[SHA256]) == CONTENT
    assert run(app, "gc").stderr == f"Removed {nothing}\n"
    assert [*compressed_files(app)] == [SHA256]


def test_gc_removes_the_compressed_form_with_its_bundle(app: Flask) -> None:
    run(app, "gc")
    directory = app.extensions["bundles"].directory
    (directory / f"{SHA256}.abc_1234.gz.partial").write_bytes(b"left by a crash")
    assert run(app, "delete", "acme/clock@1.0.0", "--yes").exit_code == 0
    assert run(app, "gc").exit_code == 0
    assert [*directory.glob("*.*")] == []
    assert not (directory / SHA256).exists()


def test_check_accepts_compressed_forms_and_reports_damaged_ones(app: Flask) -> None:
    run(app, "gc")
    assert run(app, "check").exit_code == 0
    bundles = app.extensions["bundles"]
    for damage in (b"noise", gzip.compress(b"other"), gzip.compress(CONTENT)[:-9]):
        bundles.gzip_path(SHA256).write_bytes(damage)
        result = run(app, "check")
        assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
        assert result.stdout.startswith(f"Compressed bundle {SHA256}.gz in {bundles.name}: it ")
        assert ". Delete the file; the next request recreates it." in result.stdout


def test_packs_have_no_compressed_forms_and_unpacking_writes_them(
    app: Flask, tmp_path: Path
) -> None:
    run(app, "gc")
    assert run(app, "pack", tmp_path / "all.pack").exit_code == 0
    with tarfile.open(tmp_path / "all.pack") as archive:
        assert not any(name.endswith(".gz") for name in archive.getnames())
    (tmp_path / "other").mkdir()
    other = create_app({"DATABASE": tmp_path / "other" / "catalog.db"})
    assert run(other, "unpack", tmp_path / "all.pack").exit_code == 0
    assert [*compressed_files(other)] == [SHA256]
    for path in other.extensions["bundles"].directory.iterdir():
        path.unlink()
    assert run(other, "unpack", "--bundles-only", tmp_path / "all.pack").exit_code == 0
    assert gzip.decompress(compressed_files(other)[SHA256]) == CONTENT
    other.extensions["database"].close()


def test_mirror_copies_the_plain_bytes_of_a_compressed_bundle(
    server: Server, app_with: AppWith
) -> None:
    assert server.request("GET", PATH, Accept_Encoding="gzip")[0].status == 200
    app = app_with()
    assert run(app, "mirror", server.url, "--bundles").exit_code == 0
    assert fetch(app.test_client()).data == CONTENT
    detail = json.loads(fetch(app.test_client(), "/api/v1/widgets/acme/clock").data)
    assert detail["versions"][0]["bundleUrl"].endswith(f"{PATH}?sha256={SHA256}")
