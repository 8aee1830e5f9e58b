"""flask mirror --bundles: bundles are brought once, checked, gone on with, and served from here."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document, version
from click.testing import Result
from flask import Flask
from flask.testing import FlaskClient
from upstreams import FakeUpstream, Fault, Handler, body, cut, endless, redirect, status

from app import create_app
from catalog.store import mirror_writes

CONTENT = b"export default () => 'tick';\n" * 100
OTHER = b"export default () => 'tock';\n"
BUNDLE = "/bundles/1.0.0.js"
OWN = "/api/v1/widgets/acme/clock/1.0.0/bundle.js"


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.mirror.upstream.BACKOFF", 0)


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    """One widget with two versions, each with a bundle."""
    made = FakeUpstream()
    made.put(
        document("acme/clock", made.with_bundle("1.0.0", CONTENT), made.with_bundle("2.0.0", OTHER))
    )
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Flask]:
    made = create_app({"DATABASE": tmp_path / "mirror.db", "BUNDLES": str(tmp_path / "bundles")})
    yield made
    made.extensions["database"].close()


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    return app.test_client()


def mirror(app: Flask, upstream: FakeUpstream, *options: str) -> Result:
    return app.test_cli_runner().invoke(args=["mirror", upstream.url, "--bundles", *options])


def said(app: Flask, upstream: FakeUpstream) -> str:
    """What is said of the bundles by a run that goes well."""
    result = mirror(app, upstream)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    return result.stderr.splitlines()[-1]


def urls(client: FlaskClient, path: str = "acme/clock") -> dict[str, str]:
    """Where each version of a widget is loaded."""
    found = client.get(f"/api/v1/widgets/{path}").json["versions"]
    return {each["version"]: each["bundleUrl"] for each in found}


def served(client: FlaskClient, path: str = OWN) -> bytes | None:
    """The bundle at a path of ours; None where there is none."""
    with closing(client.get(path)) as answer:
        return answer.data if answer.status_code == 200 else None


def files(app: Flask) -> list[bytes]:
    """All that the directory of bundles holds."""
    return sorted(path.read_bytes() for path in Path(app.config["BUNDLES"]).iterdir())


def test_bundles_are_held_and_served_and_offered_from_here(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    assert said(app, upstream) == "Bundles: 2 fetched, 0 here already, 0 failed."
    assert files(app) == sorted([CONTENT, OTHER])
    assert urls(client)["1.0.0"] == f"http://localhost{OWN}"
    assert served(client) == CONTENT


def test_bundles_are_served_with_the_upstream_gone(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    upstream.server.socket.close()
    assert served(client) == CONTENT


def test_without_the_option_no_bundle_is_asked_for(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    app.test_cli_runner().invoke(args=["mirror", upstream.url])
    assert urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert BUNDLE not in upstream.paths()
    assert not Path(app.config["BUNDLES"]).exists()


def test_refresh_brings_only_what_is_new(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    upstream.requests.clear()
    assert said(app, upstream) == "Bundles: 0 fetched, 2 here already, 0 failed."
    upstream.documents["acme/clock"]["versions"].append(upstream.with_bundle("3.0.0", b"new"))
    assert said(app, upstream) == "Bundles: 1 fetched, 2 here already, 0 failed."
    assert [path for path in upstream.paths() if "bundles" in path] == ["/bundles/3.0.0.js"]


def test_equal_bundles_are_brought_once(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    upstream.put(document("acme/copy", upstream.with_bundle("9.0.0", CONTENT)))
    assert said(app, upstream) == "Bundles: 2 fetched, 0 here already, 0 failed."
    assert files(app) == sorted([CONTENT, OTHER])
    assert served(client, urls(client, "acme/copy")["9.0.0"]) == CONTENT


def begin_wrong(handler: Handler) -> None:
    """Gives the beginning of other bytes, and breaks off."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    handler.wfile.write(b"!" * 100)
    handler.close_connection = True


@pytest.mark.parametrize(
    "fault", [status(403), begin_wrong, body(b"!" * len(CONTENT))], ids=["403", "begun", "wrong"]
)
def test_equal_bundle_is_taken_from_whichever_address_has_it(
    app: Flask, client: FlaskClient, upstream: FakeUpstream, fault: Fault
) -> None:
    upstream.put(document("acme/copy", upstream.with_bundle("9.0.0", CONTENT)))
    upstream.fail(BUNDLE, *[fault] * 5)
    assert said(app, upstream) == "Bundles: 2 fetched, 0 here already, 0 failed."
    assert served(client) == CONTENT


