"""The typed clients of docs/testing.md, generated from openapi.json and used as written."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Server
from document_lines import URL, blocks, page

pytestmark = pytest.mark.torture

# The versions that the page names.
PYTHON_PACKAGES = ("openapi-python-client==0.29.1",)
NODE_PACKAGES = ("openapi-typescript@7.13", "openapi-fetch@0.17", "typescript@5.9")


def run(directory: Path, *command: str) -> str:
    """Return the standard output of a command that must succeed."""
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def install(directory: Path, *command: str) -> None:
    """Run a command that needs a package registry; skip the test if it fails."""
    if subprocess.run(command, cwd=directory, timeout=300).returncode:
        pytest.skip("The packages cannot be installed.")


def example(language: str, url: str) -> str:
    return blocks(page("docs/testing.md"), language)[-1].replace(URL, url)


def test_a_python_client_finds_a_version(server: Server, tmp_path: Path) -> None:
    run(tmp_path, sys.executable, "-m", "venv", "tools")
    install(tmp_path, "tools/bin/pip", "install", "--quiet", *PYTHON_PACKAGES)
    url = f"{server.url}/openapi.json"
    run(tmp_path, "tools/bin/openapi-python-client", "generate", "--url", url, "--meta", "none")
    (tmp_path / "example.py").write_text(example("python", server.url))
    assert run(tmp_path, "tools/bin/python", "example.py") == "2.6.0\n"


def test_a_typescript_client_finds_a_version(server: Server, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    install(tmp_path, "npm", "install", "--silent", "--no-audit", "--no-fund", *NODE_PACKAGES)
    url = f"{server.url}/openapi.json"
    run(tmp_path, "node_modules/.bin/openapi-typescript", url, "-o", "catalog.d.ts")
    (tmp_path / "example.ts").write_text(example("ts", server.url))
    options = "--strict --target es2022 --module nodenext --skipLibCheck example.ts"
    run(tmp_path, "node_modules/.bin/tsc", *options.split())
    assert run(tmp_path, "node", "example.js") == "2.6.0\n"
