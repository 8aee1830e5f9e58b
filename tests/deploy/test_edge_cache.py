"""The edge cache of deploy/nginx in a real nginx before a real service.

Between nginx and the service is a relay, a second server of the same nginx. With the header of
EXPIRED, a request has its response stored as already expired, so that no test waits. The relay also
compresses JSON, so that nginx gets two variants of a response.
"""

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import reverse_proxies
from builders import bundled, document, version
from conftest import ROOT, create_catalog, create_demo, hold, run_on
from reverse_proxies import Origin, Proxy

from app import create_app

BUNDLE = b"export default () => 'tick'\n" * 100
V1 = "/api/v1/widgets"
DETAIL = f"{V1}/acme/clock"
REGISTRY = "/api/widgets/acme/registry.json"
CACHED_PATHS = [
    DETAIL,
    f"{DETAIL}?compatSdk=1.0.0",
    f"{DETAIL}/latest",
    f"{DETAIL}/1.0.0/bundle.js",
    f"{V1}/caf%C3%A9/men%C3%BC",
    f"{V1}/acme/none",
    f"{V1}/search",
    f"{V1}/search?q=clock&page=1",
    REGISTRY,
    "/api/widgets/none/registry.json",
]
EXPIRED = {"X-Test-Expires": "@1"}
VALID = {"X-Test-Expires": "3600"}
# nginx reads X-Accel-Expires from the response; the service never sends it.
RELAY = """
server {{
    listen unix:{directory}/relay;
    location / {{
        proxy_pass http://127.0.0.1:{port};
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
        add_header X-Accel-Expires $http_x_test_expires always;
        gzip on;
        gzip_proxied any;
        gzip_vary on;
        gzip_types application/json;
    }}
}}
"""


def create_origin(path: Path) -> Path:
    """Create a catalog with a stored bundle."""
    clock = document(
        "acme/clock", bundled("1.0.0", BUNDLE), version("2.0.0", yanked=True), downloadCount=0
    )
    create_catalog(path, clock, document("café/menü", version()), document("acme/gone", version()))
    app = create_app({"DATABASE": path})
    hold(app, BUNDLE)
    app.extensions["database"].close()
    return path


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origin]:
    with reverse_proxies.serve(create_origin(tmp_path_factory.mktemp("o") / "c.db")) as running:
        yield running


@pytest.fixture(scope="module")
def nginx(origin: Origin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    directory = tmp_path_factory.mktemp("edge")
    relay = RELAY.format(directory=directory, port=origin.port)
    socket = f"unix:{directory}/relay"
    with reverse_proxies.nginx(directory, socket, "widget-catalog-cache", relay) as running:
        yield running


@pytest.fixture
def edge(nginx: Proxy, origin: Origin) -> Proxy:
    """The proxy with an empty cache, after a service whose log was read."""
    # nginx then finds no file for what it has in memory, and requests it again.
    for file in (nginx.certificate.parent / "cache").rglob("*"):
        if file.is_file():
            file.unlink()
    origin.requests()
    return nginx


@pytest.mark.parametrize("path", CACHED_PATHS)
def test_a_repeated_read_gets_the_first_response_and_does_not_reach_the_service(
    edge: Proxy, origin: Origin, path: str
) -> None:
    first, second = edge.get(path), edge.get(path)
    assert (first.cache_status, second.cache_status) == ("MISS", "HIT")
    assert (second.status, second.body) == (first.status, first.body)
    for response in (first, second):
        del response.headers["Date"], response.headers["X-Cache-Status"]
    assert second.headers.items() == first.headers.items()
    assert origin.requests() == [f"GET {path} {first.status}"]


@pytest.mark.parametrize(("path", "value"), [(DETAIL, "no-cache"), (REGISTRY, None)])
def test_clients_get_the_cache_control_of_the_service(
    edge: Proxy, path: str, value: str | None
) -> None:
    assert edge.get(path).headers["Cache-Control"] == value


@pytest.mark.parametrize(
    "path",
    [
        f"{V1}/updates?compatSdk=1.0.0&installed=acme/clock@1.0.0",
        f"{V1}/changes",
        "/api/health",
        "/api/stats",
        "/",
        "/widgets/acme/clock",
        "/openapi.json",
    ],
)
def test_other_responses_are_not_cached(edge: Proxy, origin: Origin, path: str) -> None:
    assert [edge.get(path).cache_status for _ in range(2)] == [None, None]
    assert len(origin.requests()) == 2


@pytest.mark.parametrize("path", [f"{DETAIL}?compatSdk=1", f"{V1}/search?page=0"])
def test_an_invalid_request_is_not_cached(edge: Proxy, path: str) -> None:
    assert [edge.get(path).status for _ in range(2)] == [400, 400]
    assert edge.get(path).cache_status == "MISS"


def test_every_install_reaches_the_service(edge: Proxy, origin: Origin) -> None:
    edge.get(DETAIL)
    assert [edge.request("POST", DETAIL).status for _ in range(2)] == [200, 200]
    assert origin.requests()[1:] == [f"POST {DETAIL} 200"] * 2


def test_a_preflight_reaches_the_service(edge: Proxy, origin: Origin) -> None:
    edge.get(DETAIL)
    response = edge.request("OPTIONS", DETAIL, Origin="https://a.example")
    assert response.headers["Allow"] == "GET, HEAD, POST, OPTIONS"
    assert origin.requests()[1] == f"OPTIONS {DETAIL} 200"


def test_head_and_get_share_a_cached_response(edge: Proxy, origin: Origin) -> None:
    head, whole = edge.request("HEAD", DETAIL), edge.get(DETAIL)
    assert (head.cache_status, whole.cache_status) == ("MISS", "HIT")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]
    assert (head.body, origin.requests()) == (b"", [f"GET {DETAIL} 200"])


