"""Processes of the service that start fast: forked from one that has imported its modules.

The imports take most of the CPU time of a process that serves a few requests, and the tests start
hundreds of them. Compiling routes and templates takes most of the rest. The prepared process has
no threads and has opened no database.
"""

import atexit
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Self

from shared_parts import share_parts, templates_directory

ROOT = Path(__file__).parent.parent
# The interpreter reads these variables when it starts.
START_VARIABLES = ("LANG", "LC_", "PYTHON", "TZ")
STREAMS = ("stdin", "stdout", "stderr")
MODULES = ("app", "catalog.serving.server", "click.shell_completion", "flask.cli")
MAX_REQUEST = 2**20  # bytes
MAX_DESCRIPTORS = 16
PR_SET_CHILD_SUBREAPER = 36


def start_python(
    arguments: list[Any], environment: dict[str, str], run_by: Sequence[str] = (), **options: Any
) -> Any:
    """Start Python with these arguments as a process; by default, its output is text in pipes.

    The options are those of Popen; run_by is a command that changes the user. The process is forked
    if that makes no difference: the value is a Popen, or what the tests use of one.
    """
    options = {"stdin": None, "stdout": PIPE, "stderr": PIPE, "text": True, **options}
    can_fork = (
        sys.platform == "linux"
        and not run_by
        and options.keys() <= {"cwd", "pass_fds", *STREAMS, "text"}
        and all(isinstance(options[name], int | None) for name in STREAMS)
        and start_variables(environment) == start_variables(dict(os.environ))
    )
    if can_fork:
        return ForkedProcess([*map(os.fsdecode, arguments)], environment, options)
    return subprocess.Popen([*run_by, sys.executable, *arguments], env=environment, **options)


def start_variables(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that only a new interpreter would follow."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(START_VARIABLES) and name != "PYTHONPATH"
    }


@cache
def prepared_process() -> socket.socket:
    """Start the process that forks others; it ends when the socket is closed."""
    control, other = socket.socketpair(type=socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, __file__, str(other.fileno()), templates_directory()],
        # Without the settings of the test that starts it.
        env={name: each for name, each in os.environ.items() if not name.startswith("CATALOG_")},
        pass_fds=[other.fileno()],
        stdout=DEVNULL,
    )
    other.close()

    def close() -> None:
        control.close()
        process.wait()

    atexit.register(close)
    return control


class ForkedProcess:
    """A process that is forked from the prepared one, with what the tests use of Popen."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], options: dict[str, Any]
    ) -> None:
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self._files: list[Any] = []
        ends = []
        for number, name in enumerate(STREAMS):
            # Without a pipe or a terminal, it has the stream of this process.
            given, own = options[name], None
            end = os.dup(number if given is None or given < 0 else given)
            if given == DEVNULL:
                end = os.open(os.devnull, os.O_RDWR)
            elif given == PIPE:
                own, end = os.pipe() if number else os.pipe()[::-1]
            ends.append(end)
            mode = ("r" if number else "w") + ("" if options["text"] else "b")
            self._files.append(own and os.fdopen(own, mode))
        self.stdin, self.stdout, self.stderr = self._files
        passed = options.get("pass_fds", ())
        os.umask(umask := os.umask(0))
        request = {
            "arguments": arguments,
            "cwd": os.fspath(options.get("cwd") or os.getcwd()),
            "environment": environment,
            "passed": [*passed],
            "umask": umask,
            "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        }
        # It is an orphan at first, and becomes a child of the nearest ancestor that adopts orphans.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        socket.send_fds(prepared_process(), [json.dumps(request).encode()], [*ends, *passed])
        self.pid = int(prepared_process().recv(MAX_REQUEST))
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for end in ends:
            os.close(end)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is not None:
            return self.returncode
        # Another thread may wait for it too.
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            has_ended = select.select([descriptor], [], [], timeout)[0]
            os.close(descriptor)
            if not has_ended:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, text: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        read: dict[str, Any] = {}
        open_files = [each for each in (self.stdout, self.stderr) if each and not each.closed]
        threads = [
            threading.Thread(target=lambda each=each: read.update({each: each.read()}), daemon=True)
            for each in open_files
        ]
        for thread in threads:
            thread.start()
        if self.stdin:
            self.stdin.write(text or type(text)())
            self.stdin.close()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        self._close()
        return read.get(self.stdout), read.get(self.stderr)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        for file in filter(None, self._files):
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()
        self.wait()


def fork_on_request(control: socket.socket) -> dict[str, Any]:
    """Fork a process for each request; return the request in it."""
    while True:
        content, received, *_ = socket.recv_fds(control, MAX_REQUEST, MAX_DESCRIPTORS)
        if not content:
            sys.exit()
        reader, writer = os.pipe()
        parent = os.fork()
        if parent == 0:
            if pid := os.fork():
                os.write(writer, str(pid).encode())
                os._exit(0)
            for descriptor in (reader, writer, control.detach()):
                os.close(descriptor)
            request: dict[str, Any] = json.loads(content)
            # Above all numbers that they get, so that none replaces another.
            above = max((2, *request["passed"])) + 1
            moved = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in received]
            for each in received:
                os.close(each)
            for each, number in zip(moved, (0, 1, 2, *request["passed"]), strict=True):
                os.dup2(each, number)
                os.close(each)
            return request
        # Then the process has its new parent.
        os.waitpid(parent, 0)
        control.send(os.read(reader, 32))
        for descriptor in (reader, writer, *received):
            os.close(descriptor)


def run_request(request: dict[str, Any]) -> None:
    """Run app.py, a module or code, as a new interpreter would."""
    # Python examines a stream when it opens it.
    for number, name in enumerate(STREAMS):
        old = getattr(sys, name)
        mode = "w" if number else "r"
        new: Any = os.fdopen(number, mode, -1, old.encoding, old.errors, closefd=False)
        is_buffered_by_line = old.line_buffering or os.isatty(number)
        new.reconfigure(line_buffering=is_buffered_by_line, write_through=old.write_through)
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
        # That of the prepared process, if it has one.
        sys.modules.pop("sitecustomize", None)
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


def prepare(templates: str) -> None:
    """Import the modules of the service, and compile its routes and templates."""
    for name in MODULES:
        import_module(name)
    share_parts(templates)
    app = import_module("app").create_app()
    for name in app.jinja_env.list_templates():
        app.jinja_env.get_template(name)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    prepare(sys.argv[2])
    # They stay in memory that the processes share.
    gc.freeze()
    run_request(fork_on_request(socket.socket(fileno=int(sys.argv[1]))))
