"""Commands in a CI job without a secret: they find its id token and exchange it."""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders import document, version
from click.testing import CliRunner, Result
from conftest import run_line
from flask import Flask
from issuers import CLAIMS, Actions, Issuer
from mirrors import AppServer, serve
from publishers import create_token

from catalog.__main__ import cli

AppWith = Callable[..., Flask]
YANK = "yank acme/clock@1.0.0"
SESSION = "/api/session"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


@pytest.fixture
def server(
    app_with: AppWith, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AppServer]:
    """A service that trusts the jobs of acme/clock, in the environment of a job."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("URL", "TOKEN"):
        monkeypatch.delenv(f"ACTIONS_ID_TOKEN_REQUEST_{name}", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    app = app_with(document("acme/clock", version("1.0.0"), version("1.1.0")))
    with serve(app) as running:
        app.config["PUBLIC_URL"] = running.url
        line = f"trust add ci --issuer {issuer.url} --claim repository=acme/clock"
        assert run_line(app, f"{line} --scope acme --can publish,yank").exit_code == 0
        yield running


def run(server: AppServer, line: str) -> Result:
    return CliRunner().invoke(cli, [*line.split(), "--server", server.url])


def exchanges(server: AppServer) -> list[int]:
    """Return the statuses of the exchanges of id tokens."""
    sent = [each for each in server.responses if each[0] == SESSION]
    return [status for _, status in sent]


def test_a_job_with_one_id_token_runs_several_commands(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url))
    for line in (YANK, "yank acme/clock@1.1.0", "unyank acme/clock@1.0.0"):
        result = run(server, line)
        assert result.exit_code == 0, result.stderr
    assert exchanges(server) == [200]
    file = tmp_path / "config" / "widget-catalog" / "short-tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert issuer.sign() not in file.read_text()


def test_another_id_token_is_exchanged_and_expired_tokens_are_forgotten(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "widget-catalog" / "short-tokens.json"
    for _ in range(2):
        monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url))
        assert run(server, YANK).exit_code == 0
    stored = json.loads(file.read_text())
    assert len(stored) == 2
    for token in stored.values():
        token["expiresAt"] = "2026-01-01T00:00:00.000Z"
    file.write_text(json.dumps(stored))
    monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url))
    assert run(server, YANK).exit_code == 0
    assert len(json.loads(file.read_text())) == 1


def test_a_job_that_cannot_store_its_token_says_so(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config" / "widget-catalog" / "short-tokens.json").mkdir(parents=True)
    monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url))
    result = run(server, YANK)
    assert result.exit_code == 0
    assert "Cannot store the token of this job in" in result.stderr


def test_a_token_takes_precedence_over_an_identity(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url))
    monkeypatch.setenv("CATALOG_TOKEN", create_token(server.app, "secret"))
    assert run(server, "whoami").stdout.splitlines()[0].split() == ["token:", "secret"]


def test_whoami_shows_the_trust_and_the_claims(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_ID_TOKEN", issuer.sign(aud=server.url, actor="al\x1bice"))
    lines = dict(line.split(":", 1) for line in run(server, "whoami").stdout.splitlines())
    assert lines["trust"].strip() == "ci"
    assert lines["claim repository"].strip() == "'acme/clock'"
    assert lines["claim sub"].strip() == f"'{CLAIMS['sub']}'"
    assert "\x1b" not in lines["claim actor"]
    shown = json.loads(run(server, "whoami --json").stdout)
    assert (shown["trust"], shown["claims"]["repository"]) == ("ci", "acme/clock")


def test_a_refused_job_learns_which_claim_differs(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_token = issuer.sign(aud=server.url, repository="acme/fork")
    monkeypatch.setenv("CATALOG_ID_TOKEN", id_token)
    result = run(server, YANK)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: The id token does not match the trust ci: repository is 'acme/fork', not "
        "'acme/clock'.\n"
    )


@pytest.fixture
def actions(
    server: AppServer, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Actions]:
    running = Actions(issuer)
    for name, value in running.variables.items():
        monkeypatch.setenv(name, value)
    yield running
    running.close()


def test_a_job_of_actions_requests_an_id_token_for_the_url_of_the_service(
    server: AppServer, actions: Actions, tmp_path: Path
) -> None:
    for _ in range(2):
        assert run(server, YANK).exit_code == 0
    quoted = server.url.replace(":", "%3A").replace("/", "%2F")
    target = f"/token?api-version=2&audience={quoted}"
    assert actions.requests == [(target, "Bearer runner secret")] * 2
    assert exchanges(server) == [200, 200]
    assert not (tmp_path / "config" / "widget-catalog" / "short-tokens.json").exists()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, b"", "responded 500."),
        (200, b"x", "sent no id token."),
        (200, b'{"value": 7}', "sent no id token."),
        (200, b"[]", "sent no id token."),
    ],
)
def test_a_failed_request_for_an_id_token_is_explained(
    server: AppServer, actions: Actions, status: int, body: bytes, message: str
) -> None:
    actions.status, actions.body = status, body
    result = run(server, YANK)
    assert result.exit_code == 1
    url = actions.url.partition("?")[0]
    assert result.stderr == (f"Error: Cannot request an id token for this job: {url} {message}\n")


def test_a_job_without_the_permission_is_told_about_it(
    server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "see id-token in its permissions." in run(server, YANK).stderr
