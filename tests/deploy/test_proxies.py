"""Reverse proxies: which X-Forwarded- headers count, and each file of deploy/ in a real proxy."""

import base64
import gzip
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import reverse_proxies
from conftest import ROOT, create_catalog, create_demo
from flask import Flask, Response, jsonify, request
from flask.testing import FlaskClient
from reverse_proxies import DEPLOY, PREFIX, Origin, Proxy, trusting

from app import create_app

FORWARDED_HEADERS = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "widgets.example:8443",
    "X-Forwarded-Prefix": "/catalog",
}


def create_echo_app() -> Flask:
    """Create the service with one more route, which returns how the application sees a request."""
    app = create_app()
    app.add_url_rule("/echo", view_func=echo)
    return app


ECHO = "test_proxies.create_echo_app"


def echo() -> Response:
    return jsonify([request.remote_addr, request.scheme, request.host, request.script_root])


@cache
def echo_client(proxy: str) -> FlaskClient:
    """Return a client of a service that trusts these proxies."""
    os.environ["CATALOG_TRUSTED_PROXY"] = proxy
    try:
        return create_echo_app().test_client()
    finally:
        del os.environ["CATALOG_TRUSTED_PROXY"]


def get_echo(proxy: str, client: str = "192.0.2.1", **headers: str) -> list[str]:
    response = echo_client(proxy).get(
        "/echo", headers=headers, environ_base={"REMOTE_ADDR": client}, base_url="http://own:8080"
    )
    assert response.status_code == 200
    seen: list[str] = response.get_json()
    return seen


DIRECT = ["192.0.2.1", "http", "own:8080", ""]
FORWARDED = ["203.0.113.7", "https", "widgets.example:8443", "/catalog"]


@pytest.mark.parametrize(
    ("proxies", "client", "expected"),
    [
        *((each, "192.0.2.1", DIRECT) for each in ("", "192.0.2.2", "198.51.100.0/24", "unix")),
        *((each, "192.0.2.1", FORWARDED) for each in ("192.0.2.1", "192.0.2.0/24")),
        *((f"{each},192.0.2.1", "192.0.2.1", FORWARDED) for each in ("198.51.100.1", " ::1")),
        ("2001:db8::/32", "2001:db8::1", FORWARDED),
        # Over a Unix socket a client has no address.
        *((each, "", FORWARDED) for each in ("unix", "192.0.2.1, unix")),
        *((each, "", ["", *DIRECT[1:]]) for each in ("192.0.2.1", "0.0.0.0/0")),
    ],
)
def test_headers_are_those_of_a_trusted_proxy_only(
    proxies: str, client: str, expected: list[str]
) -> None:
    assert get_echo(proxies, client, **FORWARDED_HEADERS) == expected


def test_only_the_last_value_of_a_header_counts() -> None:
    forged = {"X-Forwarded-For": "198.51.100.9, 203.0.113.7", "X-Forwarded-Proto": "ftp, https"}
    assert get_echo("192.0.2.1", **forged)[:2] == ["203.0.113.7", "https"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("X-Forwarded-For", value) for value in ("unknown", "a b", "1.2.3.4:80", "<script>", "")),
        *(("X-Forwarded-Proto", value) for value in ("ftp", "javascript", "HTTPS:", "")),
        *(("X-Forwarded-Host", value) for value in ("a/b", "a b", "a@b", "a:x", "")),
        *(("X-Forwarded-Prefix", value) for value in ("x", "/", "//evil.example", "/a//b", "/%2e")),
        *(("X-Forwarded-Prefix", value) for value in ("/a/", "/a?b", "/a\tb", "https://evil", "")),
    ],
)
def test_an_invalid_value_is_ignored(name: str, value: str) -> None:
    assert get_echo("192.0.2.1", **{name: value}) == DIRECT


