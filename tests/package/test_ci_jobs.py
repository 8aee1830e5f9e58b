"""The CI jobs of docs/publish.md: their shell parts publish a bundle without a secret."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json
from conftest import Server, create_catalog, run_on
from document_lines import blocks, checkout, page
from issuers import Actions, Issuer
from ports import free_port
from programs import find_program
from publishers import manifest

MOUNTED_FILE = "/var/run/secrets/catalog/token"
JOBS: list[Json] = [yaml.safe_load(text) for text in blocks(page("docs/publish.md"), "yaml")]


def actions_scripts(job: Json) -> list[str]:
    return [step["run"] for step in job["jobs"]["publish"]["steps"] if "run" in step]


def gitlab_scripts(job: Json) -> list[str]:
    return ["\n".join(job[name]["script"]) for name in ("build", "publish")]


def kubernetes_scripts(job: Json) -> list[str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return [*container["args"]]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    running = Issuer()
    yield running
    running.close()


def prepare(tmp_path: Path) -> Path:
    """Return a repository with a widget, whose environment exists already."""
    repository = checkout(tmp_path)
    programs = {
        # It would need a network.
        "pip": 'test "$*" = "install --require-hashes --requirement catalog-requirements.txt"',
        # The environment links to that of the tests, which must stay as it is.
        "python3": 'test "$*" = "-m venv .venv" || exec .venv/bin/python "$@"',
    }
    for name, script in programs.items():
        program = repository / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    package = {"name": "clock", "version": "1.0.0"}
    build = "mkdir -p dist && cp clock.js dist/"
    files = {
        "package.json": {**package, "scripts": {"build": build}},
        "package-lock.json": {**package, "lockfileVersion": 3, "packages": {"": package}},
        "widget.json": manifest("acme/ci", "1.4.0"),
    }
    for name, content in files.items():
        (repository / name).write_text(json.dumps(content), encoding="utf-8")
    (repository / "clock.js").write_text("export default 1\n", encoding="utf-8")
    (repository / "dist").mkdir()
    (repository / "dist" / "clock.js").write_text("export default 1\n", encoding="utf-8")
    return repository


@pytest.mark.parametrize(
    ("job", "scripts"),
    [
        (JOBS[0], actions_scripts),
        (JOBS[1], gitlab_scripts),
        (JOBS[2], actions_scripts),
        (JOBS[3], kubernetes_scripts),
    ],
    ids=["github", "gitlab", "forgejo", "kubernetes"],
)
def test_each_job_of_the_publishing_page_publishes_a_version(
    job: Json, scripts: Callable[[Any], list[str]], issuer: Issuer, tmp_path: Path
) -> None:
    find_program("npm")
    repository = prepare(tmp_path)
    path = create_catalog(tmp_path / "catalog.db")
    trust = f"trust add ci --issuer {issuer.url} --claim repository=acme/clock --scope acme"
    assert run_on(path, *trust.split()).exit_code == 0
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    id_token = issuer.sign(aud=url)
    token_file = tmp_path / "token"
    token_file.write_text(id_token)
    actions = Actions(issuer)
    variables = {
        "GITHUB_REF_NAME": "v1.4.0",
        "CI_COMMIT_TAG": "v1.4.0",
        "PATH": f"{repository}/.venv/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        # npm would ask its registry about the packages, and about its own version.
        "npm_config_offline": "true",
        "npm_config_audit": "false",
        "npm_config_update_notifier": "false",
    }
    if "id_tokens" in job.get("publish", {}):
        assert job["publish"]["id_tokens"]["CATALOG_ID_TOKEN"]["aud"] == "https://widgets.example"
        variables["CATALOG_ID_TOKEN"] = id_token
    if job.get("permissions", {}).get("id-token") == "write" or job.get("enable-openid-connect"):
        variables |= actions.variables
    try:
        with Server(path, CATALOG_PUBLIC_URL=url, CATALOG_PORT=str(port)) as server:
            for script in scripts(job):
                text = script.replace("https://widgets.example", url)
                result = subprocess.run(
                    ["bash", "-e", "-c", text.replace(MOUNTED_FILE, str(token_file))],
                    cwd=repository,
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                assert result.returncode == 0, result.stderr
                assert id_token not in result.stdout + result.stderr
            _, bundle = server.request("GET", "/api/v1/widgets/acme/ci/1.4.0/bundle.js")
    finally:
        actions.close()
    assert bundle == b"export default 1\n"
    assert "Published acme/ci@1.4.0." in result.stderr


def test_no_job_of_the_publishing_page_has_a_secret() -> None:
    assert len(JOBS) == 4
    for text in blocks(page("docs/publish.md"), "yaml"):
        assert "secrets." not in text
        assert "CATALOG_TOKEN" not in text
        assert "pip install --require-hashes" in text
