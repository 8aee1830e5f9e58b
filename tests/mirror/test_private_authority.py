"""mirror, outdated, login and health trust a private authority with --ca or SSL_CERT_FILE."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import document
from click.testing import CliRunner, Result
from conftest import run
from flask import Flask
from mirrors import exported
from upstreams import FakeUpstream, body

from catalog.__main__ import cli
from catalog.domain.token_text import generate_token

# A command for the URL of a service, and how it begins the message of an error.
COMMANDS: dict[str, tuple[Callable[..., Result], str]] = {
    "mirror": (
        lambda app, url, *options: run(app, "mirror", url, *options),
        "Cannot mirror {}: it cannot be reached",
    ),
    "outdated": (
        lambda app, url, *options: run(
            app, "outdated", "-", "--sdk=1.0", "--server", url, *options, stdin="a/b@1.0.0"
        ),
        "{} cannot be reached",
    ),
    "health": (
        lambda app, url, *options: run(app, "health", url, *options),
        "{} cannot be reached",
    ),
}


@pytest.fixture
def certificate(upstream: FakeUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate of the upstream, which nothing trusts yet."""
    upstream.encrypt(tmp_path, monkeypatch)
    monkeypatch.delenv("SSL_CERT_FILE")
    upstream.put(document("acme/clock"))
    upstream.fail("/api/health", *[body(b'{"status": "ok"}')] * 3)
    upstream.fail("/api/v1/widgets/updates", *[body(b'{"updates": []}')] * 3)
    return tmp_path / "certificate.pem"


@pytest.mark.parametrize(("command", "failure"), COMMANDS.values(), ids=COMMANDS)
def test_certificate_is_refused_until_it_is_trusted(
    mirror_app: Flask,
    upstream: FakeUpstream,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., Result],
    failure: str,
) -> None:
    result = command(mirror_app, upstream.url)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {failure.format(upstream.url)}: its certificate is not valid: self-signed "
        "certificate; use --ca for a private certificate authority.\n",
    )
    assert command(mirror_app, upstream.url, "--ca", str(certificate)).exit_code == 0
    empty = certificate.with_name("empty.pem")
    empty.touch()
    result = command(mirror_app, upstream.url, "--ca", str(empty))
    assert result.exit_code == 2
    assert f"{empty} is not a PEM file with certificates.\n" in result.stderr
    for variable in ("SSL_CERT_FILE", "CATALOG_CA"):
        with monkeypatch.context() as environment:
            environment.setenv(variable, str(certificate))
            assert command(mirror_app, upstream.url).exit_code == 0
    monkeypatch.setenv("CATALOG_CA", "/none.pem")
    result = command(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert result.stderr.endswith("/none.pem is not a PEM file with certificates.\n")


@pytest.mark.parametrize(("command", "failure"), COMMANDS.values(), ids=COMMANDS)
def test_certificate_of_another_host_is_refused(
    mirror_app: Flask,
    upstream: FakeUpstream,
    certificate: Path,
    command: Callable[..., Result],
    failure: str,
) -> None:
    # It has this name too, but only as the common name, which does not count.
    url = upstream.url.replace("127.0.0.1", "localhost")
    result = command(mirror_app, url, "--ca", str(certificate))
    assert result.exit_code == 1
    assert (
        f"{failure.format(url)}: its certificate is not valid: Hostname mismatch" in result.stderr
    )
    assert upstream.requests == []


def test_authority_of_a_service_needs_the_service(mirror_app: Flask, certificate: Path) -> None:
    result = run(mirror_app, "list", "--ca", certificate)
    assert (result.exit_code, "--ca requires --server." in result.stderr) == (2, True)


def test_mirror_remembers_the_file(
    mirror_app: Flask, upstream: FakeUpstream, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(certificate.parent)
    assert run(mirror_app, "mirror", upstream.url, "--ca", certificate.name).exit_code == 0
    monkeypatch.chdir("/")
    upstream.put(document("acme/new"))
    assert run(mirror_app, "mirror").exit_code == 0
    assert list(exported(mirror_app)) == ["acme/clock", "acme/new"]
    assert f"--ca {certificate} " in run(mirror_app, "mirror", "status").stdout
    certificate.unlink()
    assert run(mirror_app, "mirror").stderr == (
        f"Error: Cannot mirror {upstream.url}: {certificate} is not a PEM file with certificates.\n"
    )


def test_login_remembers_the_file_of_the_variable(
    mirror_app: Flask, upstream: FakeUpstream, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = {"token": "ci", "scopes": [], "permissions": ["admin"], "expiresAt": None}
    upstream.fail("/api/session", *[body(json.dumps(session).encode())] * 2)
    upstream.fail("/api/widgets/cli-version", *[body(b'{"minimumVersion": "1.0.0"}')] * 2)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(certificate.parent))
    monkeypatch.chdir(certificate.parent)
    server = ("--server", upstream.url)
    with monkeypatch.context() as environment:
        environment.setenv("CATALOG_CA", certificate.name)
        assert run(mirror_app, "login", *server, stdin=generate_token()[1]).exit_code == 0
    monkeypatch.chdir("/")
    assert run(mirror_app, "whoami", *server).exit_code == 0


def test_file_may_be_named_before_the_command(
    mirror_app: Flask, upstream: FakeUpstream, certificate: Path
) -> None:
    database = str(mirror_app.config["DATABASE"])
    options = ["--database", database, "--ca", str(certificate), "mirror", upstream.url]
    assert CliRunner().invoke(cli, options).exit_code == 0
    assert f"--ca {certificate} " in run(mirror_app, "mirror", "status").stdout
