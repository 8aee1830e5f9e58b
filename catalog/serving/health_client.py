"""widget-catalog health: whether a service can be used.

A container runs it every few seconds. So this module imports neither Flask nor waitress, and
`widget-catalog health` runs without the other commands: that takes a third of the CPU time.
"""

import http.client
import json
import os
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import click

from ..settings import SettingError, parse_base_url, read_setting
from ..text import error_reason, escape_unprintable, plural, quoted
from ..tls import create_context, describe_refusal

PATH = "/api/health"
UNIX_SCHEME = "unix:"
# A wildcard address is served on the loopback interface too.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104
# More than any response of the service has.
MAX_BODY = 10_000  # bytes


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class UrlType(click.ParamType):  # type: ignore[type-arg]
    """The base URL of a service, or unix: and the path of its socket."""

    name = "url"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        if value.startswith(UNIX_SCHEME):
            return str(value)
        try:
            url = parse_base_url(value)
            # An invalid port raises ValueError.
            if not url or not url.isascii() or urlsplit(url).port == 0:
                raise ValueError
        except ValueError:
            self.fail(f"{quoted(value)} is neither an http or https URL nor unix:PATH.")
        return url


def _check_certificates(
    context: click.Context, option: click.Parameter, path: str | None
) -> str | None:
    try:
        if path:
            create_context(path)
    except ssl.SSLError:
        raise click.BadParameter(f"{path} is not a PEM file of certificates.") from None
    return path


ca_option = click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    callback=_check_certificates,
    help="Trust the certificates in this PEM file too.",
)


@click.command("health")
@click.argument("url", type=UrlType(), required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the connection and for the response.",
)
@ca_option
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def health(url: str | None, timeout: float, ca: str | None, quiet: bool) -> None:
    """Check whether a service can be used.

    URL is its base URL, or unix:PATH for a Unix socket; by default it has the CATALOG_HOST and
    CATALOG_PORT of the environment. Exit code 0 if the service can read and write its catalog,
    else 1 with the reason.
    """
    check_service(url or configured_url(), timeout, ca)
    if not quiet:
        click.echo("ok", err=True)


def configured_url() -> str:
    """Return the URL of the service that has the same environment."""
    try:
        host, port = read_setting("HOST", os.environ), read_setting("PORT", os.environ)
    except SettingError as error:
        raise click.ClickException(str(error)) from None
    if not port:
        raise click.ClickException("CATALOG_PORT is 0; state the URL of the service.")
    host = LOOPBACK.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_service(url: str, timeout: float, ca: str | None = None) -> None:
    """Raise ClickException with the reason unless the service responds that it is ok."""
    try:
        status, body = fetch_health(url, timeout, ca)
    except TimeoutError:
        seconds = plural(int(timeout), "second") if timeout == int(timeout) else f"{timeout} s"
        raise click.ClickException(f"{url} did not respond within {seconds}.") from None
    except ssl.SSLCertVerificationError as error:
        reason = describe_refusal(error)
        raise click.ClickException(f"{url} cannot be reached: {reason}.") from None
    except (OSError, UnicodeError) as error:
        raise click.ClickException(f"{url} cannot be reached: {error_reason(error)}.") from None
    except http.client.HTTPException:
        raise click.ClickException(f"{url} did not respond with HTTP.") from None
    if status == 200:
        return
    try:
        reported = json.loads(body)
        text = f"is {reported['status']}: {reported['error']}"
    except (ValueError, TypeError, KeyError):
        text = f"responded {status} to {PATH}."
    raise click.ClickException(f"{url} {escape_unprintable(text)}")


def fetch_health(url: str, timeout: float, ca: str | None) -> tuple[int, bytes]:
    """Return status and body of the response; raise OSError or HTTPException."""
    connection: http.client.HTTPConnection
    path = PATH
    if url.startswith(UNIX_SCHEME):
        connection = UnixConnection(url.removeprefix(UNIX_SCHEME), timeout)
    else:
        parts = urlsplit(url)
        host = parts.hostname or ""
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout)
        if parts.scheme == "https":
            context = create_context(ca) if ca else None
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=timeout, context=context
            )
        path = parts.path + PATH
    try:
        connection.request("GET", path, headers={"User-Agent": "widget-catalog health"})
        response = connection.getresponse()
        return response.status, response.read(MAX_BODY)
    finally:
        connection.close()