def test_responses_of_the_api_are_the_same_behind_a_proxy(
    monkeypatch: pytest.MonkeyPatch, imported_demo: Path
) -> None:
    monkeypatch.setenv("CATALOG_TRUSTED_PROXY", "127.0.0.1")
    app = create_app({"DATABASE": imported_demo})
    for path in ("/api/v1/widgets/search", "/api/widgets/acme/registry.json", "/api/me"):
        plain = app.test_client().get(path)
        forwarded = app.test_client().get(path, headers=FORWARDED_HEADERS)
        assert (forwarded.status_code, forwarded.data) == (plain.status_code, plain.data)
    app.extensions["database"].close()


NGINX = ["widget-catalog", "widget-catalog-prefix"]
CACHING_NGINX = ["widget-catalog-cache", "widget-catalog-cache-prefix"]
CADDY = ["Caddyfile", "Caddyfile-prefix"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origin]:
    """The service with the demo catalog and /echo, behind all proxies of this module."""
    database = create_demo(tmp_path_factory.mktemp("origin") / "catalog.db")
    with reverse_proxies.serve(database, ECHO) as running:
        yield running


@pytest.fixture(scope="module", params=[*NGINX, *CACHING_NGINX, *CADDY])
def proxy(
    request: pytest.FixtureRequest, origin: Origin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """A proxy with one of the files."""
    start = reverse_proxies.caddy if request.param in CADDY else reverse_proxies.nginx
    with start(tmp_path_factory.mktemp("proxy"), origin.port, request.param) as running:
        yield running


only_nginx = pytest.mark.parametrize("proxy", [*NGINX, *CACHING_NGINX], indirect=True)
only_prefix = pytest.mark.parametrize(
    "proxy", [name for name in [*NGINX, *CACHING_NGINX, *CADDY] if "prefix" in name], indirect=True
)


def test_the_application_sees_what_the_client_sees(proxy: Proxy) -> None:
    forged = {**FORWARDED_HEADERS, "X-Forwarded-Prefix": "/forged", "X-Forwarded-Host": "forged"}
    response = proxy.get("/echo", **forged)
    expected = ["127.0.0.1", "https", "widgets.example", proxy.prefix]
    assert (response.status, json.loads(response.body)) == (200, expected)


@pytest.mark.parametrize("proxy", CADDY, indirect=True)
def test_the_port_of_the_host_is_forwarded(proxy: Proxy) -> None:
    response = proxy.get("/echo", Host="widgets.example:8443")
    assert json.loads(response.body)[2] == "widgets.example:8443"


@only_nginx
def test_the_host_behind_nginx_is_never_the_one_that_a_client_sent(proxy: Proxy) -> None:
    response = proxy.get("/echo", Host="evil.example")
    assert json.loads(response.body)[2] == "widgets.example"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/widgets/search?q=clock&limit=1", 200),
        ("/api/v1/widgets/caf%C3%A9/c%20d", 404),
        ("/api/v1/widgets/updates?compatSdk=1.4.0&installed=a/b@1.0.0&installed=a/c@1.0.0", 200),
        ("/api/v1/widgets", 404),
        ("/widgets/acme/weather?compatSdk=1.4.0", 200),
    ],
)
def test_the_service_gets_the_target_as_sent(
    proxy: Proxy, origin: Origin, path: str, status: int
) -> None:
    origin.requests()
    assert proxy.get(path).status == status
    assert origin.requests() == [f"GET {path} {status}"]


def test_an_install_is_counted_once(proxy: Proxy, origin: Origin) -> None:
    origin.requests()
    path = "/api/v1/widgets/acme/weather"
    response = proxy.request("POST", path)
    assert (response.status, response.body) == (200, b'{"success":true}\n')
    assert origin.requests() == [f"POST {path} 200"]


