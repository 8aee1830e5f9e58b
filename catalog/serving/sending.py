"""The responses that a connection sends, as its client reads them."""

import fcntl
import socket
import struct
import termios
import time
from collections import deque
from typing import TypeAlias

from waitress.buffers import ReadOnlyFileBasedBuffer

# How fast a client must take a response, or send a large body.
MIN_RATE = 16 * 1024  # bytes a second
# What the kernel may hold of a response when the connection is closed without a reset.
MAX_LEFT_TO_KERNEL = 8 * 1024  # bytes
# How much of a file is read into memory at a time, and how much is sent to one client before it is
# the turn of the others.
FLUSH_BYTES = 256 * 1024
# Smaller pieces of a response do not count as memory.
MIN_BODY = 8 * 1024  # bytes

Piece: TypeAlias = "bytes | memoryview | ReadOnlyFileBasedBuffer"


class Sender:
    """What is left to send on one socket, and the deadline of its client."""

    def __init__(self, connection: socket.socket, timeout: int) -> None:
        self._socket, self._timeout = connection, timeout
        self._unsent: deque[Piece] = deque()
        # Bytes given to the kernel, and those of them acknowledged at the last check.
        self.sent = self.acknowledged = 0
        self._deadline = 0.0

    def __bool__(self) -> bool:
        return bool(self._unsent)

    @property
    def is_behind(self) -> bool:
        """Whether the client has more of a response to take than may be left to the kernel."""
        return bool(self._unsent) or self.sent - self.acknowledged > MAX_LEFT_TO_KERNEL

    def begin(self, *pieces: Piece) -> None:
        """Send a new response as far as the kernel takes it; raise OSError if that fails."""
        self._deadline = time.monotonic() + self._timeout
        self._unsent.extend(pieces)
        self.flush()

    def flush(self) -> None:
        """Send up to FLUSH_BYTES of what the client takes now; raise OSError if that fails."""
        end = self.sent + FLUSH_BYTES
        while self._unsent and self.sent < end:
            piece = self._unsent[0]
            try:
                if isinstance(piece, ReadOnlyFileBasedBuffer):
                    data = piece.get(FLUSH_BYTES)
                    if not data:
                        raise OSError("The file became shorter while it was sent.")
                    count = self._socket.send(data)
                    piece.skip(count)
                else:
                    count = self._socket.send(piece)
                    self._unsent[0] = piece = memoryview(piece)[count:]
            except (BlockingIOError, InterruptedError):
                return
            self.sent += count
            if not len(piece):
                self._unsent.popleft()

    def deadline(self, now: float) -> float:
        """Return when the client will have fallen too far behind.

        Each MIN_RATE bytes that it acknowledged give it a second more. Bytes given to the kernel do
        not count: it accepts a part of any response. Time cannot be saved up: the deadline is never
        later than a full timeout from now.
        """
        if self.sent != self.acknowledged:
            acknowledged = self.sent - self.unacknowledged()
            progress = acknowledged - self.acknowledged
            self._deadline = min(now + self._timeout, self._deadline + progress / MIN_RATE)
            self.acknowledged = acknowledged
        return self._deadline

    def unacknowledged(self) -> int:
        """Return the number of bytes that the kernel holds until the client acknowledges them."""
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        except OSError:
            # Not every system has this call.
            return 0
        return int(count)

    def bodies(self) -> list[bytes]:
        """Return the bodies in memory that are not sent completely; files are not in memory."""
        pieces = (piece.obj if isinstance(piece, memoryview) else piece for piece in self._unsent)
        return [piece for piece in pieces if isinstance(piece, bytes) and len(piece) > MIN_BODY]

    def clear(self) -> None:
        """Send no more."""
        self._unsent.clear()
