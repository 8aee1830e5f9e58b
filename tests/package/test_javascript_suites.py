"""The JavaScript test suites of docs/testing.md, run by node as written."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

# The part of vitest that the example uses, by means of node's own test runner.
VITEST = """
import assert from "node:assert/strict";
export { after as afterAll, before as beforeAll, test } from "node:test";
export const expect = (value) => ({ toBe: (expected) => assert.equal(value, expected) });
"""


def examples() -> list[str]:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    return re.findall(r"```js\n(.*?)```", page, re.DOTALL)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project with the module and the vitest suite of the page."""
    module, vitest_suite = examples()
    (tmp_path / "catalog-server.mjs").write_text(module, encoding="utf-8")
    (tmp_path / "search.test.mjs").write_text(vitest_suite, encoding="utf-8")
    package = tmp_path / "node_modules" / "vitest"
    package.mkdir(parents=True)
    (package / "index.mjs").write_text(VITEST)
    (package / "package.json").write_text('{"name": "vitest", "exports": "./index.mjs"}')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").symlink_to(shutil.which("node") or "")
    return tmp_path


def run_suite(suite: Path) -> subprocess.CompletedProcess[str]:
    """Run the suite with a PATH of only the project's own programs."""
    return subprocess.run(
        ["node", "--test", "search.test.mjs"],
        cwd=suite,
        env={"PATH": str(suite / "bin"), "PYTHONPATH": str(ROOT), "TMPDIR": str(suite)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_vitest_suite_passes_and_leaves_no_file(suite: Path) -> None:
    command = suite / "bin" / "widget-catalog"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m catalog "$@"\n')
    command.chmod(0o700)
    result = run_suite(suite)
    assert "# pass 1\n" in result.stdout, result.stdout + result.stderr
    assert list(suite.glob("widget-catalog-*")) == []


def test_a_suite_without_the_command_says_how_to_install_it(suite: Path) -> None:
    result = run_suite(suite)
    assert result.returncode == 1
    assert "widget-catalog is not on PATH: install its wheel" in result.stdout
    assert list(suite.glob("widget-catalog-*")) == []


def test_a_service_that_does_not_start_fails_the_suite(suite: Path) -> None:
    command = suite / "bin" / "widget-catalog"
    command.write_text("#!/bin/sh\necho 'Error: No such file.' >&2\nexit 1\n")
    command.chmod(0o700)
    result = run_suite(suite)
    assert result.returncode == 1
    assert "widget-catalog did not start; its message is above." in result.stdout


def test_every_example_is_valid_javascript(tmp_path: Path) -> None:
    for number, example in enumerate(examples()):
        (tmp_path / f"{number}.mjs").write_text(example, encoding="utf-8")
        subprocess.run(["node", "--check", f"{number}.mjs"], cwd=tmp_path, check=True)
