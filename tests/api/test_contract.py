"""What holds for every route and method, over real HTTP; a new route without a row fails.

The rows have the status, CORS, caching, conditional requests, HEAD, OPTIONS, other methods and the
shape of errors. What a response contains is tested elsewhere.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from builders import bundled, described, document, png, version
from conftest import Server, create_catalog, hold
from publishers import bearer, create_token

from app import create_app

V1 = "/api/v1/widgets/"
CLOCK, REGISTRY = V1 + "acme/clock", "/api/widgets/acme/registry.json"
BUNDLE = b"export default 1\n" * 100
PICTURE = png(64, 36, bytes(100))
SHA256 = described(PICTURE)["sha256Hash"]
JSON, HTML = "application/json", "text/html; charset=utf-8"
UPDATES = "updates?compatSdk=1.0.0&installed=acme/clock@1.0.0"
IMPORT_MAP = "importmap?compatSdk=1.0.0&widget=acme/clock"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO"]
CHALLENGE = ['Session realm="internal"']
ORIGIN = "https://dashboard.example"
EXPOSED = "ETag, Retry-After"
PREFLIGHT = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "content-type",
}


class Route(NamedTuple):
    """A path of a route, and what a response to its GET has."""

    path: str
    type: str = JSON
    cache_control: str | None = "no-cache"
    has_etag: bool = True
    # Of all routes with this path.
    allow: str = "GET, HEAD, OPTIONS"


OPERATION: dict[str, Any] = {"cache_control": None, "has_etag": False}
ROUTES = {
    "v1.search": Route(V1 + "search"),
    "v1.changes": Route(V1 + "changes"),
    "v1.updates": Route(V1 + UPDATES),
    "v1.import_map": Route(V1 + IMPORT_MAP, "application/importmap+json"),
    "v1.detail": Route(CLOCK, allow="GET, HEAD, POST, OPTIONS"),
    "v1.install": Route(CLOCK, allow="GET, HEAD, POST, OPTIONS"),
    "v1.installs": Route(CLOCK + "/installs"),
    "v1.about": Route(CLOCK + "/about"),
    "v1.picture": Route(
        f"{CLOCK}/picture?sha256={SHA256}", "image/png", "public, max-age=31536000, immutable"
    ),
    "v1.one_version": Route(CLOCK + "/1.0.0", allow="GET, HEAD, POST, OPTIONS"),
    "v1.install_version": Route(CLOCK + "/1.0.0", allow="GET, HEAD, POST, OPTIONS"),
    "v1.bundle": Route(
        CLOCK + "/1.0.0/bundle.js",
        "text/javascript; charset=utf-8",
        "public, max-age=31536000, immutable",
    ),
    "registry.scope_registry": Route(REGISTRY, cache_control=None),
    "operations.health": Route("/api/health", cache_control="no-store", has_etag=False),
    "operations.service_version": Route("/api/version", **OPERATION),
    "operations.cli_version": Route("/api/widgets/cli-version", **OPERATION),
    "operations.stats": Route("/api/stats", **OPERATION),
    "operations.settings": Route("/api/settings", **OPERATION),
    "pages.browse": Route("/", HTML),
    "pages.widget": Route("/widgets/acme/clock", HTML),
    "pages.version": Route("/widgets/acme/clock/1.0.0", HTML),
    "pages.compare": Route("/widgets/acme/clock/compare?from=1.0.0&to=1.1.0", HTML),
    "pages.scope": Route("/widgets/acme", HTML),
    "pages.updates": Route("/" + UPDATES, HTML, allow="GET, HEAD, POST, OPTIONS"),
    "pages.publish": Route("/publish", HTML),
    "pages.docs": Route("/docs", HTML),
    "pages.openapi_json": Route("/openapi.json"),
    "pages.feed": Route("/feed.atom", "application/atom+xml; charset=utf-8"),
    "static_files.static_file": Route("/static/catalog.css", "text/css; charset=utf-8"),
}
# For people who shorten an address, and the file of CATALOG_WHEEL: tests/web has their responses.
IN_TESTS_OF_PAGES = {"pages.all_widgets", "pages.compare_widgets", "pages.wheel"}
# The path of each route that needs a token, and the methods that it allows.
INTERNAL_ROUTES = {
    "internal.show_session": ("/api/session", "GET, HEAD, POST, OPTIONS"),
    "internal.create_session": ("/api/session", "GET, HEAD, POST, OPTIONS"),
    "internal.show_audit": ("/api/audit", "GET, HEAD, OPTIONS"),
    "internal.publish": ("/api/widgets/acme/clock/1.0.0", "PUT, OPTIONS"),
    "internal.yank": ("/api/widgets/acme/clock/1.0.0/yank", "POST, OPTIONS"),
    "internal.deprecate": ("/api/widgets/acme/clock/1.0.0/deprecate", "POST, OPTIONS"),
    "internal.edit": ("/api/widgets/acme/clock", "PATCH, OPTIONS"),
    "internal.put_picture": ("/api/widgets/acme/clock/picture", "PUT, OPTIONS"),
}
# Paths that are no routes. All of them are internal, whether or not they exist.
INTERNAL_PATHS = [
    *("/api/", "/api/me", "/api/widgets", "/api/widgets/", "/api/widgets/acme", "/api/v1"),
    *("/api/widgets/acme/registry", "/api/widgets/acme/registry.json/clock"),
    *("/api/widgets/acme/clock/registry.json", "/api/widgets//registry.json"),
    *("/api/widgets/cli-version/1", "/api/health/deep", "/api/healthz", "/api/Health"),
    *("/api/v10/widgets/search", "/api/v2/widgets/search", "/api//v1/widgets/search"),
    *("/api//health", "/api/widgets/acme//registry.json", "/api/a%0Ab", "/api/health%0A"),
    *("/api/%00", "/api/%FF"),
]
# These do not exist in any method.
MISSING_PATHS = [
    *(V1, V1 + "acme", V1 + "search/", V1 + "/search", V1 + "acme//clock", V1 + "/acme/clock"),
    *(V1 + "//", V1 + "a%0Ab", V1 + "a" * 10_000),
    *("/api/v1/", "/api/v1//", "/api/v1/widgets", "/api/v1/widget/acme/clock", "/api/v1/health"),
    *("/api/v1/widgets-old/search", "/api/v1/a%0Ab", "/api/v1//widgets/search"),
    *("/api/v1/WIDGETS/search", "/API/health", "/api", "/apis", "/apix/me", "/nowhere"),
]
LARGE = b"x" * 4097
# Errors of routes: status, method, path, body.
ERRORS = [
    (400, "GET", V1 + "search?page=0", b""),
    (400, "GET", V1 + "search?compatSdk=", b""),
    (400, "GET", V1 + "search?official=perhaps", b""),
    (400, "GET", V1 + "updates", b""),
    (400, "GET", V1 + "importmap", b""),
    (400, "GET", V1 + "changes?since=x", b""),
    (400, "GET", CLOCK + "/latest?compatSdk=1", b""),
    (400, "GET", CLOCK + "/installs?days=x", b""),
    (404, "GET", V1 + "acme/none", b""),
    (404, "GET", V1 + "acme/hidden", b""),
    (404, "GET", V1 + "acme/hidden/installs", b""),
    (404, "GET", V1 + "acme/hidden/about", b""),
    (404, "GET", V1 + "acme/hidden/picture", b""),
    (404, "GET", CLOCK + "/picture?sha256=0", b""),
    (404, "POST", V1 + "acme/none", b""),
    (404, "POST", CLOCK + "/9.9.9", b""),
    (404, "GET", V1 + "acme/%00", b""),
    (404, "GET", V1 + "%FF/%zz", b""),
    (404, "GET", V1 + "./search", b""),
    (404, "GET", V1 + "../../health", b""),
    (404, "GET", CLOCK + "%0A", b""),
    (404, "GET", CLOCK + "/9.9.9", b""),
    (404, "GET", CLOCK + "/1.1.0/bundle.js", b""),
    (404, "GET", "/api/widgets/none/registry.json", b""),
    (410, "GET", V1 + "changes?since=0123456789abcdef-1", b""),
    (413, "POST", CLOCK, LARGE),
    (413, "GET", V1 + "none/such/path", LARGE),
    (401, "POST", "/api/widgets", LARGE),
]

each_route = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
each_internal_route = pytest.mark.parametrize(
    ("path", "allow"), INTERNAL_ROUTES.values(), ids=INTERNAL_ROUTES
)


class Reply(NamedTuple):
    """A response, its headers by their names in lower case."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    def get(self, name: str) -> str | None:
        """Return the value of a header that is there at most once."""
        values = self.headers.get(name.lower(), [None])
        assert len(values) == 1, (name, values)
        return values[0]

    def cors(self) -> dict[str, list[str]]:
        return {key: each for key, each in self.headers.items() if key.startswith("access-control")}

    def without_date(self) -> dict[str, list[str]]:
        return {key: each for key, each in self.headers.items() if key not in ("date", "expires")}


