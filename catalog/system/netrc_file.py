"""Credentials for a service from the netrc file, which curl and pip read too."""

import netrc
import os
import stat
from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

from ..domain.validators import is_loopback
from .http_connections import Origin
from .paths import error_reason, path_text

VARIABLE = "NETRC"
# The login of an entry whose password is a token.
BEARER = "bearer"


class NetrcError(Exception):
    """The file cannot be used; the message says why, without a full stop.

    No message contains any part of the file, because that part may be a password.
    """


class Credentials(NamedTuple):
    """What the netrc file contains for a service's host."""

    path: str
    # The value of the Authorization header; None if there is no entry or it must not be sent.
    authorization: str | None = None
    # True if there is an entry that is not sent because the URL is not https.
    needs_https: bool = False
    # True if other users can read the file.
    is_exposed: bool = False

    def describe_rejection(self, host: str, status: int) -> str:
        """Return the reason for a 401 or 403 response, as a clause without a full stop."""
        if self.needs_https:
            return f"it responded {status}; the password in {self.path} is sent only over https"
        if self.authorization:
            return f"it refused the user name and password in {self.path} ({status})"
        return (
            f"it asks for a user name and password ({status}); add them to {self.path}: "
            f"machine {host} login USER password PASSWORD"
        )


def find_credentials(url: str) -> Credentials:
    """Return the credentials for the host of a URL; raise NetrcError if the file is not valid.

    The path of the file comes from NETRC; the default is ~/.netrc, which need not exist.
    """
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(os.path.expanduser("~/.netrc"))
    name = path_text(path)
    try:
        status = path.stat()
        hosts = netrc.netrc(path).hosts
    except (netrc.NetrcParseError, UnicodeError):
        raise NetrcError(f"{name} is not a valid netrc file") from None
    except OSError as error:
        if named:
            raise NetrcError(f"{VARIABLE} names {name}: {error_reason(error)}") from None
        return Credentials(name)
    origin = Origin.of(url)
    entries = {host.lower(): entry for host, entry in hosts.items()}
    login, _, password = entries.get(origin.host.lower()) or entries.get("default") or ("", "", "")
    if not login:
        return Credentials(name)
    if origin.scheme != "https" and not is_loopback(origin.host):
        return Credentials(name, needs_https=True)
    # A file that belongs to another user, such as root, may be readable by its group.
    readers = stat.S_IROTH | (stat.S_IRGRP if status.st_uid == os.geteuid() else 0)
    is_exposed = bool(status.st_mode & readers)
    if login != BEARER:
        encoded = b64encode(f"{login}:{password}".encode()).decode()
        return Credentials(name, f"Basic {encoded}", is_exposed=is_exposed)
    if not (password.isascii() and password.isprintable() and password):
        raise NetrcError(f"the token for {origin.host} in {name} is not printable ASCII")
    return Credentials(name, f"Bearer {password}", is_exposed=is_exposed)
