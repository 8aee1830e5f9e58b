"""Clients that request much and read nothing, and the response times of the others."""

import http.client
import resource
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from builders import bundled, document, version
from conftest import Server, hold, putting

from app import create_app
from catalog.domain.documents import check_document

CLIENTS = [f"127.0.1.{number}" for number in range(1, 5)]
OTHER = "127.0.2.1"
CONNECTIONS = 900
REQUESTS = 100
BUNDLE = bytes(10_000_000)
REGISTRIES, MEGABYTES = 20, 20


def serve(path: Path, *documents: dict[str, object]) -> Server:
    app = create_app({"DATABASE": path})
    app.extensions["database"].create(putting(map(check_document, documents)))
    hold(app, BUNDLE)
    app.extensions["database"].close()
    return Server(path)


def send(stack: ExitStack, server: Server, path: str, client: str) -> socket.socket:
    connection = stack.enter_context(
        socket.create_connection(("127.0.0.1", server.port), 20, (client, 0))
    )
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def health(server: Server, client: str) -> float:
    """Milliseconds of a health check on a new connection."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port, timeout=20, source_address=(client, 0)
    )
    connection.request("GET", "/api/health")
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 200
    return (time.perf_counter() - started) * 1000


def test_900_connections_that_leave_a_bundle_unread(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2000)), hard))
    clock = document("acme/clock", bundled("1.0.0", BUNDLE))
    with serve(tmp_path / "catalog.db", clock) as server, ExitStack() as stack:
        for number in range(CONNECTIONS):
            path = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"
            send(stack, server, path, CLIENTS[number % len(CLIENTS)])
        before = server.cpu_seconds()
        same = [health(server, CLIENTS[0]) for _ in range(REQUESTS)]
        other = [health(server, OTHER) for _ in range(REQUESTS)]
        cpu_ms = (server.cpu_seconds() - before) * 1000 / (2 * REQUESTS)
        memory = server.megabytes("VmHWM")
    figures(
        "900 connections of 4 clients that request a bundle of 10 MB and read nothing",
        "a new connection is served without a wait; one without progress is closed for it",
        connections=CONNECTIONS,
        requests=2 * REQUESTS,
        failed=0,
        median_ms_same_client=round(statistics.median(same), 1),
        median_ms_other_client=round(statistics.median(other), 1),
        worst_ms=round(max(same + other), 1),
        CPU_ms_a_request=round(cpu_ms, 1),
        memory_MB=memory,
    )
    assert statistics.median(same + other) < 100
    assert cpu_ms < 20
    assert memory < 300


def test_large_registries_that_are_left_unread(
    tmp_path: Path, figures: Callable[..., None]
) -> None:
    scopes = [f"scope-{number}" for number in range(REGISTRIES)]
    versions = [version(f"1.{number}.0", releaseNotes="x" * 65_536) for number in range(16)]
    documents = [
        document(f"{scope}/w{megabyte}", *versions)
        for scope in scopes
        for megabyte in range(MEGABYTES)
    ]
    with serve(tmp_path / "catalog.db", *documents) as server, ExitStack() as stack:
        for scope in scopes:
            registry = f"/api/widgets/{scope}/registry.json"
            assert send(stack, server, registry, OTHER).recv(1) == b"H"
        milliseconds = [health(server, OTHER) for _ in range(REQUESTS)]
        memory = server.megabytes()
    figures(
        "20 different registries of 20 MB that are left unread",
        "connections are closed when unsent responses would take too much memory",
        registries=REGISTRIES,
        requests=REQUESTS,
        failed=0,
        median_ms=round(statistics.median(milliseconds), 1),
        memory_MB=memory,
    )
    assert memory < 300
