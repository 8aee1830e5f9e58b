"""Unix sockets that the service binds to a path itself."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from click import ClickException

# The owner and the group may connect.
MODE = 0o660


class SocketFile:
    """A Unix socket that this process has bound to a path."""

    def __init__(self, path: Path) -> None:
        """Bind a socket; raise ClickException if the path is in use or cannot be created."""
        _remove_stale(path)
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        # With chmod instead, others could connect in between.
        umask = os.umask(0o777 & ~MODE)
        try:
            self.socket.bind(str(path))
            self._status = os.lstat(path)
        except OSError as error:
            self.socket.close()
            raise _refusal(path, error) from error
        finally:
            os.umask(umask)

    def remove(self) -> None:
        """Remove the file, unless another one is at the path now.

        Call it while the socket is open: afterwards another file may get the same inode number.
        """
        with suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(self._path), self._status):
                self._path.unlink()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that was killed; raise ClickException for other files."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refusal(path, error) from error
    if not is_socket:
        raise ClickException(f"{path} exists and is not a socket; choose another path.")
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        if client.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise ClickException(f"{path} is in use by another process; choose another path.")
    try:
        path.unlink()
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: OSError) -> ClickException:
    # Python itself refuses a path that is too long, without an error number.
    return ClickException(f"{path} cannot be served on: {error.strerror or error}.")
