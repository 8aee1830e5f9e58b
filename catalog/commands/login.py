"""widget-catalog login, logout: the stored token of this user for a service."""

import os
import sys

import click

from ..remote.token_file import VARIABLE, check_token, store_login, token_file
from ..server_option import named_server
from .base import command, print_status
from .catalogs import last_login, open_remote
from .tokens import describe_expiry


@command("login", remote=True)
# An argument would be reported by click, with the token.
@click.argument("arguments", nargs=-1, metavar="")
def login(arguments: tuple[str, ...]) -> None:
    """Store a token for a service.

    The token is asked for or, without a terminal, read from standard input. It is stored in a file
    that only you may read, in ~/.config/widget-catalog. The variable CATALOG_TOKEN has precedence.
    Where there is no database, later commands use the service of the last login, with its --ca.
    """
    if arguments:
        raise click.UsageError("The token is no argument, which others could see: type or pipe it.")
    server = named_server(click.get_current_context())
    if server is None:
        raise click.UsageError("Name the service: --server URL.")
    service = open_remote(server).service
    if sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline() if sys.stdin is not None else ""
    service.token = check_token(text, "The input")
    session = service.request("GET", "/api/session")
    store_login(server.url, service.token, server.ca)
    validity = describe_expiry(session["expiresAt"])
    print_status(f"Logged in to {service.url} with the token {session['token']}, {validity}.")
    print_status(f"It is stored in {token_file()}.")
    if os.environ.get(VARIABLE):
        print_status(f"{VARIABLE} is set, and has precedence over it.")


@command("logout", remote=True)
def logout() -> None:
    """Remove the stored token for a service; it stays valid.

    Without --server, for that of the last login.
    """
    server = named_server(click.get_current_context()) or last_login()
    if server is None:
        raise click.UsageError("Name the service: --server URL.")
    url = server.url
    if store_login(url, None):
        print_status(f"Removed the token for {url}; to end it, revoke it at the service.")
    else:
        print_status(f"There is no stored token for {url}.")
