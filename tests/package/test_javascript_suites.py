"""The JavaScript test suites of docs/testing.md, run by node as written."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from document_lines import blocks, page

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

NAMES = ("catalog-server.mjs", "node.test.mjs", "vitest.test.mjs", "playwright.spec.mjs")
# The part of vitest that the example uses, by means of node's own test runner.
VITEST = """
import assert from "node:assert/strict";
export { after as afterAll, before as beforeAll, beforeEach, test } from "node:test";
export const expect = (value) => ({ toBe: (expected) => assert.equal(value, expected) });
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project with the examples of the page, in which widget-catalog is installed."""
    for name, example in zip(NAMES, blocks(page("docs/testing.md"), "js"), strict=True):
        (tmp_path / name).write_text(example, encoding="utf-8")
    package = tmp_path / "node_modules" / "vitest"
    package.mkdir(parents=True)
    (package / "index.mjs").write_text(VITEST)
    (package / "package.json").write_text('{"name": "vitest", "exports": "./index.mjs"}')
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
        env={"PATH": str(suite / "bin"), "PYTHONPATH": str(ROOT), "TMPDIR": str(suite)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["node.test.mjs", "vitest.test.mjs"])
def test_the_suite_passes_and_leaves_no_file(suite: Path, name: str) -> None:
    assert "# pass 1\n" in run_node(suite, "--test", name).stdout
    assert list(suite.glob("widget-catalog-*")) == []


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
