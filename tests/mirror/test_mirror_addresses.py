"""The addresses of hosts: mirror requests nothing from the local network for an upstream."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from builders import document
from flask import Flask
from mirrors import bundle_summary, mirror_summary, run_mirror
from upstreams import FakeUpstream, redirect

# Connections to this address go to the upstream of the test, and those to others nowhere.
PUBLIC = "198.41.0.4"
BUNDLE = "/bundles/1.0.0.js"


@pytest.fixture
def internal() -> Iterator[FakeUpstream]:
    """A service that only the local network can reach."""
    with closing(FakeUpstream()) as running:
        running.bundles["/secret"] = b"tick"
        yield running


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of names; up.example is on the internet."""
    addresses = {"up.example": [PUBLIC]}
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host: str, *arguments: Any, **keywords: Any) -> list[Any]:
        found = addresses.get(host, [host])
        return [each for name in found for each in resolve(name, *arguments, **keywords)]

    def connect_here(sock: socket.socket, address: tuple[str, int]) -> None:
        host, port = address[:2]
        if host not in (PUBLIC, "127.0.0.1"):
            raise ConnectionRefusedError
        connect(sock, ("127.0.0.1", port))

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", connect_here)
    return addresses


def public_url(upstream: FakeUpstream) -> str:
    return f"http://up.example:{upstream.port}"


def put_bundle(upstream: FakeUpstream, url: str) -> None:
    """Add a widget whose bundle, with the content of /secret, is at this URL."""
    bundle = upstream.with_bundle("1.0.0", b"tick")
    upstream.put(document("acme/clock", {**bundle, "bundleUrl": url}))


def assert_refused(app: Flask, upstream: FakeUpstream, internal: FakeUpstream, at: str) -> None:
    result = run_mirror(app, public_url(upstream), "--bundles")
    message = (
        f"is at {at}, an address on the local network: only an upstream on that network may refer "
        "to it."
    )
    assert result.exit_code == 1
    assert message in result.stderr
    assert (internal.requests, internal.connections) == ([], 0)


def test_bundle_of_an_upstream_on_the_internet_is_downloaded(
    mirror_app: Flask, upstream: FakeUpstream, names: dict[str, list[str]]
) -> None:
    url = public_url(upstream)
    put_bundle(upstream, url + BUNDLE)
    assert bundle_summary(mirror_app, url) == "1 fetched, 0 already stored, 0 failed."


@pytest.mark.parametrize(
    "addresses",
    [
        *(["127.0.0.1"], ["127.0.0.1", "::ffff:127.0.0.1"], ["::1"]),
        *(["10.0.0.1"], ["192.168.1.1"], ["fd00::1"], ["169.254.169.254"], ["224.0.0.1"]),
        # They contain 127.0.0.1.
        *(["64:ff9b::7f00:1"], ["2002:7f00:1::"], ["::127.0.0.1"], ["64:ff9b:1::7f00:1"]),
        *(["fec0::1"], ["192.0.0.1"]),
    ],
    ids=str,
)
def test_bundle_url_on_the_local_network_is_not_requested(
    mirror_app: Flask,
    upstream: FakeUpstream,
    internal: FakeUpstream,
    names: dict[str, list[str]],
    addresses: list[str],
) -> None:
    names["inside.example"] = addresses
    put_bundle(upstream, f"http://inside.example:{internal.port}/secret")
    assert_refused(mirror_app, upstream, internal, addresses[0])


def test_redirect_to_the_local_network_is_not_followed(
    mirror_app: Flask,
    upstream: FakeUpstream,
    internal: FakeUpstream,
    names: dict[str, list[str]],
) -> None:
    put_bundle(upstream, public_url(upstream) + BUNDLE)
    upstream.fail(BUNDLE, redirect("/moved"))
    upstream.fail("/moved", redirect(f"{internal.url}/secret"))
    assert_refused(mirror_app, upstream, internal, "127.0.0.1")


def test_name_that_gets_another_address_is_checked_again(
    mirror_app: Flask,
    upstream: FakeUpstream,
    internal: FakeUpstream,
    names: dict[str, list[str]],
) -> None:
    names["cdn.example"] = [PUBLIC]
    put_bundle(upstream, f"http://cdn.example:{internal.port}/secret")

    def rebind(path: str) -> None:
        names["cdn.example"] = ["127.0.0.1"]

    upstream.on_request = rebind
    assert_refused(mirror_app, upstream, internal, "127.0.0.1")


def test_upstream_that_gets_a_local_address_later_does_not_count_as_local(
    mirror_app: Flask,
    upstream: FakeUpstream,
    internal: FakeUpstream,
    names: dict[str, list[str]],
) -> None:
    put_bundle(upstream, f"{internal.url}/secret")

    def rebind(path: str) -> None:
        names["up.example"] = ["127.0.0.1"]

    upstream.on_request = rebind
    assert_refused(mirror_app, upstream, internal, "127.0.0.1")


def test_upstream_that_is_also_on_the_internet_does_not_count_as_local(
    mirror_app: Flask,
    upstream: FakeUpstream,
    internal: FakeUpstream,
    names: dict[str, list[str]],
) -> None:
    names["up.example"] = [PUBLIC, "10.0.0.1"]
    put_bundle(upstream, f"{internal.url}/secret")
    assert_refused(mirror_app, upstream, internal, "127.0.0.1")


def test_upstream_on_the_local_network_may_refer_to_it(
    mirror_app: Flask, upstream: FakeUpstream, internal: FakeUpstream
) -> None:
    put_bundle(upstream, f"{internal.url}/secret")
    assert bundle_summary(mirror_app, upstream.url) == "1 fetched, 0 already stored, 0 failed."


def test_next_address_is_tried_if_one_refuses(
    mirror_app: Flask, upstream: FakeUpstream, names: dict[str, list[str]]
) -> None:
    names["up.example"] = ["198.41.0.5", PUBLIC]
    upstream.put(document())
    assert mirror_summary(mirror_app, public_url(upstream)).startswith("1 added, ")


def test_all_addresses_of_a_host_share_one_deadline(
    mirror_app: Flask, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.MAX_REQUEST_SECONDS", 0.1)
    names["many.example"] = ["127.0.0.1"] * 10_000
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = full.getsockname()
        # The kernel drops connections while the queue of a listening socket is full.
        for _ in range(3):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(address)
        result = run_mirror(mirror_app, f"http://many.example:{address[1]}")
    assert result.stderr.endswith(": it did not respond within 0.1 s.\n")
