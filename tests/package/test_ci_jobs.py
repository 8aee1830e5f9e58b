"""The CI job of docs/publishing.md: its shell parts build a bundle and publish it."""

import json
import os
import subprocess
from contextlib import closing
from pathlib import Path

import yaml
from conftest import Server, create_catalog
from document_lines import blocks, checkout, page
from programs import find_program
from publishers import create_token, manifest

from catalog.store.connection.database import Database


def test_the_ci_job_of_the_publishing_page_publishes_a_version(tmp_path: Path) -> None:
    find_program("npm")
    (text,) = blocks(page("docs/publishing.md"), "yaml")
    steps = yaml.safe_load(text)["jobs"]["publish"]["steps"]
    repository = checkout(tmp_path)
    # It would need a network.
    pip = repository / ".venv" / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexpr "$*" : "install https://.*[.]whl#sha256=." > /dev/null\n')
    pip.chmod(0o755)
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
    path = create_catalog(tmp_path / "catalog.db")
    with closing(Database(path)) as database:
        token = create_token(database, permissions=("publish",))
    variables = {"CATALOG_TOKEN": token, "GITHUB_REF_NAME": "v1.4.0"}
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{repository}/.venv/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        # npm would ask its registry about the packages, and about its own version.
        "npm_config_offline": "true",
        "npm_config_audit": "false",
        "npm_config_update_notifier": "false",
    }
    with Server(path) as server:
        for script in (step["run"] for step in steps if "run" in step):
            result = subprocess.run(
                ["bash", "-e", "-c", script.replace("https://widgets.example", server.url)],
                cwd=repository,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert result.returncode == 0, result.stderr
            assert token not in result.stdout + result.stderr
        _, bundle = server.request("GET", "/api/v1/widgets/acme/ci/1.4.0/bundle.js")
    assert bundle == b"export default 1\n"
    assert "Published acme/ci@1.4.0." in result.stderr