def test_wrong_size_at_the_same_address_hinders_no_other_version(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    lying = upstream.with_bundle("1.0.0", CONTENT, bundleSize=5)
    upstream.put(document("acme/alarm", lying))
    upstream.put(document("acme/zeta", lying))
    assert mirror(app, upstream).stderr.count("stays at") == 2
    assert served(client) == CONTENT


WRONG = {
    "other bytes": (body(CONTENT.replace(b"i", b"o")), "its SHA-256 is "),
    "too few": (body(CONTENT[:-1]), f"it has {len(CONTENT) - 1} bytes, not {len(CONTENT)}"),
    "too many": (body(CONTENT + b"!"), f"the response is larger than {len(CONTENT)} bytes"),
    "endless": (endless(), f"the response is larger than {len(CONTENT)} bytes"),
    "404": (status(404), "the response status is 404, not 200"),
    "500": (status(500), "sends too many 500 error responses"),
    "file": (redirect("file:///etc/passwd"), "'file:///etc/passwd' is not an absolute http"),
    "cut": (cut(0), "closes the connection before its response is complete"),
}


@pytest.mark.parametrize(("fault", "why"), WRONG.values(), ids=WRONG)
def test_wrong_bundle_is_refused_and_named_and_stays_where_it_was(
    app: Flask, client: FlaskClient, upstream: FakeUpstream, fault: Fault, why: str
) -> None:
    upstream.fail(BUNDLE, *[fault] * 5)
    result = mirror(app, upstream)
    _, named, summary, error = result.stderr.splitlines()
    assert named.startswith(f"acme/clock@1.0.0: stays at {upstream.url}{BUNDLE}: ")
    assert why in named
    assert summary == "Bundles: 1 fetched, 0 here already, 1 failed."
    assert (result.exit_code, error) == (1, "Error: 1 bundle failed; the rest is done.")
    assert urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert urls(client)["2.0.0"].startswith("http://localhost/")
    assert served(client) is None
    upstream.faults.clear()
    for _ in range(2):  # what came of the wrong one is found wrong, then all is brought anew
        mirror(app, upstream)
    assert served(client) == CONTENT


def test_wrong_size_is_refused_though_the_bytes_are_right(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    lying = upstream.with_bundle("9.0.0", CONTENT, bundleSize=5)
    upstream.put(document("acme/zeta", lying))
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "acme/zeta@9.0.0: stays at " in result.stderr
    assert urls(client, "acme/zeta")["9.0.0"] == f"{upstream.url}/bundles/9.0.0.js"
    assert served(client) == CONTENT


def test_download_goes_on_in_the_next_run(app: Flask, upstream: FakeUpstream) -> None:
    upstream.fail(BUNDLE, cut(1000), *[cut(0)] * 3)
    assert mirror(app, upstream).exit_code == 1
    upstream.requests.clear()
    assert said(app, upstream) == "Bundles: 1 fetched, 1 here already, 0 failed."
    assert upstream.asked(BUNDLE)[0]["Range"] == "bytes=1000-"
    assert files(app) == sorted([CONTENT, OTHER])


def test_download_begins_anew_where_what_an_earlier_run_left_is_wrong(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    upstream.fail(BUNDLE, cut(100), status(403))
    assert mirror(app, upstream).exit_code == 1
    (left,) = Path(app.config["BUNDLES"]).glob("*.partial")
    left.write_bytes(bytes(100))  # as after a loss of power
    assert said(app, upstream) == "Bundles: 1 fetched, 1 here already, 0 failed."
    assert served(client) == CONTENT


def test_bundle_that_was_lost_here_is_brought_again(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    for file in Path(app.config["BUNDLES"]).iterdir():
        file.unlink()
    assert said(app, upstream) == "Bundles: 2 fetched, 0 here already, 0 failed."
    assert served(client) == CONTENT


def test_bundle_that_was_lost_on_both_sides_is_no_longer_offered_from_here(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    for file in Path(app.config["BUNDLES"]).iterdir():
        file.unlink()
    del upstream.bundles[BUNDLE]
    assert mirror(app, upstream).exit_code == 1
    assert urls(client)["1.0.0"] == upstream.url + BUNDLE
    assert urls(client)["2.0.0"].startswith("http://localhost/")


def test_other_bytes_for_a_version_are_brought_anew(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"rebuilt")))
    app.test_cli_runner().invoke(args=["mirror", upstream.url])
    assert urls(client) == {"1.0.0": upstream.url + BUNDLE}
    assert said(app, upstream) == "Bundles: 1 fetched, 0 here already, 0 failed."
    assert served(client) == b"rebuilt"


def test_empty_bundle_is_a_bundle(app: Flask, client: FlaskClient, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"")))
    assert said(app, upstream) == "Bundles: 1 fetched, 0 here already, 0 failed."
    assert served(client) == b""


def test_bundle_too_large_to_take_is_not_asked_for(app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"x", bundleSize=2**40)))
    result = mirror(app, upstream)
    assert f"{2**40} bytes, more than 536870912" in result.stderr
    assert BUNDLE not in upstream.paths()


