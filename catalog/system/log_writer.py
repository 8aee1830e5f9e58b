"""A log writer that never waits: lines that cannot be written are dropped and counted."""

import contextlib
import fcntl
import os
import select
import threading

from ..domain.messages import plural

# A slow reader may fall behind by about 10,000 lines.
PIPE_BYTES = 1024 * 1024  # bytes


class LogWriter:
    """Writes lines to a descriptor without waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Setting the size fails if the descriptor is not a pipe.
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lines: list[bytes] = []
        # How many dropped lines have not been reported yet, and how many lines have been dropped
        # since the process started.
        self._unreported = self.lost_lines = 0
        self._lock = threading.Lock()

    def write(self, lines: str) -> None:
        """Queue complete lines for the next flush()."""
        with self._lock:
            self._lines.append(lines.encode())

    def flush(self) -> None:
        """Write the lines; drop and count lines that cannot be written without waiting."""
        if not (self._lines or self._unreported):
            return
        with self._lock:
            data, self._lines = b"".join(self._lines), []
            if self._unreported and self._write(self._report()):
                self._unreported = 0
            while data:
                # Write as many complete lines as fit into PIPE_BUF, or one longer line.
                end = data.rfind(b"\n", 0, select.PIPE_BUF) + 1 or data.index(b"\n") + 1
                if not self._write(data[:end]):
                    break
                data = data[end:]
            lost = data.count(b"\n")
            self._unreported += lost
            self.lost_lines += lost

    def _report(self) -> bytes:
        lines = f"{plural(self._unreported, 'line')} {'was' if self._unreported == 1 else 'were'}"
        return f"{lines} lost: the log was not read in time.\n".encode()

    def _write(self, lines: bytes) -> bool:
        """Write lines; return whether they could be written without waiting."""
        try:
            return bool(self._poll.poll(0)) and os.write(self._descriptor, lines) > 0
        except OSError:
            # The reader is gone, or the disk is full.
            return False