class Client:
    """A client of the service, which checks what holds for every response."""

    def __init__(self, server: Server, admin: dict[str, str]) -> None:
        self.server, self.admin = server, admin

    def send(self, method: str, path: str, body: bytes = b"", /, **headers: str) -> Reply:
        response, content = self.server.request(method, path, body or None, **headers)
        fields: dict[str, list[str]] = {}
        for name, value in response.getheaders():
            fields.setdefault(name.lower(), []).append(value)
        reply = Reply(response.status, fields, content)
        assert reply.get("X-Content-Type-Options") == "nosniff"
        # A browser follows a redirect, but most programs that POST do not.
        assert "location" not in fields
        is_v1 = path.startswith(V1)
        assert reply.get("Access-Control-Allow-Origin") == ("*" if is_v1 else None)
        assert reply.get("Access-Control-Expose-Headers") == (EXPOSED if is_v1 else None)
        # A shared cache must not store one response for each origin.
        assert reply.get("Vary") in (None, "Accept-Encoding")
        if "Access-Control-Request-Method" not in headers:
            assert len(reply.cors()) == (2 if is_v1 else 0)
        return reply

    def fail(
        self, status: int, method: str, path: str, body: bytes = b"", /, **headers: str
    ) -> Reply:
        """Send a request that must fail with this status; check the shape of the error."""
        reply = self.send(method, path, body, **headers)
        assert reply.status == status, reply.body
        assert "etag" not in reply.headers
        if path.startswith(V1):
            assert reply.get("Cache-Control") == "no-cache"
        if method != "HEAD":
            if path.startswith("/api/"):
                assert reply.get("Content-Type") == JSON
                assert error_message(reply.body)
            else:
                assert reply.get("Content-Type") == HTML
        assert (reply.get("WWW-Authenticate") is not None) == (status == 401)
        return reply


