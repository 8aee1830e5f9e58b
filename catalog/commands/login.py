"""widget-catalog login, logout: the stored token of this user for a service."""

import os
import sys
from typing import TYPE_CHECKING

import click

from ..remote.token_file import VARIABLE, check_token, store_token, token_file
from .base import command, print_status
from .catalogs import open_remote
from .tokens import describe_expiry

if TYPE_CHECKING:
    from ..remote.catalog import RemoteCatalog


def named_catalog() -> "RemoteCatalog":
    """Return the catalog of --server; raise UsageError if there is none."""
    remote = open_remote()
    if remote is None:
        name = click.get_current_context().info_name
        raise click.UsageError(f"Name the service: widget-catalog --server URL {name}")
    return remote


@command("login", remote=True)
# An argument would be reported by click, with the token.
@click.argument("arguments", nargs=-1, metavar="")
def login(arguments: tuple[str, ...]) -> None:
    """Store a token for a service.

    The token is asked for or, without a terminal, read from standard input. It is stored in a file
    that only you may read, in ~/.config/widget-catalog. The variable CATALOG_TOKEN has precedence.
    """
    if arguments:
        raise click.UsageError("The token is no argument, which others could see: type or pipe it.")
    service = named_catalog().service
    if sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline() if sys.stdin is not None else ""
    service.token = check_token(text, "The input")
    session = service.request("GET", "/api/session")
    store_token(service.url, service.token)
    validity = describe_expiry(session["expiresAt"])
    print_status(f"Logged in to {service.url} with the token {session['token']}, {validity}.")
    print_status(f"It is stored in {token_file()}.")
    if os.environ.get(VARIABLE):
        print_status(f"{VARIABLE} is set, and has precedence over it.")


@command("logout", remote=True)
def logout() -> None:
    """Remove the stored token for a service; it stays valid."""
    url = named_catalog().service.url
    if store_token(url, None):
        print_status(f"Removed the token for {url}; to end it, revoke it at the service.")
    else:
        print_status(f"There is no stored token for {url}.")
