"""The JavaScript test suites of docs/testing.md, run by node as written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from document_lines import blocks, page
from programs import find_program

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

NAMES = ("catalog-server.mjs", "node.test.mjs", "vitest.test.mjs", "playwright.spec.mjs")
# The versions that docs/testing.md names.
PACKAGES = ("vitest@4.1", "vite@7", "@playwright/test@1.65")
PLAYWRIGHT_CONFIG = """
const executablePath = {program};
export default {{ use: {{ launchOptions: {{ executablePath, args: ["--no-sandbox"] }} }} }};
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project with the examples of the page, in which widget-catalog is installed."""
    for name, example in zip(NAMES, blocks(page("docs/testing.md"), "js"), strict=True):
        (tmp_path / name).write_text(example, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").symlink_to(shutil.which("node") or "")
    command = tmp_path / "bin" / "widget-catalog"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m catalog "$@"\n')
    command.chmod(0o700)
    return tmp_path


def run_node(suite: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run node with a PATH of only the project's own programs."""
    return subprocess.run(
        ["node", *arguments],
        cwd=suite,
        env={
            "NO_COLOR": "1",
            "PATH": str(suite / "bin"),
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(suite),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_suite_passes_and_leaves_no_file(suite: Path) -> None:
    assert "# pass 1\n" in run_node(suite, "--test", "node.test.mjs").stdout
    assert list(suite.glob("widget-catalog-*")) == []


@pytest.mark.torture
def test_the_suites_of_vitest_and_playwright_pass(suite: Path) -> None:
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES]
    if subprocess.run(install, cwd=suite, timeout=300).returncode:
        pytest.skip("npm cannot install vitest and Playwright Test.")
    program = shutil.which("chromium") or find_program("chromium-headless-shell", "chromium")
    config = PLAYWRIGHT_CONFIG.format(program=json.dumps(program))
    (suite / "playwright.config.mjs").write_text(config)
    vitest = run_node(suite, "node_modules/vitest/vitest.mjs", "run", "vitest.test.mjs")
    assert "1 passed" in vitest.stdout, vitest
    playwright = run_node(suite, "node_modules/@playwright/test/cli.js", "test", "playwright.spec")
    assert "1 passed" in playwright.stdout, playwright


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "spawn widget-catalog ENOENT"),
        ("echo 'Error: No such file.'; exit 1", "No such file."),
    ],
)
def test_a_service_that_does_not_start_fails_the_suite(
    suite: Path, script: str | None, message: str
) -> None:
    command = suite / "bin" / "widget-catalog"
    command.unlink()
    if script:
        command.write_text(f"#!/bin/sh\nexec >&2\n{script}\n")
        command.chmod(0o700)
    result = run_node(suite, "--test", "node.test.mjs")
    assert (result.returncode, message in result.stdout) == (1, True), result.stdout


def test_every_example_is_valid_javascript(suite: Path) -> None:
    for name in NAMES:
        assert run_node(suite, "--check", name).stderr == ""