def test_a_client_that_accepts_gzip_gets_it(proxy: Proxy) -> None:
    path = "/api/widgets/acme/registry.json"
    plain, packed = proxy.get(path), proxy.get(path, Accept_Encoding="br, gzip")
    assert (plain.headers["Content-Encoding"], packed.headers["Content-Encoding"]) == (None, "gzip")
    assert gzip.decompress(packed.body) == plain.body
    assert "Accept-Encoding" in packed.headers["Vary"]


def test_a_compressed_response_is_revalidated_by_its_etag(proxy: Proxy) -> None:
    path = "/api/v1/widgets/acme/weather"
    packed = proxy.get(path, Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    again = proxy.get(path, Accept_Encoding="gzip", If_None_Match=packed.headers["ETag"])
    assert (again.status, again.body) == (304, b"")


def test_a_body_over_4_kb_is_refused(proxy: Proxy) -> None:
    path = "/api/v1/widgets/acme/weather"
    address = {"X-Test-Address": "198.51.100.4"}
    response = proxy.request("POST", path, b"x" * 5000, **address)
    assert (response.status, response.headers["Content-Type"]) == (413, "application/json")
    assert list(json.loads(response.body)) == ["error"]
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Access-Control-Expose-Headers"] == "ETag, Retry-After"


@only_nginx
def test_a_body_that_is_too_large_for_a_page_is_refused_for_this_origin_only(proxy: Proxy) -> None:
    response = proxy.request("POST", "/", b"x" * 5000)
    assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (413, None)


@only_nginx
def test_nginx_speaks_http_2_and_demands_https_of_browsers(proxy: Proxy) -> None:
    assert proxy.get("/api/health").headers["Strict-Transport-Security"] == "max-age=31536000"
    context = ssl.create_default_context(cafile=proxy.certificate)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection,
        context.wrap_socket(connection, server_hostname=reverse_proxies.HOST) as encrypted,
    ):
        assert encrypted.selected_alpn_protocol() == "h2"


def test_certbot_can_answer_its_challenge_over_http(origin: Origin, tmp_path: Path) -> None:
    challenge = tmp_path / ".well-known" / "acme-challenge"
    challenge.mkdir(parents=True)
    (challenge / "token").write_text("answer")
    with reverse_proxies.nginx(tmp_path, origin.port, "widget-catalog") as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.plain_port, timeout=60)
        connection.request("GET", "/.well-known/acme-challenge/token")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"answer")
        connection.close()


PRIVATE = ("widget-catalog-private.conf", "private-access.conf")
OUTSIDE = {"X-Test-Address": "198.51.100.7"}
FORGED_TOKEN = {"Authorization": "Bearer none"}