@pytest.mark.parametrize("path", CACHED_PATHS)
def test_an_expired_response_is_revalidated_by_its_etag(
    edge: Proxy, origin: Origin, path: str
) -> None:
    first = edge.get(path, **EXPIRED)
    second = edge.get(path, **VALID)
    if first.status == 404:
        assert second.cache_status == "EXPIRED"
    else:
        assert second.cache_status == "REVALIDATED"
        assert origin.requests()[1] == f"GET {path} 304"
    assert (second.status, second.body) == (first.status, first.body)
    assert edge.get(path).cache_status == "HIT"


@pytest.mark.parametrize("path", [DETAIL, REGISTRY])
def test_a_compressed_response_is_revalidated_by_its_own_etag(
    edge: Proxy, origin: Origin, path: str
) -> None:
    first = edge.get(path, Accept_Encoding="gzip", **EXPIRED)
    second = edge.get(path, Accept_Encoding="gzip")
    assert (first.headers["Content-Encoding"], second.cache_status) == ("gzip", "REVALIDATED")
    assert gzip.decompress(second.body) == gzip.decompress(first.body)
    assert origin.requests()[1] == f"GET {path} 304"


def test_an_expired_response_that_changed_is_replaced(edge: Proxy) -> None:
    before = json.loads(edge.get(DETAIL, **EXPIRED).body)["widget"]["downloadCount"]
    edge.request("POST", DETAIL, **{"X-Test-Address": "198.51.100.9"})
    response = edge.get(DETAIL)
    assert response.cache_status == "EXPIRED"
    assert json.loads(response.body)["widget"]["downloadCount"] == before + 1


@pytest.mark.parametrize("form", ["{}", "W/{}"])
@pytest.mark.parametrize("path", [DETAIL, REGISTRY])
def test_a_client_revalidates_with_the_edge_alone(
    edge: Proxy, origin: Origin, path: str, form: str
) -> None:
    tag = form.format(edge.get(path).headers["ETag"])
    origin.requests()
    response = edge.get(path, If_None_Match=tag)
    assert (response.status, response.cache_status, origin.requests()) == (304, "HIT", [])


def test_a_client_with_the_current_etag_gets_304_for_a_response_that_is_not_cached_yet(
    edge: Proxy, origin: Origin
) -> None:
    tag = edge.get(DETAIL, User_Agent="widget-catalog/1.0.0").headers["ETag"]
    response = edge.get(f"{DETAIL}?x=1", If_None_Match=tag)
    assert response.status == 304


@pytest.mark.parametrize("path", [DETAIL, REGISTRY, f"{V1}/search"])
def test_the_host_is_no_part_of_the_key_and_not_in_the_response(
    edge: Proxy, origin: Origin, path: str
) -> None:
    forged = edge.get(path, Host="evil.example", X_Forwarded_Host="evil.example")
    response = edge.get(path)
    assert (forged.cache_status, response.cache_status) == ("MISS", "HIT")
    assert f"https://widgets.example{DETAIL}/1.0.0/bundle.js".encode() in response.body
    assert b"evil" not in response.body