def test_address_of_a_bundle_never_names_a_file_here(app: Flask, upstream: FakeUpstream) -> None:
    sly = upstream.with_bundle("9.0.0", OTHER)
    upstream.bundles["/bundles/../../../etc/x"] = upstream.bundles["/etc/x"] = OTHER
    sly["bundleUrl"] = f"{upstream.url}/bundles/../../../etc/x"
    upstream.put(document("acme/sly", sly))
    said(app, upstream)
    names = [path.name for path in Path(app.config["BUNDLES"]).iterdir()]
    assert len(names) == 2
    assert all(len(name) == 64 and set(name) <= set("0123456789abcdef") for name in names)


def test_bundles_are_for_their_owner_alone(app: Flask, upstream: FakeUpstream) -> None:
    before = os.umask(0)
    try:
        upstream.fail(BUNDLE, *[cut(10)] * 4)
        mirror(app, upstream)
    finally:
        os.umask(before)
    directory = Path(app.config["BUNDLES"])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert (modes, stat.S_IMODE(directory.stat().st_mode)) == ({0o600}, 0o700)


def test_refresh_of_bundles_that_are_all_here_writes_nothing(
    app: Flask, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    path = Path(f"{app.config['DATABASE']}-wal")
    before = path.read_bytes()
    said(app, upstream)
    assert path.read_bytes() == before


def test_bundle_that_is_here_but_not_offered_is_offered_without_being_asked_for(
    app: Flask, client: FlaskClient, upstream: FakeUpstream
) -> None:
    said(app, upstream)
    hashes = app.extensions["bundles"].hashes()
    app.extensions["database"].write(mirror_writes.release_bundles(hashes))  # as a kill leaves it
    upstream.requests.clear()
    assert said(app, upstream) == "Bundles: 0 fetched, 2 here already, 0 failed."
    assert served(client, urls(client)["1.0.0"]) == CONTENT
    assert BUNDLE not in upstream.paths()


def test_scope_limits_the_bundles_too(app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("lab/tide", upstream.with_bundle("9.0.0", b"tide")))
    app.test_cli_runner().invoke(args=["mirror", upstream.url])
    result = mirror(app, upstream, "--scope", "lab")
    assert result.stderr.splitlines()[-1] == "Bundles: 1 fetched, 0 here already, 0 failed."
    assert files(app) == [b"tide"]


def test_bundles_of_what_is_unlisted_are_left_where_they_are(
    app: Flask, upstream: FakeUpstream
) -> None:
    upstream.put(document("lab/tide", upstream.with_bundle("9.0.0", b"tide")))
    app.test_cli_runner().invoke(args=["mirror", upstream.url])
    del upstream.documents["acme/clock"]
    mirror(app, upstream, "--prune")
    assert files(app) == [b"tide"]


def test_dry_run_counts_the_bundles_and_brings_none(app: Flask, upstream: FakeUpstream) -> None:
    said(app, upstream)
    upstream.documents["acme/clock"]["versions"].append(upstream.with_bundle("3.0.0", b"new"))
    upstream.requests.clear()
    result = mirror(app, upstream, "--dry-run")
    assert result.stderr.splitlines()[-1] == "Bundles: 1 to fetch, 2 here already, 0 failed."
    assert files(app) == sorted([CONTENT, OTHER])
    assert not any("bundles" in path for path in upstream.paths())


def test_bundle_of_an_unreachable_host_is_a_sentence(app: Flask, upstream: FakeUpstream) -> None:
    upstream.put(document("acme/clock", version(bundleUrl="http://127.0.0.1:1/x.js")))
    result = mirror(app, upstream)
    assert result.exit_code == 1
    assert "stays at http://127.0.0.1:1/x.js: 127.0.0.1:1 cannot be reached." in result.stderr
