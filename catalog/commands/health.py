"""widget-catalog health: checks whether a service is available."""

import json
import os
from contextlib import closing

import click

from ..domain.messages import NotAllowedError
from ..settings import read_setting
from .base import command
from .options import ValidatedType
from .output import CommandError, print_status
from .server_option import check_server_url, named_ca, named_server

PATH = "/api/health"
UNIX_SCHEME = "unix:"
# A wildcard address also includes the loopback interface.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}  # noqa: S104
# No response from the service is larger than this.
MAX_BODY = 10_000  # bytes
NOT_OURS = ", but it is not a widget catalog"


def parse_url(text: str) -> str:
    """Return a service URL, or unix:PATH for a socket; raise NotAllowedError if it is invalid."""
    if text.startswith(UNIX_SCHEME):
        return text
    try:
        return check_server_url(text)
    except ValueError:
        raise NotAllowedError("an http or https URL or unix:PATH") from None


@command("health", remote=True)
@click.argument("url", type=ValidatedType("url", parse_url), required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Wait at most this long for the response.",
)
@click.pass_context
def health(context: click.Context, url: str | None, timeout: float) -> None:
    """Check whether a service can be used.

    URL is the base URL of the service, or unix:PATH for a Unix socket. Without URL, the command
    checks the service given by --server, or else the one at CATALOG_HOST and CATALOG_PORT. The exit
    status is 0 if the service can read and write its catalog. Otherwise it is 1, and the command
    prints the reason.
    """
    if url and "server" in context.meta:
        raise click.UsageError("Use either URL or --server.")
    if url is None:
        server = named_server(context)
        url = server.url if server else configured_url()
    check_service(url, timeout, named_ca(context))
    print_status("ok")


def configured_url() -> str:
    """Return the URL of a service that runs with the same environment variables."""
    host, port = read_setting("HOST", os.environ), read_setting("PORT", os.environ)
    if not port:
        raise CommandError("CATALOG_PORT is 0. Specify the URL of the service.")
    host = LOOPBACK.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check_service(url: str, timeout: float, ca: str | None) -> None:
    """Raise CommandError with the reason unless the service reports that it is ok."""
    # These imports are local because they need urllib3 and TLS, which few commands use.
    from ..system.http_client import HttpClient
    from ..system.http_connections import TransferError
    from ..system.tls import CertificatesError

    try:
        with closing(HttpClient(url, ca, seconds=timeout, max_bytes=MAX_BODY)) as client:
            response = client.request("GET", PATH)
    except CertificatesError as error:
        raise CommandError(f"{error}.") from None
    except TransferError as error:
        raise CommandError(f"{url} {error}.") from None
    try:
        reported = json.loads(response.body)
        if (response.status, reported["status"]) == (200, "ok"):
            return
        text = f"is {reported['status']}: {reported['error']}"
    except (ValueError, TypeError, LookupError, RecursionError):
        text = f"responded {response.status} to {PATH}{NOT_OURS if response.status == 200 else ''}."
    raise CommandError(f"{url} {text}")
