"""widget-catalog mirror: the password of an upstream comes from the netrc file."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from builders import document
from flask import Flask
from mirrors import bundle_summary, exported, mirror_summary, run_mirror
from upstreams import FakeUpstream, body, redirect, status

CLOCK = "/api/v1/widgets/acme/clock"
PASSWORD = "tick#and-tock"  # noqa: S105
BASIC = "Basic " + b64encode(f"anna:{PASSWORD}".encode()).decode()
ENTRY = f"machine 127.0.0.1 login anna password {PASSWORD}\n"

WriteNetrc = Callable[..., Path]


@pytest.fixture
def write_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteNetrc:
    """Return a function that writes the netrc file, which NETRC names."""

    def write(content: str, mode: int = 0o600) -> Path:
        path = tmp_path / "passwords"
        path.write_text(content, encoding="utf-8")
        path.chmod(mode)
        monkeypatch.setenv("NETRC", str(path))
        return path

    return write


@pytest.fixture(autouse=True)
def clock(upstream: FakeUpstream) -> None:
    """Let the upstream have a widget with a bundle, and ask everybody for the password."""
    upstream.put(document("acme/clock", upstream.with_bundle("1.0.0", b"tick")))
    upstream.authorization = BASIC


@pytest.fixture
def other() -> Iterator[FakeUpstream]:
    with closing(FakeUpstream(document("acme/clock", icon="elsewhere"))) as running:
        yield running


def authorizations(upstream: FakeUpstream) -> set[str | None]:
    """Return the different values of Authorization in the requests."""
    return {headers.get("Authorization") for _, headers in upstream.requests}


def failure(app: Flask, url: str) -> str:
    """Run a mirror that fails and makes no catalog, and return its output."""
    result = run_mirror(app, url)
    assert (result.exit_code, Path(app.config["DATABASE"]).exists()) == (1, False)
    return result.stderr


@pytest.mark.parametrize(
    ("content", "authorization"),
    [
        (ENTRY, BASIC),
        (f"machine a.example login a password b\n{ENTRY}default login x password y\n", BASIC),
        (f"default login anna password {PASSWORD}\n", BASIC),
        (f"machine 127.0.0.1\n  login anna\n  account x\n  password {PASSWORD}\n", BASIC),
        ("machine 127.0.0.1 login bearer password a.b-c\n", "Bearer a.b-c"),
    ],
    ids=["machine", "default and others", "default only", "account", "bearer"],
)
def test_lists_widgets_and_bundles_are_read_with_the_entry_of_the_host(
    mirror_app: Flask,
    upstream: FakeUpstream,
    write_netrc: WriteNetrc,
    content: str,
    authorization: str,
) -> None:
    write_netrc(content)
    upstream.authorization = authorization
    assert bundle_summary(mirror_app, upstream.url).startswith("1 fetched, ")
    assert authorizations(upstream) == {authorization}


def test_a_private_authority_and_a_password_work_together(
    mirror_app: Flask,
    upstream: FakeUpstream,
    write_netrc: WriteNetrc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream.encrypt(tmp_path, monkeypatch)
    monkeypatch.delenv("SSL_CERT_FILE")
    write_netrc(ENTRY)
    assert "its certificate is not valid" in failure(mirror_app, upstream.url)
    assert upstream.requests == []
    authority = str(tmp_path / "certificate.pem")
    assert mirror_summary(mirror_app, upstream.url, "--ca", authority).startswith("1 added, ")
    assert authorizations(upstream) == {BASIC}


def test_the_file_in_the_home_directory_is_used_unless_another_one_is_named(
    mirror_app: Flask,
    upstream: FakeUpstream,
    write_netrc: WriteNetrc,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC")
    message = (
        f"Error: Cannot mirror {upstream.url}: it asks for a user name and password (401); add "
        f"them to {tmp_path}/.netrc: machine 127.0.0.1 login USER password PASSWORD.\n"
    )
    assert failure(mirror_app, upstream.url) == message
    write_netrc(ENTRY).rename(tmp_path / ".netrc")
    monkeypatch.delenv("NETRC")
    assert mirror_summary(mirror_app, upstream.url).startswith("1 added, ")
    write_netrc("machine a.example login a password b\n")
    assert run_mirror(mirror_app, upstream.url).exit_code == 1


def test_a_password_is_not_sent_over_http_to_another_machine(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc
) -> None:
    # Linux connects to this machine, but the address is not one of the loopback interface.
    path = write_netrc(ENTRY.replace("127.0.0.1", "0.0.0.0"))  # noqa: S104
    url = f"http://0.0.0.0:{upstream.port}"
    assert failure(mirror_app, url) == (
        f"Error: Cannot mirror {url}: it responded 401; the password in {path} is sent only over "
        "https.\n"
    )
    assert authorizations(upstream) == {None}


def test_another_origin_gets_no_password_and_cannot_redirect_it_back(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream, write_netrc: WriteNetrc
) -> None:
    # The hosts are the same, but not the ports.
    write_netrc(ENTRY)
    upstream.fail(CLOCK, redirect(f"{other.url}/there"))
    other.fail("/there", redirect(f"{upstream.url}/back"))
    message = run_mirror(mirror_app, upstream.url).stderr
    assert "acme/clock: it responded 401.\n" in message
    assert authorizations(other) == {None}
    assert [each.get("Authorization") for each in upstream.request_headers("/back")] == [None]


def test_a_redirect_within_the_origin_keeps_the_password(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc
) -> None:
    write_netrc(ENTRY)
    upstream.fail(CLOCK, redirect("/moved"))
    upstream.fail("/moved", body(json.dumps(upstream.documents["acme/clock"]).encode()))
    assert mirror_summary(mirror_app, upstream.url).startswith("1 added, ")
    assert upstream.request_headers("/moved")[0]["Authorization"] == BASIC


def test_a_bundle_at_another_origin_is_requested_without_the_password(
    mirror_app: Flask, upstream: FakeUpstream, other: FakeUpstream, write_netrc: WriteNetrc
) -> None:
    write_netrc(ENTRY)
    upstream.put(document("acme/clock", other.with_bundle("1.0.0", b"tick")))
    assert bundle_summary(mirror_app, upstream.url).startswith("1 fetched, ")
    assert (other.paths(), authorizations(other)) == (["/bundles/1.0.0.js"], {None})


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_file_that_others_can_read_gets_a_warning(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc, mode: int
) -> None:
    path = write_netrc(ENTRY, mode)
    warning = f"Warning: other users can read {path}; make it private: chmod 600 {path}\n"
    result = run_mirror(mirror_app, upstream.url)
    assert (result.exit_code, result.stderr.startswith(warning)) == (0, True)
    path.chmod(0o600)
    assert "Warning" not in run_mirror(mirror_app, upstream.url).stderr


@pytest.mark.parametrize("code", [401, 403])
def test_refused_credentials_name_the_file(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc, code: int
) -> None:
    path = write_netrc(ENTRY)
    upstream.fail("/api/v1/widgets/changes", status(code))
    upstream.fail("/api/v1/widgets/search", status(code))
    assert failure(mirror_app, upstream.url) == (
        f"Error: Cannot mirror {upstream.url}: it refused the user name and password in {path} "
        f"({code}).\n"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"machine\n{PASSWORD} x {PASSWORD}", "{} is not a valid netrc file"),
        (f"{PASSWORD}\n", "{} is not a valid netrc file"),
        (
            'machine 127.0.0.1 login bearer password "a\nX-Header: b"',
            "the token for 127.0.0.1 in {} is not printable ASCII",
        ),
    ],
)
def test_an_invalid_file_is_an_error_that_does_not_quote_it(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc, content: str, reason: str
) -> None:
    path = write_netrc(content)
    expected = f"Error: Cannot mirror {upstream.url}: {reason.format(path)}.\n"
    assert failure(mirror_app, upstream.url) == expected
    assert upstream.requests == []


def test_a_named_file_that_is_missing_is_an_error(
    mirror_app: Flask, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    assert failure(mirror_app, upstream.url) == (
        f"Error: Cannot mirror {upstream.url}: NETRC names {tmp_path}/none: No such file or "
        "directory.\n"
    )


def test_the_password_is_neither_stored_nor_printed(
    mirror_app: Flask, upstream: FakeUpstream, write_netrc: WriteNetrc, tmp_path: Path
) -> None:
    write_netrc(ENTRY)
    upstream.fail(CLOCK, status(403))
    results = [run_mirror(mirror_app, upstream.url), run_mirror(mirror_app, upstream.url)]
    results.append(mirror_app.test_cli_runner().invoke(args=["mirror", "status", "--json"]))
    assert list(exported(mirror_app)) == ["acme/clock"]
    mirror_app.extensions["database"].close()
    files = [path for path in tmp_path.iterdir() if path.is_file() and path.name != "passwords"]
    assert any(b"acme" in file.read_bytes() for file in files)
    encoded = BASIC.partition(" ")[2]
    for secret in (PASSWORD, encoded, "anna"):
        assert not any(secret in each.output for each in results)
        assert not any(secret.encode() in file.read_bytes() for file in files)
