"""Processes of the service that start fast: they are forked from one that has imported its modules.

The imports take most of the CPU time of a process that serves a few requests, and the tests start
hundreds of them. The prepared process has no threads and has opened no database.
"""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

ROOT = Path(__file__).parent.parent
# The interpreter reads these variables when it starts.
START_VARIABLES = ("LANG", "LC_", "PYTHON", "TZ")
PR_SET_CHILD_SUBREAPER = 36
TEXT_STREAMS = [("stdin", "r"), ("stdout", "w"), ("stderr", "w")]
MODULES = ("app", "catalog.serving.server", "click.shell_completion", "flask.cli")
MAX_REQUEST = 2**20  # bytes
MAX_DESCRIPTORS = 64


def start_variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that only a new interpreter would follow."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(START_VARIABLES) and name != "PYTHONPATH"
    }


class PreparedProcess:
    """A process with the modules of the service, from which others are forked."""

    def __init__(self) -> None:
        self.variables = start_variables(dict(os.environ))
        self._socket, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())],
            pass_fds=[other.fileno()],
            stdout=DEVNULL,
        )
        other.close()
        atexit.register(self._close)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Start a process with these standard streams as a child of this one; return its id."""
        # It is an orphan at first, and becomes a child of the nearest ancestor that adopts orphans.
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            return int(self._socket.recv(MAX_REQUEST))
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


prepared_process = cache(PreparedProcess)


class ForkedProcess(subprocess.Popen[Any]):
    """A process that is forked from the prepared one; otherwise as Popen."""

    def _execute_child(  # type: ignore[override]
        self, args: list[str | bytes], *options: Any
    ) -> None:
        pass_fds, cwd, env = options[3:6]
        pipes = options[9:15]
        umask = os.umask(0)
        os.umask(umask)
        request = {
            "arguments": [os.fsdecode(each) for each in args[1:]],
            "cwd": os.fspath(cwd or os.getcwd()),
            "environment": env,
            "umask": umask,
            "passed": [*pass_fds],
            "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        }
        # The ends for the new process: without a pipe, it has the stream of this process.
        ends = (pipes[0], pipes[3], pipes[5])
        streams = [number if end == -1 else end for number, end in enumerate(ends)]
        try:
            self.pid = prepared_process().fork(request, [*streams, *pass_fds])
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def start_python(
    arguments: list[Any], environment: dict[str, str], run_by: Sequence[str] = (), **options: Any
) -> subprocess.Popen[Any]:
    """Start Python with these arguments as a process; by default, its output is text in pipes.

    The options are those of Popen; run_by is a command that changes the user. The process is forked
    if that makes no difference.
    """
    options = {"stdout": PIPE, "stderr": PIPE, "text": True, **options}
    streams = [options.get(name) for name in ("stdin", "stdout", "stderr")]
    can_fork = (
        sys.platform == "linux"
        and not run_by
        and options.keys() <= {"cwd", "pass_fds", "stdin", "stdout", "stderr", "text"}
        # A terminal would need another buffer.
        and {*streams} <= {None, PIPE, DEVNULL}
        and start_variables(environment) == prepared_process().variables
    )
    start: type[subprocess.Popen[Any]] = ForkedProcess if can_fork else subprocess.Popen
    return start([*run_by, sys.executable, *arguments], env=environment, **options)


def fork_on_request(control: socket.socket) -> dict[str, Any] | None:
    """Fork a process for each request; return the request in it, and None in the prepared one."""
    while True:
        content, descriptors, *_ = socket.recv_fds(control, MAX_REQUEST, MAX_DESCRIPTORS)
        if not content:
            return None
        reader, writer = os.pipe()
        gate, opener = os.pipe()
        parent = os.fork()
        if parent == 0:
            pid = os.fork()
            if pid == 0:
                os.close(opener)
                # It opens when this process has its new parent.
                os.read(gate, 1)
                for descriptor in (reader, writer, gate, control.detach()):
                    os.close(descriptor)
                request: dict[str, Any] = json.loads(content)
                place(descriptors, [0, 1, 2, *request["passed"]])
                return request
            os.write(writer, str(pid).encode())
            os._exit(0)
        pid_text = os.read(reader, 32)
        os.waitpid(parent, 0)
        for descriptor in (reader, writer, gate, opener, *descriptors):
            os.close(descriptor)
        control.send(pid_text)


def place(descriptors: list[int], numbers: list[int]) -> None:
    """Give the descriptors these numbers."""
    # They must not replace each other.
    first_free = max(*numbers, *descriptors) + 1
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, first_free) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def run_request(request: dict[str, Any]) -> None:
    """Run app.py, a module or code, as a new interpreter would."""
    # Python examines a stream when it opens it.
    for number, (name, mode) in enumerate(TEXT_STREAMS):
        old = getattr(sys, name)
        new = os.fdopen(number, mode, -1, old.encoding, old.errors, closefd=False)
        new.reconfigure(line_buffering=old.line_buffering, write_through=old.write_through)
        setattr(sys, name, new)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    ignored, default = signal.SIG_IGN, signal.default_int_handler
    signal.signal(signal.SIGINT, ignored if request["ignores_interrupts"] else default)
    os.environ.clear()
    os.environ.update(request["environment"])
    add_to_path(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    run_arguments(*request["arguments"])


def add_to_path(folders: list[str]) -> None:
    """Let the interpreter search the folders, and run the module sitecustomize if one has it."""
    sys.path[1:1] = [each for each in folders if each and each not in sys.path]
    if any(Path(each, "sitecustomize.py").exists() for each in folders):
        # It may change the modules of the service before others import them.
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("app", "catalog", "sitecustomize"):
                del sys.modules[name]
        import_module("sitecustomize")


def run_arguments(first: str, *others: str) -> None:
    """Do what the interpreter does with these arguments."""
    if first == "-c":
        sys.path[0] = ""
        sys.argv = [first, *others[1:]]
        exec(others[0], {"__name__": "__main__"})  # noqa: S102  (it is our own code)
    elif first == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = [first, *others[1:]]
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *others]
        runpy.run_path(first, run_name="__main__")


def main() -> None:
    """Import the modules of the service, and fork processes on request."""
    sys.path[0] = str(ROOT)
    for name in MODULES:
        import_module(name)
    # They stay in memory that the processes share.
    gc.freeze()
    request = fork_on_request(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        run_request(request)


if __name__ == "__main__":
    main()
