"""The options --server and --ca of commands, and the variables that stand for them."""

import os
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from .text import quoted
from .tls import create_context
from .validators import check_base_url

SERVER_VARIABLE, CA_VARIABLE = "CATALOG_SERVER", "CATALOG_CA"


class Server(NamedTuple):
    """A service that a command works on, and the file with the certificates that it trusts."""

    url: str
    ca: str | None


def check_server_url(url: str) -> str:
    """Return the base URL of a service; raise ValueError with what is allowed."""
    parts = urlsplit(check_base_url(url))
    try:
        # A number that is no port raises ValueError.
        _ = parts.port
    except ValueError:
        raise ValueError("a URL with a valid port") from None
    # Tokens are stored by this URL.
    return parts._replace(netloc=parts.netloc.lower()).geturl()


class ServerUrl(click.ParamType):  # type: ignore[type-arg]
    """The base URL of a service."""

    name = "url"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        try:
            return check_server_url(value)
        except ValueError as allowed:
            self.fail(f"{quoted(value)} is not {allowed}.", parameter, context)


def store_option(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep the value of an option for named_server()."""
    # The option may stand before or after the name of the command.
    if value is not None:
        context.meta[str(option.name)] = value


def check_certificates(
    context: click.Context, option: click.Parameter, path: str | None
) -> str | None:
    """Return the path of a PEM file; raise BadParameter if it is none."""
    try:
        create_context(path)
    except ssl.SSLError:
        raise click.BadParameter(f"{path} is not a PEM file of certificates.") from None
    return path


ca_option = click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    metavar="FILE",
    callback=check_certificates,
    help="Trust the certificates in this PEM file too.",
)


def server_options() -> list[click.Parameter]:
    """Return the options --server and --ca."""
    return [
        click.Option(
            ["--server"],
            type=ServerUrl(),
            metavar="URL",
            expose_value=False,
            callback=store_option,
            help=f"Work on the catalog of this service. Default: {SERVER_VARIABLE}.",
        ),
        click.Option(
            ["--ca"],
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            expose_value=False,
            callback=store_option,
            help=f"Trust the certificates in this PEM file. Default: {CA_VARIABLE}.",
        ),
    ]


def named_server(context: click.Context) -> Server | None:
    """Return the service that options or variables name, if any; raise ClickException."""
    url = context.meta.get("server")
    if url is None and (text := os.environ.get(SERVER_VARIABLE)):
        try:
            url = check_server_url(text)
        except ValueError as allowed:
            message = f"{SERVER_VARIABLE} must be {allowed}, not {quoted(text)}."
            raise click.ClickException(message) from None
    if url is None and "ca" in context.meta:
        raise click.UsageError("--ca is for --server.")
    return Server(url, named_ca(context)) if url else None


def named_ca(context: click.Context) -> str | None:
    """Return the file of certificates that an option or a variable names, if any."""
    return context.meta.get("ca") or os.environ.get(CA_VARIABLE) or None
