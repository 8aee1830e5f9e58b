"""widget-catalog trust: adds, lists and removes the CI systems whose jobs publish."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, run, run_line, run_on
from flask import Flask

AppWith = Callable[..., Flask]
ISSUER = "https://ci.example"
PATTERNS = "only ref, ref_path, environment may end in *"
SAFE = f"--issuer {ISSUER} --claim sub=x --scope a"
ADD = f"trust add ci --issuer {ISSUER} --claim repository=acme/clock --scope acme"


@pytest.fixture
def app(app_with: AppWith) -> Flask:
    return app_with(PUBLIC_URL="https://widgets.example")


def test_a_trust_is_listed_until_it_is_removed(app: Flask) -> None:
    line = f"{ADD} --claim ref=refs/tags/* --widget ops/gauge --can yank,publish --expires 1h"
    result = run_line(app, line)
    assert (result.exit_code, result.stderr) == (0, "Added the trust ci.\n")
    (listed,) = json.loads(run_line(app, "trust list --json").stdout)
    assert listed.pop("createdAt").startswith("20")
    assert listed == {
        "trust": "ci",
        "issuer": ISSUER,
        "claims": {"repository": "acme/clock", "ref": "refs/tags/*"},
        "scopes": ["acme"],
        "widgets": ["ops/gauge"],
        "permissions": ["publish", "yank"],
        "minutes": 60,
        "hasKeys": False,
        "hasAuthority": False,
    }
    table = run_line(app, "trust list").stdout.splitlines()
    assert table[1].split() == [
        *("ci", ISSUER, "repository=acme/clock,", "ref=refs/tags/*", "publish,", "yank"),
        *("acme,", "ops/gauge", "60m"),
    ]
    result = run_line(app, "trust remove ci")
    assert result.stderr == "Removed the trust ci. Its tokens are no longer valid.\n"
    assert json.loads(run_line(app, "trust list --json").stdout) == []
    result = run_line(app, "trust remove ci")
    assert (result.exit_code, result.stderr) == (1, "Error: There is no trust 'ci'.\n")


def test_the_name_of_a_trust_is_free_again_after_its_removal(app: Flask) -> None:
    assert run_line(app, ADD).exit_code == 0
    message = "Error: A trust named 'ci' already exists; remove it first.\n"
    assert run_line(app, ADD).stderr == message
    run_line(app, "trust remove ci")
    assert run_line(app, ADD).exit_code == 0


def test_the_audit_log_has_both_changes(app: Flask) -> None:
    run_line(app, ADD)
    run_line(app, "trust remove ci")
    entries = json.loads(run(app, "log", "--json").stdout)[-2:]
    assert [each["action"] for each in entries] == ["add trust", "remove trust"]
    assert entries[0]["after"] == entries[1]["before"]
    assert entries[0]["after"]["claims"] == {"repository": "acme/clock"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (f"--issuer {ISSUER} --scope acme", "Missing option '--claim'"),
        ("--claim sub=x --scope acme", "Missing option '--issuer'"),
        (f"--issuer {ISSUER} --claim sub=x", "Specify --scope or --widget."),
        (f"--issuer {ISSUER} --claim aud=x --scope a", "the service itself checks aud,"),
        (f"--issuer {ISSUER} --claim iss=x --scope a", "the service itself checks aud,"),
        (f"--issuer {ISSUER} --claim sub --scope a", "'sub' is not KEY=VALUE."),
        (f"--issuer {ISSUER} --claim sub= --scope a", "'sub=' is not KEY=VALUE."),
        (f"--issuer {ISSUER} --claim =x --scope a", "'=x' is not KEY=VALUE."),
        (f"--issuer {ISSUER} --claim sub=repo:* --scope a", PATTERNS),
        (f"--issuer {ISSUER} --claim repository=acme/* --scope a", PATTERNS),
        (f"{SAFE} --claim sub=y", "Specify each --claim only once."),
        (f"{SAFE} --can admin", "'admin' is not one of 'publish', 'yank', 'describe'"),
        (f"{SAFE} --expires 25h", "is not 1m to 24h."),
        (f"{SAFE} --expires 2d", "a number of hours or minutes"),
        (f"{SAFE} --expires never", "a number of hours or minutes"),
        ("--issuer http://ci.example --claim sub=x --scope a", "only for loopback addresses"),
        ("--issuer https://u@ci.example --claim sub=x --scope a", "without a user"),
        ("--issuer https://ci.example?a=b --claim sub=x --scope a", "without a user"),
        (f"{SAFE} --jwks README.md", "The --jwks file is not a JSON Web Key Set."),
        (f"{SAFE} --ca README.md", "The --ca file does not contain PEM certificates."),
    ],
)  # fmt: skip
def test_an_unsafe_or_incomplete_trust_is_refused(
    app: Flask, options: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = run_line(app, f"trust add ci {options}")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert json.loads(run_line(app, "trust list --json").stdout) == []


def test_a_trust_for_every_project_of_an_issuer_is_warned_of(app: Flask) -> None:
    result = run_line(app, f"trust add ci --issuer {ISSUER} --claim ref=main --scope acme")
    assert result.exit_code == 0
    assert "Warning: no claim names a project or a subject" in result.stderr


def test_a_service_without_a_public_url_is_warned_of(app_with: AppWith) -> None:
    assert "Warning: set CATALOG_PUBLIC_URL" in run_line(app_with(), ADD).stderr


def test_the_help_warns_of_patterns(app: Flask) -> None:
    text = " ".join(run_line(app, "trust add --help").stdout.split())
    assert "Warning: a value that ends in * also matches names that others choose" in text


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["jwt"] = None
sys.argv = ["widget-catalog", "--database", {str(tmp_path / "a.db")!r}, *{ADD.split()!r}]
import catalog.__main__
catalog.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: The libraries that verify id tokens are not installed. Install the wheel with its "
        "extra: pip install 'widget_catalog-….whl[oidc]'.\n"
    )


def test_no_restore_makes_a_removed_trust_valid_again(app: Flask, tmp_path: Path) -> None:
    assert run_line(app, ADD).exit_code == 0
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    assert run_line(app, "trust remove ci").exit_code == 0
    assert run(app, "restore", tmp_path / "backup.db", "--yes").exit_code == 0
    assert json.loads(run_line(app, "trust list --json").stdout) == []


def test_a_backup_brings_its_trusts_to_a_new_machine(app: Flask, tmp_path: Path) -> None:
    assert run_line(app, ADD).exit_code == 0
    assert run(app, "backup", tmp_path / "backup.db").exit_code == 0
    new = tmp_path / "new.db"
    assert run_on(new, "restore", tmp_path / "backup.db", "--yes").exit_code == 0
    (trust,) = json.loads(run_on(new, "trust", "list", "--json").stdout)
    assert trust["claims"] == {"repository": "acme/clock"}
