"""serve --testing: what a test can do with its catalog, through the client of the pytest plugin."""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from builders import document, png, version
from conftest import ROOT, Server, run_here, run_on, wait_for_end

from catalog.domain.token_text import generate_token
from pytest_widget_catalog.catalog import Catalogs, WidgetCatalog, WidgetCatalogError

SERVE = [sys.executable, "-m", "catalog", "serve", "--testing"]
CLOCK = "/api/v1/widgets/acme/clock"
SEARCH = "/api/v1/widgets/search"


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogs]:
    running = Catalogs(tmp_path_factory.mktemp("plugin"))
    yield running
    running.close()


@pytest.fixture
def catalog(catalogs: Catalogs) -> Iterator[WidgetCatalog]:
    """An empty catalog, as the fixture widget_catalog."""
    with catalogs.serve(start="empty") as served:
        yield served


def send(
    catalog: WidgetCatalog, path: str, method: str = "GET", body: bytes = b"", /, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Return the response to a request, and its body."""
    connection = http.client.HTTPConnection(catalog.url.removeprefix("http://"), timeout=30)
    with closing(connection):
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, response.read()


def control(catalog: WidgetCatalog, action: str, body: bytes = b"", **headers: str) -> Any:
    """Return the status of a control request and its result."""
    sent = {"Content-Type": "application/json", **headers}
    response, content = send(catalog, f"/_testing/{action}", "POST", body, **sent)
    return response.status, json.loads(content)


def status_of(catalog: WidgetCatalog, path: str, method: str = "GET") -> int:
    return send(catalog, path, method)[0].status


def detail(catalog: WidgetCatalog, path: str = CLOCK) -> Any:
    return json.loads(send(catalog, path)[1])


def total(catalog: WidgetCatalog) -> int:
    """Return how many widgets a search finds."""
    found: int = detail(catalog, SEARCH)["total"]
    return found


def test_a_published_version_has_every_field_and_a_bundle(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", sdk="^1.2.0")
    response = detail(catalog)
    (entry,) = response["versions"]
    optional = {"yankedReason", "deprecationMessage"}
    assert {key for key, value in entry.items() if value is None} == optional
    assert None not in response["widget"].values()
    assert entry["sdkVersion"] == "^1.2.0"
    _, content = send(catalog, entry["bundleUrl"].removeprefix(catalog.url))
    assert hashlib.sha256(content).hexdigest() == entry["sha256Hash"]
    assert len(content) == entry["bundleSize"] > 0


def test_fields_and_the_bundle_can_be_given(catalog: WidgetCatalog) -> None:
    widget: dict[str, Any] = {"isOfficial": True, "displayName": "Time"}
    fields = {"bundleUrl": "https://cdn.example/1.js", "sha256Hash": "0" * 64, "license": "ISC"}
    catalog.publish("acme/clock", "1.0.0", **widget, **fields)
    response = detail(catalog)
    assert response["widget"].items() >= widget.items()
    assert response["versions"][0].items() >= fields.items()
    bundles: dict[str, str | bytes] = {"2.0.0": "export default 1;\n", "1.0.1": b"\xff" * 1_000_000}
    for number, bundle in bundles.items():
        catalog.publish("acme/clock", number, bundle=bundle)
        expected = bundle.encode() if isinstance(bundle, str) else bundle
        assert send(catalog, f"{CLOCK}/{number}/bundle.js")[1] == expected
    # The version that was published last is the latest.
    response = detail(catalog)
    assert response["latestVersion"] == "1.0.1"
    times = [f"2025-01-01T00:00:0{second}.000Z" for second in (2, 1, 0)]
    assert [entry["publishedAt"] for entry in response["versions"]] == times


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"licence": "MIT"}, "'licence' cannot be set in a later version; use bundleUrl, "),
        ({"isOfficial": True}, "'isOfficial' cannot be set in a later version"),
        ({"minSize": 3}, "minSize must be"),
        ({"version": "1.0.0"}, "acme/clock@1.0.0 already exists"),
        ({"name": "clock"}, "'clock' is not of the form scope/name"),
        ({"sdk": "^1.0.0", "sdkVersion": "^2.0.0"}, "sdk and sdkVersion are the same field"),
        ({"bundleBase64": "%"}, "bundleBase64 must be base64"),
    ],
)
def test_an_invalid_publication_is_refused(
    catalog: WidgetCatalog, fields: dict[str, Any], message: str
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    with pytest.raises(WidgetCatalogError, match=message):
        catalog.publish(**{"name": "acme/clock", "version": "2.0.0", **fields})
    assert detail(catalog)["latestVersion"] == "1.0.0"


def test_widgets_and_versions_are_changed_and_deleted(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.publish("acme/clock", "2.0.0")
    catalog.yank("acme/clock@2.0.0", reason="--Broken.")
    catalog.yank("acme/clock@1.0.0")
    catalog.unyank("acme/clock@1.0.0")
    catalog.deprecate("acme/clock@<2.0.0", "Old.")
    newest, oldest = detail(catalog)["versions"]
    assert (newest["yanked"], newest["yankedReason"]) == (True, "--Broken.")
    assert (oldest["yanked"], oldest["deprecationMessage"]) == (False, "Old.")
    catalog.delete("acme/clock@2.0.0")
    assert [entry["version"] for entry in detail(catalog)["versions"]] == ["1.0.0"]
    catalog.unlist("acme/clock")
    assert status_of(catalog, CLOCK) == 404
    catalog.relist("acme/clock")
    assert status_of(catalog, CLOCK) == 200
    catalog.delete("acme/clock")
    with pytest.raises(WidgetCatalogError, match=r"^There is no widget acme/clock\b"):
        catalog.yank("acme/clock@1.0.0")


def test_readme_links_and_picture_of_a_widget_are_set_and_removed(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    picture = png()
    catalog.describe(
        "acme/clock", readme="# Clock", homepage="https://acme.example/", picture=picture
    )
    catalog.describe("acme/clock", description="Tells the time.")
    about = detail(catalog, f"{CLOCK}/about")
    assert (about["readme"], about["homepage"]) == ("# Clock", "https://acme.example/")
    assert send(catalog, about["picture"]["url"].removeprefix(catalog.url))[1] == picture
    (shown,) = detail(catalog, "/api/v1/widgets/search?include=picture")["widgets"]
    assert (shown["description"], shown["picture"]["url"]) == (
        "Tells the time.",
        about["picture"]["url"],
    )
    catalog.describe("acme/clock", readme=None, picture=b"")
    about = detail(catalog, f"{CLOCK}/about")
    assert (about["readme"], about["picture"]) == (None, None)
    assert about["homepage"] == "https://acme.example/"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"listed": False}, "describe can set description, displayName, homepage, icon"),
        ({"homepage": "ftp://x"}, "homepage must be"),
        ({"displayName": None}, "displayName must be"),
        ({"picture": b"GIF89a"}, "picture"),
    ],
)
def test_an_invalid_description_changes_nothing(
    catalog: WidgetCatalog, fields: dict[str, Any], message: str
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    with pytest.raises(WidgetCatalogError, match=message):
        catalog.describe("acme/clock", **{"readme": "x", **fields})
    assert detail(catalog, f"{CLOCK}/about")["readme"] is None


def test_requests_are_recorded_with_query_headers_and_status(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clöck", "1.0.0")
    send(catalog, f"{SEARCH}?q=a+b&scope=&q=c", Accept="application/json")
    status_of(catalog, "/api/v1/widgets/acme/cl%C3%B6ck", "POST")
    status_of(catalog, "/nothing")
    search, install, failed = catalog.requests
    assert search.query == {"q": "a b", "scope": ""}
    assert search.headers["accept"] == "application/json"
    assert (install.method, install.path) == ("POST", "/api/v1/widgets/acme/clöck")
    assert [each.status for each in (search, install, failed)] == [200, 200, 404]
    catalog.clear_requests()
    assert control(catalog, "requests") == (200, {"requests": [], "waiting": []})


def test_requests_fail_as_often_as_requested_and_are_not_counted(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.fail_next(2, status=503, retry_after=7, path=CLOCK)
    catalog.fail_next(status=502)
    assert [status_of(catalog, SEARCH) for _ in range(2)] == [502, 200]
    for _ in range(2):
        response, body = send(catalog, CLOCK, "POST")
        assert (response.status, response.headers["Retry-After"]) == (503, "7")
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert response.headers["Access-Control-Expose-Headers"] == "ETag, Retry-After"
        assert json.loads(body) == {"error": "The test suite requested this failure."}
    catalog.drop_connection(path=CLOCK)
    assert status_of(catalog, SEARCH) == 200
    with pytest.raises(http.client.RemoteDisconnected):
        send(catalog, CLOCK, "POST")
    assert (catalog.installs("acme/clock"), status_of(catalog, CLOCK, "POST")) == (0, 200)
    assert catalog.installs("acme/clock") == 1
    statuses = [each.status for each in catalog.requests]
    assert statuses == [502, 200, 503, 503, 200, None, 200]


def test_a_fault_can_be_for_one_method_until_the_reset(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.fail_next(status=500, method="post", path=CLOCK, until="reset")
    catalog.drop_connection(method="DELETE")
    posts = [status_of(catalog, CLOCK, "POST") for _ in range(3)]
    assert (posts, status_of(catalog, CLOCK)) == ([500] * 3, 200)
    catalog.reset()
    assert status_of(catalog, CLOCK, "POST") == 404
    for fault in (catalog.fail_next, catalog.drop_connection, catalog.cut_off, catalog.damage):
        with pytest.raises(WidgetCatalogError, match="number of requests or until, not both"):
            fault(3, until="reset")


def test_a_bundle_can_be_cut_off_or_damaged(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", bundle="export default 1;\n" * 1000)
    path = f"{CLOCK}/1.0.0/bundle.js"
    response, whole = send(catalog, path)
    catalog.cut_off(path=path)
    catalog.damage(path=path)
    with pytest.raises(http.client.IncompleteRead) as cut:
        send(catalog, path)
    assert cut.value.partial == whole[: len(whole) // 2]
    headers = {"If-None-Match": response.headers["ETag"], "Accept-Encoding": "gzip"}
    damaged, body = send(catalog, path, **headers)
    assert (damaged.status, body[:-1], len(body)) == (200, whole[:-1], len(whole))
    assert body != whole
    assert send(catalog, path)[1] == whole


def test_a_damaged_response_is_not_compressed(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/clock", "1.0.0", description="Shows the time. " * 100)
    _, whole = send(catalog, CLOCK)
    catalog.damage()
    _, body = send(catalog, CLOCK, **{"Accept-Encoding": "gzip"})
    assert (body[:-1], body == whole) == (whole[:-1], False)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_delayed_request_holds_up_no_other_and_ends_with_its_test(
    catalog: WidgetCatalog, method: str
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    catalog.delay(0.1)
    started = time.monotonic()
    assert status_of(catalog, CLOCK, method) == 200
    assert time.monotonic() - started >= 0.1
    catalog.delay(600, path=SEARCH)
    # Ends the other delays.
    catalog.delay(0)
    catalog.delay(600, path=CLOCK)
    host, port = catalog.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as delayed:
        delayed.sendall(f"{method} {CLOCK} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while control(catalog, "requests")[1]["waiting"] != [CLOCK]:
            assert total(catalog) == 1
        catalog.reset()
        catalog.publish("acme/clock", "1.0.0")
        # Closed without a response.
        assert delayed.recv(1) == b""
    assert (catalog.installs("acme/clock"), catalog.requests) == (0, [])


def test_forty_delayed_reads_and_installs_hold_up_neither_others_nor_control_requests(
    catalog: WidgetCatalog,
) -> None:
    for name in ("clock", "map"):
        catalog.publish(f"acme/{name}", "1.0.0")
    catalog.delay(600, path=CLOCK)
    host, port = catalog.url.removeprefix("http://").split(":")
    with ExitStack() as stack:
        for method in ("GET", "POST") * 20:
            connection = socket.create_connection((host, int(port)), timeout=30)
            stack.enter_context(closing(connection))
            connection.sendall(f"{method} {CLOCK} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while len(control(catalog, "requests")[1]["waiting"]) < 40:
            pass
        assert status_of(catalog, CLOCK.replace("clock", "map"), "POST") == 200
        assert status_of(catalog, "/docs") == 200
        assert catalog.installs("acme/map") == 1
        assert catalog.installs("acme/clock") == 0


def test_a_server_that_does_not_respond_is_reported_by_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = WidgetCatalog(tmp_path)
    monkeypatch.setattr("pytest_widget_catalog.catalog.CONTROL_TIMEOUT", 0.5)
    os.kill(catalog.pid, signal.SIGSTOP)
    try:
        with pytest.raises(WidgetCatalogError) as raised:
            catalog.clear_requests()
    finally:
        os.kill(catalog.pid, signal.SIGCONT)
    catalog.close()
    message = "widget-catalog did not respond to clear within 0.5 seconds."
    assert str(raised.value) == message


def test_without_a_path_the_delay_of_every_path_ends(catalog: WidgetCatalog) -> None:
    catalog.delay(3600, SEARCH)
    catalog.delay(0)
    assert status_of(catalog, SEARCH) == 200


def test_a_reset_gives_the_start_state_to_clients_that_saw_another(catalog: WidgetCatalog) -> None:
    catalog.publish("acme/map", "1.0.0")
    before = detail(catalog, SEARCH)["widgets"]
    catalog.reset()
    # The next one has the same place in the history, but a cached search is not valid for it.
    catalog.publish("acme/clock", "1.0.0", bundle="1")
    after = detail(catalog, SEARCH)["widgets"]
    assert [each["name"] for each in (*before, *after)] == ["map", "clock"]
    catalog.delete("acme/clock")
    catalog.fail_next()
    catalog.reset()
    assert (total(catalog), len(catalog.requests)) == (0, 1)
    # A version that was deleted could not be published with another bundle.
    catalog.publish("acme/clock", "1.0.0", bundle="2")
    assert detail(catalog)["versions"][0]["publishedAt"] == "2025-01-01T00:00:00.000Z"


def test_failed_attempts_are_forgotten_with_their_test(catalog: WidgetCatalog) -> None:
    unknown = f"Bearer {generate_token()[1]}"

    def status() -> int:
        return send(catalog, "/api/session", Authorization=unknown)[0].status

    for _ in range(2):
        catalog.reset()
        # Without a token there is nothing to guess.
        run_on(catalog.database, "token", "create", "ci", "--can", "admin")
        assert [status() for _ in range(31)] == [401] * 30 + [429]


def test_a_catalog_can_be_made_of_documents_and_of_files(
    catalogs: Catalogs, catalog: WidgetCatalog
) -> None:
    weather = document("acme/weather", version("3.1.0"))
    catalog.publish("acme/weather", "3.1.0")
    with catalogs.serve(start="demo") as other:
        other.delete("acme/weather")
        other.reset()
        assert (total(other), total(catalog)) == (33, 1)
    demo = catalogs.save(start="demo")
    bundles = [*Path(f"{demo}-bundles").glob("?" * 64)]
    assert bundles
    assert all(path.name == hashlib.sha256(path.read_bytes()).hexdigest() for path in bundles)
    sources: list[Any] = [
        [weather, document("acme/map")],
        weather,
        ROOT / "seed" / "demo.jsonl",
        demo,
    ]
    for source in (*sources, catalog.database):
        with catalogs.serve_content(source) as made:
            assert detail(made, "/api/v1/widgets/acme/weather")["latestVersion"] == "3.1.0"
            # Of the copy of a database, it is served by the copy.
            bundle = send(made, "/api/v1/widgets/acme/weather/3.1.0/bundle.js")[1]
            made.delete("acme/weather")
    assert bundle == send(catalog, "/api/v1/widgets/acme/weather/3.1.0/bundle.js")[1]
    assert catalog.installs("acme/weather") == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "line 1: is not valid JSON"),
        (None, "No such file"),
        (b"SQLite format 3\0nonsense", "cannot be restored"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(
    catalogs: Catalogs, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "some-file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WidgetCatalogError, match=message), catalogs.serve_content(path):
        pass


@pytest.mark.parametrize(
    ("action", "body", "status", "error"),
    [
        ("nothing", b"", 404, "There is no action 'nothing'."),
        ("_record", b"{}", 404, "There is no action '_record'."),
        ("fail", b"{", 400, "The body of a control request must be a JSON object."),
        ("fail", b"[1]", 400, "The body of a control request must be a JSON object."),
        ("fail", b"[" * 100_000, 400, "The body of a control request must be a JSON object."),
        ("fail", b'{"status": 200}', 400, "status must be from 400 to 599, not 200."),
        ("fail", b'{"status": true}', 400, "status must be a whole number, not true."),
        ("fail", b'{"count": 1e10}', 400, "count must be a whole number or null, not 1"),
        ("drop", b'{"count": 10000000000}', 400, "count must be from 1 to 1000000, not 1000000"),
        ("cut", b'{"until": "noon"}', 400, "until must be 'reset', not 'noon'."),
        ("fail", b'{"count": 1, "until": "reset"}', 400, "requests or until, not both."),
        ("fail", b'{"path": "api/health"}', 400, "path must begin with /, unlike 'api/health'."),
        ("damage", b'{"path": "/x?y=1"}', 400, "path must not contain a query: use '/x'."),
        ("fail", b'{"path": 5}', 400, "path must be a string or null, not 5."),
        ("fail", b'{"retryAfter": "1\\r\\nX: y"}', 400, "retryAfter must be a number of seconds"),
        ("fail", b'{"code": 503}', 400, "fail accepts the keys count, status, retryAfter, path, "),
        ("cut", b'{"code": 5}', 400, "accepts the keys count, path, method, until, not 'code'."),
        ("clear", b'{"all": 1}', 400, "clear accepts no keys, not 'all'."),
        ("delay", b'{"seconds": 1e400}', 400, "seconds must be from 0 to 86400, not inf."),
        ("delay", b'{"seconds": "1"}', 400, "seconds must be a number, not '1'."),
        ("yank", b"{}", 400, "yank needs the key target."),
        ("yank", b'{"target": "a/b"}', 400, "not of the form scope/name@version; for all releases"),
        ("unlist", b'{"target": "a/b@1.0.0"}', 400, "'a/b@1.0.0' is not of the form scope/name."),
        ("delete", b'{"target": "a/b/c"}', 400, "'a/b/c' is not of the form scope/name."),
        ("delete", b'{"target": "a/b@^1.0.0"}', 400, "There is no widget a/b@^1.0.0."),
        ("reset", b'{"start": "full"}', 400, "start must be 'empty' or 'demo', not 'full'."),
        ("reset", b'{"documents": {}}', 400, "documents must be an array or null, not {}."),
        ("reset", b'{"documents": [{}]}', 400, "documents line 1: must be an object"),
        ("reset", b'{"file": "/nowhere"}', 400, "/nowhere: No such file or directory."),
    ],
)
def test_an_invalid_control_request_says_what_is_wrong(
    catalog: WidgetCatalog, action: str, body: bytes, status: int, error: str
) -> None:
    received, result = control(catalog, action, body)
    assert (received, error in result["error"]) == (status, True), result


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 405),
        ("POST", {"Content-Type": "text/plain"}, 415),
        ("POST", {"Host": "rebound.example:8080"}, 403),
        ("POST", {"Origin": "https://dashboards.example"}, 403),
        ("POST", {"Origin": "null"}, 403),
    ],
)
def test_a_web_page_cannot_send_control_requests(
    catalog: WidgetCatalog, method: str, headers: dict[str, str], status: int
) -> None:
    catalog.publish("acme/clock", "1.0.0")
    sent = {"Content-Type": "application/json", **headers}
    response, body = send(catalog, "/_testing/reset", method, b"{}", **sent)
    assert (response.status, set(json.loads(body))) == (status, {"error"})
    assert "Access-Control-Allow-Origin" not in response.headers
    assert total(catalog) == 1


@pytest.mark.parametrize("host", ["localhost:80", "localhost", "127.0.0.1:1", "[::1]:8080"])
def test_a_control_request_names_the_loopback_interface(catalog: WidgetCatalog, host: str) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert control(catalog, "clear", b"{}", **headers) == (200, {})


def test_control_requests_exist_only_with_testing(server: Server) -> None:
    response, _ = server.request("POST", "/_testing/reset")
    assert response.status == 404


def test_testing_takes_no_sockets_from_systemd(tmp_path: Path) -> None:
    # sh replaces itself by the service, which has its process id.
    shell = 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3< /dev/null'
    result = subprocess.run(
        ["sh", "-c", shell, "sh", *SERVE],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, "does not support sockets" in result.stderr) == (2, True), (
        result.stderr
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("-m catalog serve --testing --host 0.0.0.0", "--host must be 127.0.0.1"),
        ("-m catalog --database x.db serve --testing", "omit --database"),
        ("-m flask serve --testing", "is an option of widget-catalog"),
    ],
)
def test_testing_never_serves_another_catalog_or_another_machine(
    tmp_path: Path, command: str, message: str
) -> None:
    result = run_here(tmp_path / "real.db", *command.split())
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert list(tmp_path.iterdir()) == []


def start(directory: Path, *command: str, **settings: str) -> tuple[subprocess.Popen[bytes], Any]:
    """Start the service with its files in the directory; return its process and first line."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(directory), "PYTHONPATH": str(ROOT), **settings},
    )
    assert process.stdout is not None
    first_line = json.loads(process.stdout.readline())
    assert Path(first_line["database"]).parent.parent == directory
    return process, first_line


