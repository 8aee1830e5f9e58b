"""Processes that the tests fork from a prepared one: they are as those of a new interpreter."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prepared_processes import ForkedProcess, start_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what it needs")

SHOW_STATE = """
import json, os, signal, sys
streams = [(each.encoding, each.errors, each.line_buffering) for each in (sys.stdout, sys.stderr)]
variables = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
print(json.dumps([
    __name__, sys.argv, sys.path[0], os.getcwd(), os.getppid(), os.umask(0), variables, streams,
    sorted(os.listdir("/proc/self/fd")), str(signal.getsignal(signal.SIGINT)), sys.stdin.read(),
]))
"""


def finish(process: subprocess.Popen[str], text: str | None = None) -> tuple[int, str, str]:
    with process:
        stdout, stderr = process.communicate(text, timeout=60)
    return process.returncode, stdout, stderr


def test_state_is_that_of_a_new_interpreter(tmp_path: Path) -> None:
    environment = {**os.environ, "CATALOG_PORT": "0", "PYTHONPATH": "."}
    arguments = ["-c", SHOW_STATE, "an argument", "é"]
    forked = start_python(arguments, environment, cwd=tmp_path, stdin=subprocess.PIPE)
    assert isinstance(forked, ForkedProcess)
    new = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    states = []
    for process in (forked, new):
        returncode, output, errors = finish(process, "input")
        assert (returncode, errors) == (0, "")
        states.append(json.loads(output))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise ValueError", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_exit_code_is_known(code: str, expected: int) -> None:
    returncode, _, stderr = finish(start_python(["-c", code], {**os.environ}))
    assert returncode == expected
    assert ("ValueError" in stderr) is (expected == 1)


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LC_ALL", "TZ"])
def test_variable_for_the_interpreter_needs_a_new_one(name: str) -> None:
    process = start_python(["-c", "print(1)"], {**os.environ, name: "0"})
    assert not isinstance(process, ForkedProcess)
    assert finish(process)[:2] == (0, "1\n")
