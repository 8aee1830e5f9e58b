"""mirror, outdated --server and health trust a private authority with --ca or SSL_CERT_FILE."""

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

# A command for the URL of a service, and how it begins the message of an error.
COMMANDS: dict[str, tuple[Callable[..., Result], str]] = {
    "mirror": (lambda app, url, *options: run(app, "mirror", url, *options), "cannot be mirrored"),
    "outdated": (
        lambda app, url, *options: run(
            app, "outdated", "-", "--sdk=1.0", "--server", url, *options, stdin="a/b@1.0.0"
        ),
        "cannot be reached",
    ),
    "health": (
        lambda app, url, *options: run(app, "health", url, *options),
        "cannot be reached",
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
        f"Error: {upstream.url} {failure}: its certificate is not valid: self-signed certificate; "
        "--ca is for a private authority.\n",
    )
    assert command(mirror_app, upstream.url, "--ca", str(certificate)).exit_code == 0
    empty = certificate.with_name("empty.pem")
    empty.touch()
    result = command(mirror_app, upstream.url, "--ca", str(empty))
    assert result.exit_code == 2
    assert f"{empty} is not a PEM file of certificates.\n" in result.stderr
    for variable in ("SSL_CERT_FILE", "CATALOG_CA"):
        with monkeypatch.context() as environment:
            environment.setenv(variable, str(certificate))
            assert command(mirror_app, upstream.url).exit_code == 0
    monkeypatch.setenv("CATALOG_CA", "/none.pem")
    result = command(mirror_app, upstream.url)
    assert result.exit_code == 1
    assert result.stderr.endswith("/none.pem is not a PEM file of certificates.\n")


def test_the_common_name_of_a_certificate_does_not_count(
    mirror_app: Flask, upstream: FakeUpstream, certificate: Path
) -> None:
    url = upstream.url.replace("127.0.0.1", "localhost")
    result = run(mirror_app, "health", url, "--ca", certificate)
    assert (result.exit_code, "not valid for 'localhost'" in result.stderr) == (1, True)


def test_authority_of_a_service_needs_the_service(mirror_app: Flask, certificate: Path) -> None:
    result = run(mirror_app, "list", "--ca", certificate)
    assert (result.exit_code, "--ca is for --server." in result.stderr) == (2, True)


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
        f"Error: {upstream.url} cannot be mirrored: {certificate} is not a PEM file of "
        "certificates.\n"
    )


def test_file_may_be_named_before_the_command(
    mirror_app: Flask, upstream: FakeUpstream, certificate: Path
) -> None:
    database = str(mirror_app.config["DATABASE"])
    options = ["--database", database, "--ca", str(certificate), "mirror", upstream.url]
    assert CliRunner().invoke(cli, options).exit_code == 0
    assert f"--ca {certificate} " in run(mirror_app, "mirror", "status").stdout
