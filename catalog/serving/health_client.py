"""widget-catalog health: whether a service can be used.

A container runs it every few seconds. So this module imports neither Flask nor waitress, and
`widget-catalog health` runs without the other commands: that takes a third of the CPU time.
"""

import http.client
import json
import os
import socket
import ssl
from urllib.parse import urlsplit

import click

from ..server_option import named_ca, named_server, server_options
from ..settings import SettingError, parse_base_url, read_setting
from ..text import error_reason, escape_unprintable, plural, quoted
from ..tls import CertificatesError, create_context, describe_refusal

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


def check_url(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the base URL of a service, or unix: and the path of its socket."""
    if value is None or value.startswith(UNIX_SCHEME):
        return value
    try:
        url = parse_base_url(value)
        # An invalid port raises ValueError.
        if not url or not url.isascii() or urlsplit(url).port == 0:
            raise ValueError
    except ValueError:
        message = f"{quoted(value)} is neither an http or https URL nor unix:PATH."
        raise click.BadParameter(message) from None
    return url


@click.command("health", params=server_options())
@click.argument("url", callback=check_url, required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Seconds to wait for the connection and for the response.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def health(context: click.Context, url: str | None, timeout: float, quiet: bool) -> None:
    """Check whether a service can be used.

    URL is its base URL, or unix:PATH for a Unix socket; by default it is that of --server, or has
    the CATALOG_HOST and CATALOG_PORT of the environment. Exit code 0 if the service can read and
    write its catalog, else 1 with the reason.
    """
    if url is None:
        server = named_server(context)
        url = server.url if server else configured_url()
    check_service(url, timeout, named_ca(context))
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


def check_service(url: str, timeout: float, ca: str | None) -> None:
    """Raise ClickException with the reason unless the service responds that it is ok."""
    try:
        status, body = fetch_health(url, timeout, ca)
    except TimeoutError:
        seconds = plural(int(timeout), "second") if timeout == int(timeout) else f"{timeout} s"
        raise click.ClickException(f"{url} did not respond within {seconds}.") from None
    except CertificatesError as error:
        raise click.ClickException(f"{error}.") from None
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
        path = parts.path + PATH
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "",
                parts.port,
                timeout=timeout,
                context=create_context(ca),
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=timeout
            )
    try:
        connection.request("GET", path, headers={"User-Agent": "widget-catalog health"})
        response = connection.getresponse()
        return response.status, response.read(MAX_BODY)
    finally:
        connection.close()