def error_message(body: bytes) -> str:
    """Return the message of an error, which is one JSON object with one key."""
    error = json.loads(body)
    assert list(error) == ["error"]
    message = error["error"]
    assert message.strip() == message != ""
    assert len(message) < 250
    return str(message)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    versions = bundled("1.0.0", BUNDLE), version("1.1.0")
    clock = document("acme/clock", *versions, downloadCount=7)
    clock["about"] = {"readme": "# Clock", "picture": described(PICTURE)}
    hidden = document("acme/hidden", listed=False)
    path = create_catalog(tmp_path_factory.mktemp("contract") / "catalog.db", clock, hidden)
    app = create_app({"DATABASE": path})
    hold(app, BUNDLE, PICTURE)
    admin = bearer(create_token(app, scopes=(), permissions=("admin",)))
    app.extensions["database"].close()
    with Server(path) as server:
        yield Client(server, admin)


def test_every_route_has_a_row_with_its_path_and_its_methods() -> None:
    url_map = create_app().url_map
    assert {rule.endpoint for rule in url_map.iter_rules()} == {
        *ROUTES,
        *IN_TESTS_OF_PAGES,
        *INTERNAL_ROUTES,
    }
    paths = {name: (route.path, route.allow) for name, route in ROUTES.items()}
    for name, (path, allow) in (paths | INTERNAL_ROUTES).items():
        adapter = url_map.bind("", path_info=path.partition("?")[0])
        endpoints = {adapter.match(method=method)[0] for method in allow.split(", ")[:-1]}
        assert name in endpoints
        assert sorted(adapter.allowed_methods()) == sorted(allow.split(", "))
    for name in ROUTES:
        family = name.partition(".")[0]
        assert ROUTES[name].path.startswith(V1) == (family == "v1")


@each_route
@pytest.mark.parametrize("origin", [{}, {"Origin": ORIGIN}, {"Origin": "null"}], ids=str)
def test_get_has_the_headers_of_its_row(
    client: Client, route: Route, origin: dict[str, str]
) -> None:
    reply = client.send("GET", route.path, **origin)
    assert (reply.status, reply.get("Content-Type")) == (200, route.type)
    assert reply.get("Cache-Control") == route.cache_control
    assert reply.get("Content-Length") == str(len(reply.body))
    etag = reply.get("ETag")
    assert (etag is not None) == route.has_etag
    assert etag is None or (etag.startswith('"') and len(etag) > 4)
    assert "set-cookie" not in reply.headers
    assert {len(values) for values in reply.headers.values()} == {1}


