"""The file of an rqlite node, simulated with SQLite: it is read again when it is replaced."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from conftest import create_catalog
from flask.testing import FlaskClient

from app import create_app
from catalog.store.connection.file_paths import remove_wal, shm_path, wal_path

CLOCK = "/api/v1/widgets/acme/clock"
# Nothing listens on port 1.
NO_NODE = "http://127.0.0.1:1"

# Ends without closing the connection, as a killed node does, so that the WAL stays as it is.
INSTALLS = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_autocheckpoint = 0")
for _ in range(int(sys.argv[2])):
    connection.execute("UPDATE widget SET download_count = download_count + 1")
os._exit(0)
"""


def install(path: Path, count: int) -> None:
    """Write installs into the WAL, in a process of their own like those of a node."""
    subprocess.run([sys.executable, "-c", INSTALLS, str(path), str(count)], check=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a node, with one widget and no install."""
    return create_catalog(tmp_path / "db.sqlite", document(downloadCount=0))


@pytest.fixture
def client(path: Path, tmp_path: Path) -> Iterator[FlaskClient]:
    app = create_app({"DATABASE": path, "RQLITE": NO_NODE, "BUNDLES": str(tmp_path / "bundles")})
    yield app.test_client()
    app.extensions["database"].close()


@pytest.fixture
def snapshot(path: Path) -> Path:
    return shutil.copyfile(path, path.with_name("snapshot"))


def count(client: FlaskClient) -> int:
    response = client.get(CLOCK)
    assert response.status_code == 200, response.text
    return int(response.json["widget"]["downloadCount"])


def replace_file(path: Path, snapshot: Path) -> None:
    """Start again from a snapshot, as a node of rqlite 8 does."""
    path.unlink(missing_ok=True)
    remove_wal(path)
    shutil.copyfile(snapshot, path)


def test_every_thread_reads_a_new_file(client: FlaskClient, path: Path, snapshot: Path) -> None:
    install(path, 3)
    with ThreadPoolExecutor(1) as other:
        assert [count(client), other.submit(count, client).result()] == [3, 3]
        replace_file(path, snapshot)
        install(path, 4)
        assert [count(client), other.submit(count, client).result()] == [4, 4]


@pytest.mark.parametrize("state", ["missing", "empty", "without tables"])
def test_the_old_file_is_read_until_the_new_one_is_complete(
    client: FlaskClient, path: Path, snapshot: Path, state: str
) -> None:
    install(path, 3)
    assert count(client) == 3
    path.unlink()
    remove_wal(path)
    if state == "empty":
        path.touch()
    elif state == "without tables":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM")
    assert count(client) == 3
    replace_file(path, snapshot)
    assert count(client) == 0


def test_a_read_in_progress_keeps_its_file(client: FlaskClient, path: Path, snapshot: Path) -> None:
    database = client.application.extensions["database"]
    with database.read() as connection:
        replace_file(path, snapshot)
        assert database.reader() is connection
    assert database.reader() is not connection


def test_the_file_and_its_wal_are_never_written_or_removed(client: FlaskClient, path: Path) -> None:
    install(path, 3)
    before = path.read_bytes(), wal_path(path).read_bytes()
    assert count(client) == 3
    client.application.extensions["database"].close()
    assert (path.read_bytes(), wal_path(path).read_bytes()) == before
    assert shm_path(path).exists()


def test_a_file_of_another_schema_version_is_not_served_and_not_migrated(
    client: FlaskClient, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = path.read_bytes()
    assert client.get(CLOCK).status_code == 503
    assert path.read_bytes() == before


ALONE = "the http or https URL of the rqlite node on this machine, without a path"
NO_USER = "a URL without a user and password; set CATALOG_RQLITE_AUTH to a file that has them"
# What CATALOG_RQLITE must not be, and what it must be.
INVALID_NODES = {
    "node:4001": ALONE,
    "http://": ALONE,
    "http://node/db": ALONE,
    "ftp://node": ALONE,
    "http://user:secret@node": NO_USER,
    "http://node1:4001,http://node2:4001": (
        "one URL: name the node on this machine, which forwards writes"
    ),
}


@pytest.mark.parametrize(("url", "allowed"), INVALID_NODES.items())
def test_an_invalid_node_is_an_error_that_says_what_to_do_and_shows_no_password(
    url: str, allowed: str
) -> None:
    with pytest.raises(ValueError, match="CATALOG_RQLITE must be") as error:
        create_app({"RQLITE": url, "BUNDLES": "bundles"})
    assert str(error.value) == f"CATALOG_RQLITE must be {allowed}."


# The mode and the content of a file, and what CATALOG_RQLITE_AUTH must be instead.
INVALID_USERS = {
    "missing": (None, b"", "a file that exists and that this user can read"),
    "binary": (0o600, b"\xff:\xff", "a file that exists and that this user can read"),
    "for all": (0o604, b"a:b", "a file that other users cannot read: run chmod o= on it"),
    "without password": (0o600, b"secret", "a file whose first line is USER:PASSWORD"),
}


@pytest.mark.parametrize(("mode", "content", "allowed"), INVALID_USERS.values(), ids=INVALID_USERS)
def test_a_file_of_user_and_password_that_cannot_be_used_is_an_error(
    tmp_path: Path, mode: int | None, content: bytes, allowed: str
) -> None:
    file = tmp_path / "user"
    if mode is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(ValueError, match="CATALOG_RQLITE_AUTH") as error:
        create_app({"RQLITE": NO_NODE, "RQLITE_AUTH": file, "BUNDLES": "bundles"})
    assert str(error.value).startswith(f"CATALOG_RQLITE_AUTH must be {allowed}, not '")


def test_a_cluster_needs_a_directory_for_bundles() -> None:
    with pytest.raises(ValueError, match="CATALOG_BUNDLES must be set with CATALOG_RQLITE"):
        create_app({"RQLITE": NO_NODE})
