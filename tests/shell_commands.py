"""The command widget-catalog for shells that tests run, without the imports of a new process.

The shell starts a small program of this name. It passes its arguments, its environment and its
standard streams to the process of the tests, which has a process forked from the prepared one.
"""

import marshal
import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prepared_processes import start_python

RUN_COMMAND = "import catalog.__main__ as c; c.main()"
MAX_REQUEST = 2**17  # bytes
# Without socket and json: to import them would take most of its time.
SEND_REQUEST = """
import _socket, marshal, os, sys
request = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
control.connect({address!r})
control.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
os._exit(int(control.recv(16)))
"""


@contextmanager
def forked_commands(program: Path) -> Iterator[None]:
    """Replace the program by one whose commands are forked as long as the context lasts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # Linux chooses an address.
        listener.bind("")
        listener.listen()
        code = SEND_REQUEST.format(address=listener.getsockname())
        line = shlex.join(["exec", sys.executable, "-IS", "-c", code])
        program.write_text(f'#!/bin/sh\n{line} "$@"\n', encoding="utf-8")
        accepting = threading.Thread(target=accept_requests, args=[listener])
        accepting.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def accept_requests(listener: socket.socket) -> None:
    """Run the requested commands until the listener is shut down; those of a pipe run at once."""
    starting = threading.Lock()
    while True:
        try:
            control, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=run_command, args=[control, starting]).start()


def run_command(control: socket.socket, starting: threading.Lock) -> None:
    """Run the command of a request, and respond with its exit code."""
    with control:
        content, streams, *_ = socket.recv_fds(control, MAX_REQUEST, 3)
        arguments, directory, environment = marshal.loads(content)  # noqa: S302  (it is our own)
        stdin, stdout, stderr = streams
        command = ["-c", RUN_COMMAND, *arguments]
        options = {"cwd": directory, "stdin": stdin, "stdout": stdout, "stderr": stderr}
        with starting:
            process = start_python(command, environment, **options)
        for each in streams:
            os.close(each)
        code = process.wait()
        control.send(str(code if code >= 0 else 128 - code).encode())