@each_route
def test_head_has_the_headers_of_get_and_no_body(client: Client, route: Route) -> None:
    for encoding in ("identity", "gzip"):
        got = client.send("GET", route.path, Accept_Encoding=encoding)
        head = client.send("HEAD", route.path, Accept_Encoding=encoding)
        assert (head.status, head.body) == (200, b"")
        assert head.without_date() == got.without_date()


@each_route
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_known_etag_is_304_with_the_headers_of_200_except_those_of_the_body(
    client: Client, route: Route, method: str
) -> None:
    full = client.send("GET", route.path)
    for known in (full.get("ETag") or "*", "*"):
        reply = client.send(method, route.path, If_None_Match=known)
        if not route.has_etag:
            assert reply.status == 200
            continue
        assert (reply.status, reply.body) == (304, b"")
        for name in ("etag", "cache-control", "vary"):
            assert reply.headers.get(name) == full.headers.get(name)
        assert not {"content-type", "content-length", "content-encoding"} & reply.headers.keys()


@each_route
def test_unknown_etag_and_a_range_give_the_whole_response(client: Client, route: Route) -> None:
    full = client.send("GET", route.path)
    for header in ({"If-None-Match": '"x"'}, {"Range": "bytes=0-3"}):
        reply = client.send("GET", route.path, **header)
        assert (reply.status, reply.body) == (200, full.body)
    if route.path.startswith("/api/"):
        assert client.send("GET", route.path, If_Match='"x"').status == 200


@each_route
def test_other_method_is_405_with_the_allowed_methods(client: Client, route: Route) -> None:
    for method in set(METHODS) - set(route.allow.split(", ")):
        reply = client.fail(405, method, route.path)
        assert reply.get("Allow") == route.allow
        if route.path.startswith("/api/"):
            assert f"supports {route.allow}, not '{method}'" in error_message(reply.body)


@each_route
def test_options_lists_the_methods(client: Client, route: Route) -> None:
    reply = client.send("OPTIONS", route.path)
    assert (reply.status, reply.get("Allow"), reply.body) == (200, route.allow, b"")
    assert reply.get("Content-Type") is None


@each_route
def test_trailing_slash_is_404_in_every_method_except_a_get_of_a_page(
    client: Client, route: Route
) -> None:
    path = route.path.partition("?")[0]
    # The names of static files may have slashes.
    if path == "/" or path.startswith("/static/"):
        return
    for method in METHODS:
        if path.startswith("/api/") or method not in ("GET", "HEAD"):
            client.fail(404, method, f"{path}/")
        else:
            response, _ = client.server.request(method, f"{path}/")
            assert (response.status, response.headers["Location"]) == (302, path)


def test_install_has_no_etag_and_no_other_method_counts_one(client: Client) -> None:
    counted = json.loads(client.send("GET", CLOCK).body)["widget"]["downloadCount"]
    for condition in ("*", '"x"'):
        reply = client.send("POST", CLOCK, If_None_Match=condition, Origin=ORIGIN)
        assert (reply.status, reply.body) == (200, b'{"success":true}\n')
        assert (reply.get("Content-Type"), reply.get("ETag")) == (JSON, None)
    for method in METHODS:
        client.send(method, CLOCK + ("/" if method == "POST" else ""))
    after = json.loads(client.send("GET", CLOCK).body)["widget"]["downloadCount"]
    assert after == counted + 2


@pytest.mark.parametrize(
    ("status", "method", "path", "body"), ERRORS, ids=[f"{e[0]} {e[1]} {e[2]}" for e in ERRORS]
)
def test_error_is_one_json_object_without_an_etag(
    client: Client, status: int, method: str, path: str, body: bytes
) -> None:
    plain = client.fail(status, method, path, body)
    for headers in ({"Accept": "text/html"}, {"If-None-Match": "*"}, {"Origin": ORIGIN}):
        reply = client.fail(status, method, path, body, **headers)
        assert (reply.body, reply.without_date()) == (plain.body, plain.without_date())
    if method == "GET" and not body:
        head = client.fail(status, "HEAD", path)
        assert (head.body, head.without_date()) == (b"", plain.without_date())


@pytest.mark.parametrize("path", [V1 + "no/such", V1 + "%0A/x", "/api/widgets/none/registry.json"])
def test_other_method_is_405_even_if_the_resource_is_missing(client: Client, path: str) -> None:
    assert "GET" in str(client.fail(405, "DELETE", path).get("Allow"))


@pytest.mark.parametrize("path", MISSING_PATHS, ids=lambda path: path[:40])
def test_path_that_is_not_there_is_404_in_every_method(client: Client, path: str) -> None:
    for method in METHODS:
        reply = client.fail(404, method, path)
        assert reply.get("Allow") is None