@pytest.fixture(scope="module", params=["widget-catalog", "widget-catalog-prefix"])
def private_proxy(
    request: pytest.FixtureRequest, origin: Origin, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """nginx with private reading and the user anna."""
    directory = tmp_path_factory.mktemp("private")
    hashed = subprocess.run(
        ["openssl", "passwd", "-apr1", "secret"], check=True, capture_output=True, text=True
    ).stdout
    (directory / "widget-catalog.htpasswd").write_text(f"anna:{hashed}")
    with reverse_proxies.nginx(directory, origin.port, request.param, snippets=PRIVATE) as running:
        yield running


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Test-Address": "192.0.2.7"}, 200),
        (OUTSIDE, 401),
        ({**OUTSIDE, "Authorization": "Basic " + base64.b64encode(b"anna:secret").decode()}, 200),
        ({**OUTSIDE, "Authorization": "Basic " + base64.b64encode(b"anna:wrong").decode()}, 401),
    ],
    ids=["address", "neither", "password", "wrong password"],
)
def test_private_reading_needs_an_address_or_a_password(
    private_proxy: Proxy, headers: dict[str, str], status: int
) -> None:
    assert private_proxy.get("/api/v1/widgets/search", **headers).status == status


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/api/v1/widgets/search", "/api/v1/widgets/acme/weather", "/api/stats"),
        "/api/widgets/acme/registry.json",
        # Other spellings that the service would accept.
        "/api/widgets/acme/registry%2Ejson",
        "/api/widgets/%61cme/registry.json?/api/session",
        "/api/v1/widgets/search?/api/widgets/acme/clock/1.0.0",
        "/api/v1/widgets/acme/weather/../../../../widgets/acme/weather/1.0.0",
        "/api/widgets/../v1/widgets/search",
        "/api/session/../v1/widgets/search",
        "/api/audit/%2e%2e/stats",
    ],
)
def test_a_token_does_not_open_private_reading(
    private_proxy: Proxy, origin: Origin, path: str
) -> None:
    origin.requests()
    assert private_proxy.get(path, **OUTSIDE, **FORGED_TOKEN).status == 401
    assert origin.requests() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/api/widgets/acme/clock/9.0.0", 401),
        ("POST", "/api/widgets/acme/clock/1.0.0/yank?dryRun=true", 401),
        ("PATCH", "/api/widgets/acme/clock", 401),
        ("GET", "/api/session", 401),
        # The id token is missing.
        ("POST", "/api/session", 403),
        ("GET", "/api/audit?limit=1", 401),
        ("GET", "/api/widgets/cli-version", 200),
    ],
)
def test_a_request_with_a_token_reaches_the_service_behind_private_reading(
    private_proxy: Proxy, origin: Origin, method: str, path: str, status: int
) -> None:
    origin.requests()
    response = private_proxy.request(method, path, **OUTSIDE, **FORGED_TOKEN)
    assert origin.requests() == [f"{method} {path} {status}"]
    # The service refuses the token, and not nginx.
    assert response.status == status
    assert json.loads(response.body)


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH"])
def test_a_change_without_a_token_does_not_pass_private_reading(
    private_proxy: Proxy, origin: Origin, method: str
) -> None:
    origin.requests()
    assert private_proxy.request(method, "/api/widgets/acme/clock/9.0.0", **OUTSIDE).status == 401
    assert private_proxy.request(method, "/api/v1/widgets/acme/clock", **OUTSIDE).status == 401
    assert origin.requests() == []


@only_prefix
def test_the_prefix_without_its_slash_is_redirected(proxy: Proxy) -> None:
    response = proxy._replace(prefix="").get(PREFIX)
    assert (response.status, response.headers["Location"]) == (301, f"{PREFIX}/")


@only_prefix
def test_other_paths_of_the_host_do_not_reach_the_service(proxy: Proxy, origin: Origin) -> None:
    origin.requests()
    proxy._replace(prefix="").get("/api/v1/widgets/search")
    assert origin.requests() == []


@only_nginx
def test_plain_http_is_redirected_to_https(proxy: Proxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.plain_port, timeout=60)
    connection.request("GET", "/a?b", headers={"Host": "evil.example"})
    response = connection.getresponse()
    connection.close()
    location = response.headers["Location"]
    assert (response.status, location) == (301, "https://widgets.example/a?b")


def install_from(proxy: Proxy, address: str) -> int:
    """Count an install from this client address; return the status."""
    path = "/api/v1/widgets/acme/weather"
    return proxy.request("POST", path, **{"X-Test-Address": address}).status