def test_the_query_is_no_part_of_the_key_of_a_registry(edge: Proxy, origin: Origin) -> None:
    first, second = edge.get(f"{REGISTRY}?x=1"), edge.get(REGISTRY)
    assert (first.cache_status, second.cache_status) == ("MISS", "HIT")
    assert origin.requests() == [f"GET {REGISTRY} 200"]


@pytest.mark.parametrize("query", ["x=1", "compatSdk=9.0.0", "%63ompatSdk=9.9.9", "&&="])
def test_the_whole_query_is_a_part_of_the_key_of_every_other_read(
    edge: Proxy, origin: Origin, query: str
) -> None:
    edge.get(DETAIL)
    assert [edge.get(f"{DETAIL}?{query}").cache_status for _ in range(2)] == ["MISS", "HIT"]
    assert origin.requests() == [f"GET {DETAIL} 200", f"GET {DETAIL}?{query} 200"]


# Two values of each parameter in openapi.json with different responses.
VALUES = {
    "q": ("clock", "weather"),
    "compatSdk": ("1.0.0", "2.0.0"),
    "compatible": ("true&compatSdk=1.0.0", "false&compatSdk=1.0.0"),
    "sort": ("name", "updated"),
    "permission": ("network", "-network"),
    "license": ("MIT", "Apache-2.0"),
    "scope": ("acme", "none"),
    "official": ("true", "false"),
    "page": ("1", "2"),
    "limit": ("1", "2"),
    "since": ("0", "1"),
    "installed": ("acme/weather@1.0.0&compatSdk=1.0.0", "acme/weather@2.6.0&compatSdk=1.0.0"),
    "stable": ("true", "false"),
    "before": ("2024-06-01", "2025-06-01"),
    "days": ("7", "0"),
    "sha256": ("0" * 64, "1" * 64),
    "include": ("picture", ""),
    "widget": ("acme/weather&compatSdk=1.4.0", "acme/clock&compatSdk=1.4.0"),
}
PATH_VALUES = {"{scope}": "acme", "{name}": "weather", "{version}": "latest"}


def documented_parameters() -> Iterator[tuple[str, str]]:
    """Yield the path of each read in openapi.json with each of its parameters."""
    text = (ROOT / "catalog" / "web" / "openapi.json").read_text(encoding="utf-8")
    description = json.loads(text)
    shared = description["components"]["parameters"]
    for path, operations in description["paths"].items():
        for field, value in PATH_VALUES.items():
            path = path.replace(field, value)
        for each in operations["get"].get("parameters", ()):
            parameter = shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
            if parameter["in"] == "query":
                yield path, parameter["name"]


def test_every_documented_parameter_has_the_same_effect_as_at_the_service(tmp_path: Path) -> None:
    requested = [
        [path, f"{path}?{name}={first}", f"{path}?{name}={second}"]
        for path, name in documented_parameters()
        for first, second in [VALUES[name]]
    ]
    with (
        reverse_proxies.serve(create_demo(tmp_path / "catalog.db")) as origin,
        reverse_proxies.nginx(tmp_path, origin.port, "widget-catalog-cache") as edge,
    ):
        differences = [
            path for paths in requested for path in paths if edge.get(path).body != origin.get(path)
        ]
    assert (differences, len(requested) >= 16) == ([], True)


def test_an_empty_sdk_stays_an_error(edge: Proxy) -> None:
    edge.get(DETAIL)
    assert edge.get(f"{DETAIL}?compatSdk=").status == 400


def test_an_encoded_parameter_of_a_search_does_not_replace_the_search_without_it(
    edge: Proxy,
) -> None:
    assert json.loads(edge.get(f"{V1}/search?%71=nothing").body)["total"] == 0
    assert json.loads(edge.get(f"{V1}/search").body)["total"] > 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{V1}/acme/cloc%6B", 200),
        (f"{V1}/caf%c3%a9/men%c3%bc", 200),
        (f"{V1}/acme/clock%3FcompatSdk=1.0.0", 404),
        (f"{V1}/acme%2Fclock", 200),
        (f"{V1}//acme/clock", 404),
        ("/api/widgets/%61cme/registry.json?x", 200),
        ("/none/../api/widgets/acme/registry.json", 404),
    ],
)
def test_a_path_in_another_spelling_is_passed_on_and_not_cached(
    edge: Proxy, origin: Origin, path: str, status: int
) -> None:
    response = edge.get(path)
    assert (response.status, response.cache_status) == (status, None)
    assert origin.requests() == [f"GET {path} {status}"]
    assert edge.get(DETAIL).status == edge.get(REGISTRY).status == 200


