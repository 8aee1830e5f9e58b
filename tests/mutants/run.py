"""Apply each mutation of mutations.toml to a copy of the tree, where its tests must fail.

python tests/mutants/run.py [AREA...] runs all areas, or those that are named. First the tests of
all of them must pass without a mutation. The exit code is 1 if a mutation survives, or cannot be
tried: then its text is not in exactly one place, or its tests do not run to an end.
"""

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MUTATIONS = Path(__file__).with_name("mutations.toml")
# By the exit code of pytest; another one means that it could not run the tests.
RESULTS = {0: "SURVIVED", 1: "killed"}


def copy_tree(target: Path) -> None:
    """Copy the checkout as it is now; the environment is shared."""
    ignore = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(ROOT, target, ignore=ignore, dirs_exist_ok=True)
    (target / ".venv").symlink_to(ROOT / ".venv")


def run_tests(tree: Path, tests: Iterable[str]) -> int:
    """Return the exit code of pytest."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", *tests]
    return subprocess.run(command, cwd=tree, capture_output=True).returncode


def find_file(tree: Path, mutation: dict[str, Any]) -> Path:
    """Return the only file with the text: the named one, or one below the named folder."""
    start: Path = tree / mutation["file"]
    files = start.rglob("*.py") if start.is_dir() else [start]
    counts = {file: file.read_text("utf-8").count(mutation["text"]) for file in files}
    if sum(counts.values()) != 1:
        raise LookupError(f"its text is there {sum(counts.values())} times")
    return max(counts, key=lambda file: counts[file])


def try_mutation(tree: Path, mutation: dict[str, Any]) -> str:
    """Return what became of the mutation: killed, SURVIVED, or why it could not be tried."""
    try:
        file = find_file(tree, mutation)
    except (LookupError, OSError) as error:
        return f"ERROR: {error}"
    original = file.read_text("utf-8")
    file.write_text(original.replace(mutation["text"], mutation["becomes"]), "utf-8")
    code = run_tests(tree, mutation["tests"])
    file.write_text(original, "utf-8")
    return RESULTS.get(code, f"ERROR: pytest ended with {code}")


def main(areas: list[str]) -> int:
    table: dict[str, list[dict[str, Any]]] = tomllib.loads(MUTATIONS.read_text("utf-8"))
    mutations = [(area, each) for area in areas or table for each in table[area]]
    tests = {test for _, mutation in mutations for test in mutation["tests"]}
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        if run_tests(Path(folder), sorted(tests)):
            print("The tests fail without a mutation.")
            return 1
        results = []
        for area, mutation in mutations:
            started = time.monotonic()
            results.append(try_mutation(Path(folder), mutation))
            line = mutation["text"].strip().splitlines()[-1].strip()
            print(f"{results[-1]} {time.monotonic() - started:.0f} s {area}: {line}", flush=True)
    print(f"{results.count('killed')} of {len(results)} mutations were killed.")
    return int(any(result != "killed" for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
