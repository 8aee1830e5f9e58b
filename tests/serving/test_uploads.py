"""Uploads to a real server: who may send a large body, and what remains of an incomplete one."""

import hashlib
import json
import os
import random
import re
import select
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import reverse_proxies
from builders import document
from conftest import Limits, Server, create_catalog, run_on
from publishers import FORM_TYPE, bearer, create_token, form, manifest

from catalog.domain.permissions import MAX_FORM_BYTES
from catalog.domain.token_text import generate_token
from catalog.store.connection.database import Database

# Always with the same seed.
RANDOM = random.Random(1)  # noqa: S311


def random_text(size: int) -> bytes:
    """Return so many bytes of text that cannot be compressed to less than half."""
    return RANDOM.randbytes(size // 2).hex().encode()


PATH = "/api/widgets/acme/clock/1.0.0"
NOTES = "/api/v1/widgets/ops/notes"
MEGABYTE = 1024 * 1024
MAX_UPLOADS = 8
MAX_BUNDLE = 32 * MEGABYTE


class Publisher:
    """A server, and a token for the scope acme."""

    def __init__(self, folder: Path, limits: Limits, **settings: str) -> None:
        self.path = create_catalog(folder / "catalog.db", document("ops/notes"))
        self.token = self.add_token("ci")
        # On a busy machine, the check of a token may exceed its budget: then the response is 503.
        settings |= limits.set("serving.uploads", CHECK_BUDGET=60)
        self.server = Server(self.path, **settings)
        self.bundles = folder / "catalog.db-bundles"

    def add_token(self, name: str, **rights: Any) -> str:
        database = Database(self.path)
        text = create_token(database, name, **rights)
        database.close()
        return text

    def head(self, length: int | str, *, path: str = PATH, token: str | None = None) -> bytes:
        """Return the head of an upload; the length may be chunked."""
        size = f"Content-Length: {length}"
        if length == "chunked":
            size = "Transfer-Encoding: chunked"
        authorization = f"Authorization: Bearer {token or self.token}\r\n" if token != "" else ""
        return (
            f"PUT {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}"
            f"Content-Type: {FORM_TYPE}\r\n{size}\r\n\r\n"
        ).encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)

    def exchange(self, data: bytes) -> bytes:
        """Send the data on a new connection, and return all that is received before its end."""
        with self.connect() as connection:
            connection.sendall(data.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            return read_all(connection)

    def settle(self) -> None:
        """Send requests until the server has read and closed every connection before."""
        for _ in range(1000):
            # Changes are made by the thread that writes uploads.
            response, _ = self.server.request(
                "PATCH", "/api/widgets/acme/none", b"{}", **bearer(self.token)
            )
            assert response.status == 400
            if not self.open_files():
                break

    def wait_for_uploads(self, count: int) -> None:
        """Send requests until the server receives only this many large bodies."""
        for _ in range(1000):
            assert self.server.request("GET", "/api/version")[0].status == 200
            if len(self.open_files()) <= count:
                break

    def open_files(self) -> list[str]:
        """Return the unlinked files that the server has open."""
        folder = Path(f"/proc/{self.server.process.pid}/fd")
        links = []
        for path in folder.iterdir():
            # The server may close a connection meanwhile.
            with suppress(FileNotFoundError):
                links.append(os.readlink(path))
        return [link for link in links if "deleted" in link]

    def stored(self) -> list[str]:
        return sorted(os.listdir(self.bundles)) if self.bundles.exists() else []


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def status(response: bytes) -> int:
    return int(response.split(b" ")[1])


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """A server for the tests in which nothing is published."""
    # On a busy machine, a test may take longer than input is discarded.
    limits = Limits(tmp_path_factory.mktemp("site"))
    limits.set("serving.connections", QUIET_TIMEOUT=60, DISCARD_TIMEOUT=60)
    # The tests may run in any order, and one of them sends many wrong tokens.
    limits.set("api.internal.authentication", MAX_FAILURES=1000)
    running = Publisher(tmp_path_factory.mktemp("publisher"), limits, CATALOG_REQUEST_TIMEOUT="2")
    with running.server:
        yield running


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
def test_a_bundle_larger_than_the_buffers_is_published(
    tmp_path: Path, limits: Limits, is_chunked: bool
) -> None:
    publisher = Publisher(tmp_path, limits)
    bundle = random_text(3 * MEGABYTE)
    body = form(manifest(), bundle)
    if is_chunked:
        chunks = (body[start : start + 70_000] for start in range(0, len(body), 70_000))
        framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        data = publisher.head("chunked") + framed + b"0\r\n\r\n"
    else:
        data = publisher.head(len(body)) + body
    with publisher.server:
        assert status(publisher.exchange(data)) == 201
        _, served = publisher.server.request("GET", f"{PATH.replace('api', 'api/v1')}/bundle.js")
        publisher.settle()
        assert publisher.open_files() == []
    assert served == bundle
    # Beside the bundle there is the file of its compressed form.
    sha256 = hashlib.sha256(bundle).hexdigest()
    assert publisher.stored() == [sha256, f"{sha256}.gz"]


REFUSED = {
    "no token": ("", PATH, MEGABYTE, 401),
    "no token, in chunks": ("", PATH, "chunked", 401),
    "no token, and no such path": ("", "/api/none", MEGABYTE, 401),
    "wrong token": ("wcat_wrong", PATH, MEGABYTE, 401),
    "other scope": (None, PATH.replace("acme", "ops"), MEGABYTE, 403),
    "no such path": (None, "/api/none", MEGABYTE, 404),
    "public path": (None, "/api/v1/widgets/acme/clock", MEGABYTE, 413),
    "page": (None, "/publish", MEGABYTE, 413),
    "over the limit": (None, PATH, MAX_BUNDLE + MAX_FORM_BYTES + 1, 413),
}


@pytest.mark.parametrize(("token", "path", "length", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_large_body_without_the_right_is_refused_at_its_head(
    publisher: Publisher, token: str | None, path: str, length: int | str, expected: int
) -> None:
    with publisher.connect() as connection:
        # Not a byte of the body is sent.
        connection.sendall(publisher.head(length, path=path, token=token))
        response = read_all(connection)
        assert publisher.open_files() == []
    assert status(response) == expected
    assert b"\r\nConnection: close\r\n" in response
    assert publisher.stored() == []


def test_a_large_body_that_is_no_bundle_is_refused_at_its_head(publisher: Publisher) -> None:
    head = publisher.head(MEGABYTE, path="/api/widgets/acme/clock").replace(b"PUT", b"PATCH")
    response = publisher.exchange(head)
    assert (status(response), b"it must not exceed 802816 bytes" in response) == (413, True)


@pytest.mark.parametrize(("permission", "expected"), [("describe", 404), ("publish", 403)])
def test_a_description_over_the_limit_of_other_bodies_needs_the_right_to_describe(
    publisher: Publisher, permission: str, expected: int
) -> None:
    token = publisher.add_token(f"only-{permission}", permissions=(permission,))
    # Each character has six bytes in this body.
    body = json.dumps({"description": "é" * 9_000}).encode()
    response, content = publisher.server.request(
        "PATCH", "/api/widgets/acme/clock", body, Content_Type="application/json", **bearer(token)
    )
    assert response.status == expected, content
    refusal = "The token only-publish does not have the describe permission."
    error = refusal if expected == 403 else "There is no widget acme/clock."
    assert json.loads(content) == {"error": error}


def test_nothing_of_a_refused_body_is_taken_for_a_request(publisher: Publisher) -> None:
    part = f"POST {NOTES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 20
    wrong = generate_token()[1]
    with publisher.connect() as connection:
        connection.sendall(publisher.head(MEGABYTE, token=wrong) + part)
        response = read_all(connection)
        publisher.settle()
        # A second response would have closed the connection, and reset it now.
        for _ in range(2):
            connection.sendall(part)
            publisher.settle()
    assert response.count(b"HTTP/1.1 ") == 1
    assert response.endswith(b'{"error":"This path is internal and needs a session."}\n')
    # Installs are counted in the order of their requests, and this is the first one.
    assert publisher.server.request("POST", NOTES)[0].status == 200
    _, detail = publisher.server.request("GET", NOTES)
    assert json.loads(detail)["widget"]["downloadCount"] == 1


def test_a_chunked_body_over_the_limit_is_refused_and_leaves_nothing(
    tmp_path: Path, limits: Limits
) -> None:
    publisher = Publisher(tmp_path, limits, CATALOG_MAX_BUNDLE_BYTES="1000000")
    chunk = b"%x\r\n%s\r\n" % (MEGABYTE, random_text(MEGABYTE))
    with publisher.server:
        with publisher.connect() as connection:
            connection.sendall(publisher.head("chunked") + chunk * 2)
            response = read_all(connection)
        publisher.settle()
        assert publisher.open_files() == []
    assert status(response) == 413
    assert publisher.stored() == []


def test_of_two_tokens_in_one_request_none_is_accepted(publisher: Publisher) -> None:
    line = f"Authorization: Bearer {publisher.token}\r\n"
    head = f"GET /api/session HTTP/1.1\r\nHost: localhost\r\n{line}"
    responses = [publisher.exchange(f"{head}{more}\r\n".encode()) for more in ("", line)]
    assert [status(response) for response in responses] == [200, 401]


def test_uploads_that_are_cut_at_random_points_leave_nothing(publisher: Publisher) -> None:
    body = form(manifest(), random_text(MEGABYTE))
    points = RANDOM.sample(range(len(body)), MAX_UPLOADS + 1)
    for point in points:
        with publisher.connect() as connection:
            connection.sendall(publisher.head(len(body)) + body[:point])
        publisher.settle()
    assert publisher.open_files() == []
    assert publisher.stored() == []


def begin_upload(
    publisher: Publisher, stack: ExitStack, token: str, length: int | str = MEGABYTE
) -> tuple[socket.socket, int]:
    """Send the head of an upload; return its connection, and the status: 100 if it may begin."""
    connection = stack.enter_context(publisher.connect())
    head = publisher.head(length, token=token)[:-2] + b"Expect: 100-continue\r\n\r\n"
    connection.sendall(head)
    return connection, status(connection.recv(65536))


def test_eight_uploads_are_received_at_the_same_time(publisher: Publisher) -> None:
    other = publisher.add_token("other")
    with ExitStack() as stack:
        for number in range(MAX_UPLOADS):
            token = other if number % 2 else publisher.token
            assert begin_upload(publisher, stack, token)[1] == 100
        for length in (MEGABYTE, "chunked"):
            connection = stack.enter_context(publisher.connect())
            connection.sendall(publisher.head(length))
            response = read_all(connection)
            assert status(response) == 503
            assert b"\r\nRetry-After: 5\r\n" in response
            assert b"Too many uploads at the same time." in response


def test_an_upload_that_ends_makes_room_for_another(publisher: Publisher) -> None:
    with ExitStack() as stack:
        uploads = [begin_upload(publisher, stack, publisher.token)[0] for _ in range(MAX_UPLOADS)]
        uploads[0].close()
        publisher.wait_for_uploads(MAX_UPLOADS - 1)
        assert begin_upload(publisher, stack, publisher.token)[1] == 100


def test_chunks_of_a_byte_and_long_trailers_are_refused_with_a_token_too(
    publisher: Publisher,
) -> None:
    small, trailers = b"1\r\nx\r\n" * 10_000, b"0\r\n" + b"X: y\r\n" * 10_000
    for body in (small, trailers):
        with publisher.connect() as connection:
            connection.sendall(publisher.head("chunked") + body)
            assert status(connection.recv(65536)) == 400


def test_a_request_with_a_wrong_token_does_not_wait_for_a_change(
    tmp_path: Path, limits: Limits
) -> None:
    publisher = Publisher(tmp_path, limits)
    path, body = "/api/widgets/acme/none", b"{}"
    with (
        publisher.server,
        closing(sqlite3.connect(publisher.path, isolation_level=None)) as other,
        publisher.connect() as waiting,
    ):
        upload = form(manifest(), b"bundle")
        other.execute("BEGIN IMMEDIATE")
        waiting.sendall(publisher.head(len(upload)) + upload)
        response, _ = publisher.server.request("PATCH", path, body, **bearer("wcat_wrong"))
        assert response.status == 401
        assert not select.select([waiting], [], [], 0)[0]
        other.execute("ROLLBACK")
        assert status(waiting.recv(65536)) in (201, 503)


def test_a_body_has_one_deadline_by_its_length_but_a_form_only_the_request_timeout(
    tmp_path: Path, limits: Limits
) -> None:
    # A second for each 100,000 bytes, and a hundred of them for a chunked body.
    limits.set("serving.uploads", MIN_RATE=100_000)
    limits.set("serving.event_loop", CHECK_INTERVAL=0.1)
    publisher = Publisher(tmp_path, limits, CATALOG_REQUEST_TIMEOUT="1")
    form = b"POST /updates HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"
    with publisher.server, ExitStack() as stack:
        connections: list[socket.socket] = []
        ended: list[socket.socket] = []
        uploads = [publisher.head(length) for length in (100_000, 10_000_000, "chunked")]
        for head in (form, *uploads):
            connection = stack.enter_context(publisher.connect())
            connection.sendall(head)
            connections.append(connection)
        anonymous, short, *long = connections
        # They end in the order of their deadlines. A byte now and then extends none of them.
        while len(ended) < 2:
            for connection in select.select(connections, [], [], 0.05)[0]:
                ended.append(connection)
                connections.remove(connection)
            for connection in connections:
                connection.sendall(b"x")
        assert ended == [anonymous, short]
        assert [status(read_all(each)) for each in ended] == [408, 408]
        assert not select.select(long, [], [], 0)[0]


FULL_DISK = """
import catalog.serving.uploads as uploads
uploads.tempfile.TemporaryFile = lambda dir: open("/dev/full", "w+b")
"""


NO_FILE = FULL_DISK.replace('open("/dev/full", "w+b")', 'open("/none/file", "w+b")')


@pytest.mark.parametrize("fault", [FULL_DISK, NO_FILE], ids=["full disk", "no file"])
def test_uploads_that_cannot_be_stored_do_not_count_as_uploads_afterwards(
    tmp_path: Path, limits: Limits, fault: str
) -> None:
    limits.run(fault)
    publisher = Publisher(tmp_path, limits)
    body = form(manifest(), random_text(MEGABYTE))
    with publisher.server:
        for _ in range(MAX_UPLOADS + 1):
            response = publisher.exchange(publisher.head(len(body)) + body)
            assert status(response) == 503
            assert b"The upload cannot be stored now." in response
            assert b"\r\nRetry-After: 5\r\n" in response


def test_a_bundle_passes_nginx_and_is_refused_there_without_a_valid_token(
    tmp_path: Path, limits: Limits
) -> None:
    folder = tmp_path / "nginx"
    folder.mkdir()
    publisher = Publisher(tmp_path, limits, CATALOG_TRUSTED_PROXY="127.0.0.1")
    body = form(manifest(), random_text(2 * MEGABYTE))
    with (
        publisher.server,
        reverse_proxies.nginx(folder, publisher.server.port, "widget-catalog") as proxy,
    ):
        statuses = [
            proxy.request("PUT", PATH, body, Content_Type=FORM_TYPE, **bearer(text)).status
            for text in (publisher.token, "wcat_wrong")
        ]
    assert statuses == [201, 401]


# Kills the process before or after the transaction that adds a version commits.
KILLED = """
import os, signal, sqlite3
is_begun = is_committed = False
def trace(statement):
    global is_begun, is_committed
    is_begun |= "INSERT INTO version" in statement
    is_committing = is_begun and statement.startswith("COMMIT")
    if {moment}:
        os.kill(os.getpid(), signal.SIGKILL)
    is_committed |= is_committing
def connect(*arguments, **keywords):
    connection = original(*arguments, **keywords)
    connection.set_trace_callback(trace)
    return connection
original, sqlite3.connect = sqlite3.connect, connect
"""


@pytest.mark.parametrize(
    ("moment", "is_published"),
    [("is_committing", False), ("is_committed", True)],
    ids=["before the commit", "after the commit"],
)
def test_a_server_that_is_killed_while_it_publishes_leaves_all_or_nothing(
    tmp_path: Path, limits: Limits, moment: str, is_published: bool
) -> None:
    limits.run(KILLED.format(moment=moment))
    publisher = Publisher(tmp_path, limits)
    bundle = random_text(MEGABYTE)
    body = form(manifest(), bundle)
    with publisher.server, closing(publisher.connect()) as connection:
        connection.sendall(publisher.head(len(body)) + body)
        with suppress(ConnectionResetError):
            status = connection.recv(len("HTTP/1.1 201")).decode()
            assert status == ("HTTP/1.1 201" if is_published else "")
        if is_published:
            # Its first statement is the next one after the commit.
            with suppress(OSError, HTTPException):
                publisher.server.request("GET", "/api/health")
        publisher.server.process.wait(timeout=60)
    check = run_on(publisher.path, "check")
    assert check.exit_code == 0, check.stdout
    shown = run_on(publisher.path, "show", "acme/clock@1.0.0", "--json")
    log = json.loads(run_on(publisher.path, "log", "acme/clock", "--json").stdout)
    assert (shown.exit_code == 0) is is_published
    assert [entry["action"] for entry in log] == (["publish"] if is_published else [])
    # A bundle that no version uses is removed by gc.
    assert run_on(publisher.path, "gc").exit_code == 0
    assert [
        name for name in publisher.stored() if not re.fullmatch("[0-9a-f]{64}([.]gz)?", name)
    ] == []


def test_no_stream_and_no_file_contains_a_token(tmp_path: Path, limits: Limits) -> None:
    # The record cannot be read, so that a traceback is logged.
    limits.run(
        "import catalog.api.internal.session\ncatalog.api.internal.session.read_entries = None\n"
    )
    publisher = Publisher(tmp_path, limits, CATALOG_LOG_LEVEL="info")
    admin = publisher.add_token("admin", scopes=(), permissions=("admin",))
    unknown = generate_token()[1]
    secrets = [publisher.token, admin, unknown]
    body = form(manifest())
    requests = [("PUT", PATH, text) for text in secrets]
    requests += [("GET", "/api/audit", admin), ("GET", "/api/audit", publisher.token)]
    requests += [("GET", "/api/session", admin), ("GET", "/api/none", admin)]
    with publisher.server:
        responses = [
            publisher.server.request(method, path, body, Content_Type=FORM_TYPE, **bearer(text))
            for method, path, text in requests
        ]
        publisher.server.process.terminate()
        output = "".join(publisher.server.process.communicate(timeout=60))
    statuses = [response.status for response, _ in responses]
    assert statuses == [201, 200, 401, 500, 500, 200, 404]
    output += "".join(f"{response.headers}{content!r}" for response, content in responses)
    assert "Traceback" in output
    assert "/api/audit" in output
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for text in secrets:
        assert text not in output
        assert not any(text.encode() in content for content in files)