def test_a_path_with_dots_is_cached_apart_from_what_it_resolves_to(edge: Proxy) -> None:
    assert edge.get(f"{V1}/none/../acme/clock").status == 404
    assert edge.get(DETAIL).status == 200


@pytest.mark.parametrize(
    ("sent", "encoding"),
    [
        ("gzip", "gzip"),
        ("br;q=1.0, gzip;q=0.8", "gzip"),
        ("GZIP", "gzip"),
        ("gzip;q=0", None),
        ("gzip; q=0.0, br", None),
        ("br", None),
        ("", None),
    ],
)
def test_a_client_gets_only_an_encoding_that_it_accepts(
    edge: Proxy, sent: str, encoding: str | None
) -> None:
    edge.get(REGISTRY, Accept_Encoding="gzip")
    plain = edge.get(REGISTRY)
    response = edge.get(REGISTRY, Accept_Encoding=sent)
    assert (response.cache_status, response.headers["Content-Encoding"]) == ("HIT", encoding)
    assert (gzip.decompress(response.body) if encoding else response.body) == plain.body


def test_all_values_of_accept_encoding_share_two_cached_responses(
    edge: Proxy, origin: Origin
) -> None:
    for sent in ("gzip", "gzip, deflate", "gzip, deflate, br, zstd", "br", "identity", "x"):
        edge.get(REGISTRY, Accept_Encoding=sent)
    assert len(origin.requests()) == 2


def test_a_cached_response_of_the_api_is_for_every_origin(edge: Proxy) -> None:
    edge.get(DETAIL)
    response = edge.get(DETAIL, Origin="https://a.example")
    assert (response.cache_status, response.headers["Access-Control-Allow-Origin"]) == ("HIT", "*")


def test_range_of_a_bundle_is_ignored(edge: Proxy) -> None:
    path = f"{DETAIL}/1.0.0/bundle.js"
    for expected, range_ in (("MISS", "bytes=7-13"), ("HIT", "bytes=99999-")):
        response = edge.get(path, Range=range_)
        assert (response.status, response.cache_status) == (200, expected)
        assert response.body == BUNDLE


def test_a_mirror_gets_the_response_of_the_service(edge: Proxy, origin: Origin) -> None:
    edge.get(DETAIL)
    response = edge.get(DETAIL, User_Agent="widget-catalog/1.1.0")
    assert response.cache_status == "BYPASS"
    assert len(origin.requests()) == 2


def test_simultaneous_reads_of_a_new_response_are_one_request(edge: Proxy, origin: Origin) -> None:
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(edge.get, [REGISTRY] * 16))
    assert {response.body for response in responses} == {edge.get(REGISTRY).body}
    assert origin.requests() == [f"GET {REGISTRY} 200"]


def test_reads_go_on_while_the_service_is_stopped(tmp_path: Path) -> None:
    database = create_origin(tmp_path / "catalog.db")
    gone = f"{V1}/acme/gone"
    with reverse_proxies.serve(database) as origin:
        relay = RELAY.format(directory=tmp_path, port=origin.port)
        socket = f"unix:{tmp_path}/relay"
        with reverse_proxies.nginx(tmp_path, socket, "widget-catalog-cache", relay) as edge:
            before = {path: edge.get(path, **EXPIRED) for path in CACHED_PATHS}
            assert edge.get(gone, **EXPIRED).status == 200
            assert run_on(database, "unlist", "acme/gone").exit_code == 0
            assert edge.get(gone, **EXPIRED).status == 404
            origin.stop()
            for path, response in before.items():
                stale = edge.get(path)
                assert (stale.cache_status, stale.status) == ("STALE", response.status)
                assert stale.body == response.body
            assert edge.get(gone).status == 404
            assert edge.get(f"{V1}/acme/other").status == 502
            assert edge.get(DETAIL, User_Agent="widget-catalog/1.1.0").status == 502
            assert edge.request("POST", DETAIL).status == 502


def test_a_large_registry_is_cached_as_the_service_compressed_it(tmp_path: Path) -> None:
    widgets = [document(f"acme/w{number}", description="x" * 1_000) for number in range(150)]
    with (
        reverse_proxies.serve(create_catalog(tmp_path / "catalog.db", *widgets)) as origin,
        reverse_proxies.nginx(tmp_path, origin.port, "widget-catalog-cache") as edge,
    ):
        responses = (edge.get(REGISTRY, Accept_Encoding="gzip") for _ in range(1_000))
        cached = next(response for response in responses if response.cache_status == "HIT")
    assert cached.headers["ETag"].endswith('-gzip"')
    assert len(gzip.decompress(cached.body)) > 131_072
