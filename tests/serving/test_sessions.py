"""POST /api/session at a real server: its own thread, its limit, and keys that change."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import document
from conftest import Limits, Server, create_catalog, run_on
from issuers import AUDIENCE, DISCOVERY, Issuer, make_key
from publishers import FORM_TYPE, bearer, form, manifest

ADD = "trust add ci --claim repository=acme/clock --scope acme --issuer"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


@pytest.fixture
def database(tmp_path: Path, issuer: Issuer) -> Path:
    path = create_catalog(tmp_path / "a.db", document("acme/clock"))
    result = run_on(path, *ADD.split(), issuer.url)
    assert result.exit_code == 0, result.stderr
    return path


def exchange(server: Server, id_token: str) -> tuple[int, dict[str, str]]:
    body = json.dumps({"idToken": id_token}).encode()
    response, content = server.request("POST", "/api/session", body)
    return response.status, json.loads(content)


def test_a_large_id_token_is_accepted_and_a_larger_one_is_413(
    database: Path, issuer: Issuer
) -> None:
    with Server(database, CATALOG_PUBLIC_URL=AUDIENCE) as server:
        status, session = exchange(server, issuer.sign(padding="x" * 10_000))
        assert status == 200
        response, content = server.request("GET", "/api/session", **bearer(session["token"]))
        assert (response.status, json.loads(content)["trust"]) == (200, "ci")
        status, refusal = exchange(server, issuer.sign(padding="x" * 100_000))
        message = "Request body too large: it must not exceed 16384 bytes."
        assert (status, refusal) == (413, {"error": message})


def test_a_key_that_the_issuer_adds_is_fetched(
    database: Path, issuer: Issuer, limits: Limits
) -> None:
    settings = limits.set("system.issuer_keys", MIN_INTERVAL=0)
    with Server(database, CATALOG_PUBLIC_URL=AUDIENCE, **settings) as server:
        assert exchange(server, issuer.sign())[0] == 200
        issuer.keys = {"two": make_key("EC")}
        assert exchange(server, issuer.sign())[0] == 200
        assert issuer.requests == [DISCOVERY, "/keys"] * 2


def test_an_issuer_that_does_not_respond_delays_nothing_else(
    database: Path, issuer: Issuer, limits: Limits
) -> None:
    # A slow machine must not reach the limits of the request.
    limits.set("system.issuer_requests", FETCH_SECONDS=300)
    settings = limits.set("serving.dispatch", CHANGE_DEADLINE=300)
    release, asked = threading.Event(), threading.Event()
    respond = issuer.respond

    def wait(path: str) -> tuple[int, dict[str, str], bytes]:
        asked.set()
        release.wait(60)
        return respond(path)

    issuer.respond = wait  # type: ignore[method-assign]
    results: list[int] = []
    with Server(database, CATALOG_PUBLIC_URL=AUDIENCE, **settings) as server:
        waiting = threading.Thread(
            target=lambda: results.append(exchange(server, issuer.sign())[0])
        )
        waiting.start()
        try:
            assert asked.wait(60)
            widget = "/api/v1/widgets/acme/clock"
            for method, path, status in (
                ("GET", widget, 200),
                ("POST", widget, 200),
                ("GET", "/widgets/acme/clock", 200),
                ("PUT", "/api/widgets/acme/clock/1.0.0", 401),
            ):
                assert server.request(method, path)[0].status == status
            assert results == []
        finally:
            release.set()
            waiting.join()
        assert results == [200]


def test_a_short_token_may_send_a_large_bundle(database: Path, issuer: Issuer) -> None:
    with Server(database, CATALOG_PUBLIC_URL=AUDIENCE) as server:
        _, session = exchange(server, issuer.sign())
        body = form(manifest(number="7.0.0"), b"/" * 100_000)
        headers = {**bearer(session["token"]), "Content-Type": FORM_TYPE}
        path = "/api/widgets/acme/clock/7.0.0"
        assert server.request("PUT", path, body, **headers)[0].status == 201
        assert run_on(database, "trust", "remove", "ci").exit_code == 0
        assert server.request("PUT", path, body, **headers)[0].status == 401
