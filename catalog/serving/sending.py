"""The unsent part of a response."""

import socket
from collections import deque
from typing import TypeAlias

from waitress.buffers import ReadOnlyFileBasedBuffer

# Files are read into memory in pieces of this size. It is also the most that is sent to one client
# before the other clients get their turn.
FLUSH_BYTES = 256 * 1024

Piece: TypeAlias = "bytes | memoryview | ReadOnlyFileBasedBuffer"


class Sender:
    """The pieces that are left to send on one socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unsent: deque[Piece] = deque()
        # The bytes that the kernel has accepted since the start of the connection.
        self.sent = 0

    def __bool__(self) -> bool:
        return bool(self._unsent)

    def send(self, *pieces: Piece) -> None:
        """Add pieces, and send as much as the kernel accepts, up to FLUSH_BYTES.

        Raise OSError if sending fails.
        """
        self._unsent.extend(pieces)
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

    def bodies(self) -> list[bytes]:
        """Return the pieces in memory, including partly sent ones; files on disk are left out."""
        pieces = (piece.obj if isinstance(piece, memoryview) else piece for piece in self._unsent)
        return [piece for piece in pieces if isinstance(piece, bytes)]