@pytest.mark.parametrize("line", ['"$@" < /dev/null & wait', '"$@"; true'])
def test_the_service_ends_with_its_parent_and_leaves_no_file(tmp_path: Path, line: str) -> None:
    shell, service = start(tmp_path, "sh", "-c", line, "sh", *SERVE)
    with shell:
        assert shell.stdin is not None
        shell.stdin.close()
        if "&" in line:
            # Otherwise it is a launcher, which stays until the service has noticed the closed pipe.
            shell.kill()
        wait_for_end(service["pid"])
        assert shell.stderr is not None
        assert shell.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


def test_standard_output_is_one_line_and_the_access_log_is_on_standard_error(
    tmp_path: Path,
) -> None:
    settings = {"CATALOG_DATABASE": "/nowhere", "CATALOG_PORT": "none"}
    process, service = start(tmp_path, *SERVE, "--demo", **settings)
    with closing(http.client.HTTPConnection(service["url"].removeprefix("http://"))) as connection:
        connection.request("GET", "/api/stats")
        assert json.load(connection.getresponse())["widgets"] == 33
    process.send_signal(signal.SIGTERM)
    # communicate() closes standard input, which ends the service before it has stopped.
    assert process.wait(30) == 0
    output, errors = process.communicate()
    assert output == b""
    assert b" GET /api/stats 200 " in errors
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_the_tests_does_not_reach_the_service(catalog: WidgetCatalog) -> None:
    assert os.getpgid(catalog.pid) != os.getpgid(0)


def test_after_the_service_was_killed_the_next_use_says_so_and_the_next_test_has_another(
    tmp_path: Path,
) -> None:
    catalogs = Catalogs(tmp_path)
    with catalogs.serve(start="empty") as first:
        os.kill(first.pid, signal.SIGKILL)
        wait_for_end(first.pid)
        with pytest.raises(WidgetCatalogError, match="widget-catalog was killed by signal 9"):
            first.installs("acme/clock")
    with catalogs.serve(start="empty") as second:
        assert (second.pid == first.pid, total(second)) == (False, 0)
        # A service that was killed leaves its files there too.
        assert tmp_path in second.database.parents
    catalogs.close()
