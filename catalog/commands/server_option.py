"""The --server and --ca options of commands, and the corresponding environment variables."""

import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from ..domain.messages import NotAllowedError, quoted
from ..domain.validators import check_base_url

SERVER_VARIABLE, CA_VARIABLE = "CATALOG_SERVER", "CATALOG_CA"


class Server(NamedTuple):
    """A service that a command works on, and a file with certificates to trust."""

    url: str
    ca: str | None


def check_server_url(url: str) -> str:
    """Return the base URL of a service; raise NotAllowedError if it is invalid."""
    parts = urlsplit(check_base_url(url))
    try:
        # An invalid port raises ValueError.
        _ = parts.port
    except ValueError:
        raise NotAllowedError("a URL with a valid port") from None
    # Stored tokens are found by this URL, so its host is in lower case.
    return parts._replace(netloc=parts.netloc.lower()).geturl()


# The options may come before or after the command name, so meta stores their values.
def store_server(context: click.Context, option: click.Parameter, url: str | None) -> None:
    """Store the URL of a service for named_server(); raise BadParameter if it is invalid."""
    try:
        if url is not None:
            context.meta["server"] = check_server_url(url)
    except NotAllowedError as error:
        raise click.BadParameter(f"{quoted(url)} is not {error}.") from None


def _store_ca(context: click.Context, option: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    # This import is local because few commands need TLS.
    from ..system.tls import CertificatesError, create_context

    try:
        create_context(path)
        context.meta["ca"] = path
    except CertificatesError as error:
        raise click.BadParameter(f"{error}.") from None


CA_OPTION: dict[str, Any] = {
    "type": click.Path(exists=True, dir_okay=False, resolve_path=True),
    "metavar": "FILE",
    "expose_value": False,
    "is_eager": True,
    "callback": _store_ca,
    "help": f"Trust the certificates in this PEM file too. Default: {CA_VARIABLE}.",
}


def server_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Return the --server and --ca options; hidden ones exist only to be rejected."""
    return [
        click.Option(
            ["--server"],
            metavar="URL",
            expose_value=False,
            is_eager=True,
            callback=store_server,
            hidden=hidden,
            help=f"Work on the catalog of this service. Default: {SERVER_VARIABLE}.",
        ),
        click.Option(["--ca"], **CA_OPTION, hidden=hidden),
    ]


def named_server(context: click.Context) -> Server | None:
    """Return the service that --server or CATALOG_SERVER names; raise ClickException if invalid."""
    url = context.meta.get("server")
    if url is None and (text := os.environ.get(SERVER_VARIABLE)):
        try:
            url = check_server_url(text)
        except NotAllowedError as error:
            raise click.ClickException(f"{error.about(SERVER_VARIABLE, text)}.") from None
    if url is None and "ca" in context.meta:
        raise click.UsageError("--ca requires --server.")
    return Server(url, named_ca(context)) if url else None


def named_ca(context: click.Context) -> str | None:
    """Return the certificate file that --ca or CATALOG_CA names, or None."""
    return context.meta.get("ca") or os.environ.get(CA_VARIABLE) or None
