"""Fuzzing of every parameter of every route: a success or a 4xx, never a 500."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import create_demo
from flask.testing import FlaskClient
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from app import create_app

GREATEST = 2**53 - 1
OPERATIONS = ["health", "version", "widgets/cli-version", "stats", "settings"]
NAMES = [
    *("q", "compatSdk", "compatible", "sort", "scope", "official", "permission", "license"),
    *("page", "limit"),
]

# fmt: off
SYNTAX = [
    # full text
    '"', '""', "*", "^", "(", ")", "{a b}:", "NEAR(", "NEAR/2", "AND", "OR", "NOT", "a*", '"a"+"b"',
    # SQL
    "'", "''", "'; DROP TABLE widget; --", "' OR 1=1 --", "/*", "%' LIKE", "_", "?1", ":q", "x'00'",
    # numbers and words
    "0", "1", "-1", "-0", "00", "+1", "1.0", "1e999", "0x10", "1_000", "٣", "１", "²", "nan", "inf",
    "18446744073709551616", "true", "false", "True", "yes", "null", "NULL",
    # versions and ranges
    "1.4.0", "v1.4.0", "1.4", "1.x", ">=1.0.0", "1.0.0-rc.1+build", "1.0.0-", "~>",
    # paths, pages, Python
    ".", "..", "../..", "/", "//", "%", "%00", "\\", "<script>", "javascript:alert(1)", "{0}", "%s",
    # characters that are often mishandled
    "\0", "\r\n", "\t", "\u202e", "\ufeff", "\ufffd", "\ud800", "\U0001f600", "\U0010ffff",
    "e\u0301", "\u0130", "ß",
]
# fmt: on

text = (
    st.sampled_from(SYNTAX)
    | st.lists(st.sampled_from(SYNTAX), min_size=2, max_size=5).map(" ".join)
    | st.integers().map(str)
    | st.integers(min_value=10**18, max_value=10**400).map(str)
    | st.text(st.characters(), max_size=40)
)
# Percent-encoded: any text in UTF-8, and bytes that are not UTF-8.
encoded = text.map(
    lambda value: quote(value.encode("utf-8", "surrogatepass"), safe="")
) | st.binary(max_size=20).map(lambda value: quote(value, safe=""))
parameters = st.lists(st.tuples(st.sampled_from([*NAMES, "Q", "other", ""]), encoded), max_size=8)


def assert_error(response: TestResponse) -> str:
    assert list(response.get_json()) == ["error"]
    assert len(response.json["error"]) < 250
    assert response.json["error"].isprintable()
    return response.json["error"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    path: Path = create_demo(tmp_path_factory.mktemp("fuzzed") / "fuzzed.db")
    app = create_app({"DATABASE": path})
    yield app.test_client()
    app.extensions["database"].close()


fuzz = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@fuzz
@given(query_parameters=parameters)
def test_search_gives_a_page_or_names_the_invalid_parameter(
    client: FlaskClient, query_parameters: list[tuple[str, str]]
) -> None:
    query = "&".join(f"{name}={value}" for name, value in query_parameters)
    response = client.get(f"/api/v1/widgets/search?{query}")
    names = {name for name, _ in query_parameters}
    if response.status_code == 400:
        assert assert_error(response).split(" ")[0] in names & set(NAMES)
        return
    assert response.status_code == 200
    page = response.get_json()
    assert list(page) == ["widgets", "total", "page", "limit"]
    assert 1 <= page["limit"] <= 100
    assert page["page"] >= 1
    assert len(page["widgets"]) <= min(page["limit"], page["total"])
    entries = ["latestVersion"] + ["latestCompatibleVersion"] * ("compatSdk" in names)
    found = [widget[entry] for widget in page["widgets"] for entry in entries]
    assert not any(entry["yanked"] for entry in found if entry is not None)


number_like = st.text("0123456789", max_size=20) | st.integers().map(str) | st.text(max_size=5)


@fuzz
@given(value=number_like.map(lambda text: text.encode("utf-8", "replace").decode()))
@example(value=str(GREATEST))
@example(value=str(GREATEST + 1))
def test_page_and_limit_are_whole_numbers_from_1_to_2_to_the_53(
    client: FlaskClient, value: str
) -> None:
    is_number = re.fullmatch("[0-9]+", value) and len(value.lstrip("0")) < 20
    number = int(value.lstrip("0") or "0") if is_number else 0
    allowed = number if 1 <= number <= GREATEST else None
    for name, expected in (
        ("page", allowed if value else 1),
        ("limit", (allowed and min(allowed, 100)) if value else 20),
    ):
        response = client.get("/api/v1/widgets/search", query_string={name: value})
        assert response.status_code == (200 if expected else 400)
        assert response.json.get(name) == expected


# Runs of combining marks that normalization must sort, and characters that decompose into many.
HOSTILE = {
    "marks": "\u0301\u0323" * 16_000,
    "ligatures": "\ufdfa" * 32_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("length", "status"), [(1000, 200), (32_000, 400)])
def test_hostile_q_takes_little_time(
    client: FlaskClient, kind: str, length: int, status: int
) -> None:
    query = quote(HOSTILE[kind][:length])
    begun = time.thread_time()
    assert client.get(f"/api/v1/widgets/search?q={query}").status_code == status
    assert time.thread_time() - begun < 2  # seconds


@pytest.mark.parametrize("name", ["q", "official", "compatSdk", "page", "limit"])
def test_long_value_takes_little_time(client: FlaskClient, name: str) -> None:
    for value in ("9" * 32_000, "0" * 32_000, "1.2.3-" + "a." * 16_000, "+" * 32_000):
        begun = time.thread_time()
        response = client.get(f"/api/v1/widgets/search?{name}={value}")
        assert time.thread_time() - begun < 2  # seconds
        assert response.status_code == 400
        assert assert_error(response).startswith(f"{name} must be ")


@pytest.mark.parametrize("name", NAMES)
def test_single_parameter_gives_a_page_or_is_named_as_invalid(
    client: FlaskClient, name: str
) -> None:
    @fuzz
    @given(value=encoded, other=encoded)
    def check(value: str, other: str) -> None:
        once = client.get(f"/api/v1/widgets/search?{name}={value}")
        assert once.status_code in (200, 400)
        if once.status_code == 400:
            # compatible=true requires another parameter.
            assert assert_error(once).startswith((f"{name} must be ", "compatible requires "))
        # If a parameter is repeated, the first value is used.
        twice = client.get(f"/api/v1/widgets/search?{name}={value}&{name}={other}")
        assert (twice.status_code, twice.data) == (once.status_code, once.data)

    check()


@fuzz
@given(scope=encoded, name=encoded)
def test_fuzzed_widget_path_is_404(client: FlaskClient, scope: str, name: str) -> None:
    for path in (f"/api/v1/widgets/{scope}/{name}", f"/api/v1/widgets/acme/{name}"):
        for method in ("GET", "HEAD", "POST"):
            response = client.open(path, method=method)
            # With a slash in it, it may be the path of a version, which has no POST.
            may_be_version = method == "POST" and "%2F" in path
            assert response.status_code in ((404, 405) if may_be_version else (404,))
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            if method != "HEAD":
                assert_error(response)


@fuzz
@given(scope=encoded)
def test_fuzzed_registry_path_is_404_or_401(client: FlaskClient, scope: str) -> None:
    response = client.get(f"/api/widgets/{scope}/registry.json")
    # With a slash in it, or empty, it is an internal path.
    assert response.status_code == (404 if re.fullmatch(r"(?!\.{1,2}$).+", scope) else 401) or (
        "%2F" in scope and response.status_code == 401
    )
    assert_error(response)


segments = st.sampled_from(["v1", "v2", "api", "widgets", "acme", "registry.json", "health", ""])


@fuzz
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "FOO"]),
    path=st.lists(segments | st.text(max_size=8), max_size=5).map("/".join),
)
def test_any_path_of_the_api_that_is_not_public_is_401(
    client: FlaskClient, method: str, path: str
) -> None:
    assume(not path.startswith("v1/"))
    assume(path.removesuffix("/") not in OPERATIONS)
    assume(not re.fullmatch("widgets/[^/]+/registry[.]json/?", path))
    response = client.open("/api/" + quote(path.encode("utf-8", "replace")), method=method)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Session realm="internal"'


@pytest.mark.parametrize("path", OPERATIONS)
def test_operational_endpoint_ignores_parameters(client: FlaskClient, path: str) -> None:
    plain = client.get(f"/api/{path}")

    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(query_parameters=parameters)
    def check(query_parameters: list[tuple[str, str]]) -> None:
        query = "&".join(f"{name}={value}" for name, value in query_parameters)
        response = client.get(f"/api/{path}?{query}")
        assert (response.status_code, response.data) == (200, plain.data)

    check()


@fuzz
@given(value=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=60))
def test_fuzzed_header_is_no_error(client: FlaskClient, value: str) -> None:
    for header in ("If-None-Match", "If-Modified-Since", "Range", "Accept", "Origin", "Host"):
        response = client.get("/api/v1/widgets/acme/clock", headers={header: value})
        assert response.status_code in (200, 304)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(installed=encoded, sdk=encoded, name=encoded)
def test_fuzzed_pages_are_a_success_or_an_error_of_the_client(
    client: FlaskClient, installed: str, sdk: str, name: str
) -> None:
    paths = [
        f"/updates?installed={installed}&installed=acme/{name}@1.0.0&compatSdk={sdk}",
        f"/?q={name}&compatSdk={sdk}&sort={name}&official={sdk}&compatible={name}",
        f"/feed.atom?scope=acme&name={name}",
        f"/widgets/{name}",
        f"/widgets/acme?page={sdk}",
        f"/widgets/acme/weather/{name}?compatSdk={sdk}",
        f"/widgets/acme/weather/compare?from={name}&to={sdk}",
        f"/widgets/acme/weather?compatSdk={sdk}&page={name}&stable={name}&compatible={sdk}",
        f"/static/{name}",
        f"/none/{installed}/{name}",
    ]
    for path in paths:
        with client.get(path) as response:
            assert response.status_code in (200, 302, 400, 404), path