@pytest.mark.parametrize("path", INTERNAL_PATHS)
def test_path_of_the_api_that_is_not_public_is_401_in_every_method(
    client: Client, path: str
) -> None:
    for method in METHODS:
        if (method, path) != ("POST", "/api/session"):
            assert_unauthorized(client.fail(401, method, path), method)


def assert_unauthorized(reply: Reply, method: str) -> None:
    assert reply.headers["www-authenticate"] == CHALLENGE
    assert reply.get("Allow") is None
    if method != "HEAD":
        assert reply.body == b'{"error":"This path is internal and needs a session."}\n'


@each_internal_route
def test_internal_route_is_401_without_a_token_and_with_one_never_stored(
    client: Client, path: str, allow: str
) -> None:
    for method in METHODS:
        if (method, path) != ("POST", "/api/session"):
            assert_unauthorized(client.fail(401, method, path), method)
    for method in set(METHODS) - set(allow.split(", ")):
        reply = client.fail(405, method, path, **client.admin)
        assert (reply.get("Allow"), reply.get("Cache-Control")) == (allow, "no-store")
    for method in allow.split(", "):
        reply = client.send(method, path, **client.admin)
        assert reply.status in (200, 400, 415) or (method, path) == ("POST", "/api/session")
        assert (reply.get("Cache-Control"), reply.get("ETag")) == ("no-store", None)


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": "session=x"},
        {"Authorization": "Bearer x"},
        {"Connection": "Upgrade", "Upgrade": "websocket"},
        {"If-None-Match": "*"},
    ],
    ids=["cookie", "bearer", "upgrade", "revalidation"],
)
def test_no_header_opens_an_internal_path(client: Client, headers: dict[str, str]) -> None:
    assert_unauthorized(client.fail(401, "GET", "/api/session", **headers), "GET")


@pytest.mark.parametrize("path", ["search", "acme/clock", "acme/none", "a/b/c"])
def test_preflight_is_approved_on_every_path_of_the_widget_api(client: Client, path: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        headers = {**PREFLIGHT, "Access-Control-Request-Method": method}
        reply = client.send("OPTIONS", V1 + path, **headers)
        assert (reply.status, reply.body) == (200, b"")
        assert reply.cors() == {
            "access-control-allow-origin": ["*"],
            "access-control-expose-headers": [EXPOSED],
            "access-control-allow-methods": ["GET, HEAD, OPTIONS, POST"],
            "access-control-allow-headers": ["content-type"],
            "access-control-max-age": ["7200"],
        }


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        (CLOCK, "DELETE", 200),
        (V1, "POST", 404),
        (V1 + "a%0Ab", "POST", 404),
        (V1 + "a/b/c/d/e", "POST", 404),
        (REGISTRY, "POST", 200),
        ("/api/stats", "POST", 200),
        ("/api/widgets/acme/clock", "POST", 401),
        ("/api/v1/other", "POST", 404),
        ("/", "POST", 200),
    ],
)
def test_other_preflights_are_not_approved(
    client: Client, path: str, method: str, status: int
) -> None:
    headers = {**PREFLIGHT, "Access-Control-Request-Method": method}
    reply = client.send("OPTIONS", path, **headers)
    assert reply.status == status
    assert set(reply.cors()) <= {"access-control-allow-origin", "access-control-expose-headers"}


@pytest.mark.parametrize("host", ["a..b", "a" * 70], ids=["empty label", "long label"])
def test_unusual_host_and_upgrade_change_nothing(client: Client, host: str) -> None:
    for method, path in (("GET", CLOCK), ("GET", V1 + "none"), ("POST", CLOCK)):
        status = client.send(method, path).status
        assert client.send(method, path, Host=host).status == status
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        assert client.send(method, path, **upgrade).status == status


@pytest.mark.parametrize("path", ["//api/health", "///api/v1/widgets/search"])
def test_leading_slashes_are_not_redirected(client: Client, path: str) -> None:
    response, _ = client.server.request("GET", path)
    assert (response.status, response.headers["Location"]) == (200, None)


def test_body_that_is_refused_by_its_announced_length_is_an_error_like_others(
    client: Client,
) -> None:
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=60) as connection:
        fields = f"Host: a\r\nContent-Length: {2**40}\r\n"
        connection.sendall(f"POST {CLOCK} HTTP/1.1\r\n{fields}\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (413, "*")
        assert error_message(response.read())
        response.close()