@only_nginx
def test_a_client_with_too_many_installs_gets_429(proxy: Proxy, origin: Origin) -> None:
    statuses = [install_from(proxy, "198.51.100.1") for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    origin.requests()
    response = proxy.request(
        "POST", "/api/v1/widgets/acme/weather", **{"X-Test-Address": "198.51.100.1"}
    )
    assert origin.requests() == []
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Retry-After"] == "1"
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Access-Control-Expose-Headers"] == "ETag, Retry-After"
    assert list(json.loads(response.body)) == ["error"]


@only_nginx
def test_the_limit_of_installs_does_not_limit_reads_and_other_clients(proxy: Proxy) -> None:
    assert [install_from(proxy, "198.51.100.2") for _ in range(4)][-1] == 429
    address = {"X-Test-Address": "198.51.100.2"}
    assert {proxy.get("/api/v1/widgets/search", **address).status for _ in range(5)} == {200}
    assert install_from(proxy, "198.51.100.3") == 200


@only_nginx
def test_the_limit_of_installs_does_not_limit_changes_with_a_token(proxy: Proxy) -> None:
    path = "/api/widgets/acme/weather/1.0.0/yank"
    # There is no token, so that the service refuses each of them.
    assert [proxy.request("POST", path).status for _ in range(4)] == [401] * 4


@only_nginx
def test_the_addresses_of_an_ipv6_network_count_as_one_client(proxy: Proxy) -> None:
    addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::a:b:c:d", "2001:db8::3", "2001:db8:0:1::"]
    assert [install_from(proxy, each) for each in addresses] == [200, 200, 200, 429, 200]


def test_nginx_closes_connections_that_send_nothing(origin: Origin, tmp_path: Path) -> None:
    limits = {"client_header_timeout 10s": "client_header_timeout 2s"}
    with (
        reverse_proxies.nginx(tmp_path, origin.port, limits=limits) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as silent,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection,
        trusting(proxy.certificate).wrap_socket(
            connection, server_hostname=reverse_proxies.HOST
        ) as encrypted,
    ):
        encrypted.sendall(b"GET / HTTP/1.1\r\n")
        assert (silent.recv(1), encrypted.recv(1)) == (b"", b"")


@only_nginx
def test_a_large_id_token_reaches_the_service(proxy: Proxy, origin: Origin) -> None:
    origin.requests()
    body = json.dumps({"idToken": "x" * 16_000}).encode()
    assert proxy.request("POST", "/api/session", body).status == 403
    assert origin.requests() == ["POST /api/session 403"]


def test_one_client_has_a_limited_number_of_requests_at_a_time(
    origin: Origin, tmp_path: Path
) -> None:
    head = (
        f"POST {reverse_proxies.PREFIX}/updates HTTP/1.1\r\n"
        f"Host: {reverse_proxies.HOST}\r\nX-Test-Address: 198.51.100.30\r\n"
        "Content-Length: 9\r\n\r\n"
    )
    limits = {"widget_catalog_connections 200": "widget_catalog_connections 3"}
    with ExitStack() as stack:
        proxy = stack.enter_context(reverse_proxies.nginx(tmp_path, origin.port, limits=limits))
        for _ in range(3):
            plain = stack.enter_context(
                socket.create_connection(("127.0.0.1", proxy.port), timeout=30)
            )
            context = trusting(proxy.certificate)
            waiting = stack.enter_context(
                context.wrap_socket(plain, server_hostname=reverse_proxies.HOST)
            )
            # The body does not follow.
            waiting.sendall(head.encode())
        statuses = [
            proxy.get("/api/version", **{"X-Test-Address": address}).status
            for address in ("198.51.100.30", "198.51.100.31")
        ]
    assert statuses == [429, 200]


def test_the_headers_of_an_untrusted_proxy_are_ignored(tmp_path: Path) -> None:
    database = create_catalog(tmp_path / "catalog.db")
    with (
        reverse_proxies.serve(database, ECHO, CATALOG_TRUSTED_PROXY="") as origin,
        reverse_proxies.nginx(tmp_path, origin.port) as proxy,
    ):
        body = json.loads(proxy.get("/echo").body)
    assert (body[:2], body[3]) == (["127.0.0.1", "http"], "")


def test_the_proxies_page_links_every_file() -> None:
    page = (ROOT / "docs/operate/proxies.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(\.\./\.\./(deploy/(?:nginx|caddy)/[^)]+)\)", page)
    files = [*(DEPLOY / "nginx").iterdir(), *(DEPLOY / "caddy").iterdir()]
    assert sorted(linked) == sorted(str(path.relative_to(ROOT)) for path in files)
