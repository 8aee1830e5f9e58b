"""widget-catalog login, logout: the stored token of this user for a service."""

import os
import sys
from typing import TYPE_CHECKING

import click
from flask.cli import with_appcontext

from ..remote.token_file import VARIABLE, check_token, store_token, token_file
from .base import Command, application, print_status
from .catalogs import REMOTE_CATALOG

if TYPE_CHECKING:
    from ..remote.service import Service


def service() -> "Service":
    """Return the service of --server."""
    found: Service = application().extensions[REMOTE_CATALOG].service
    return found


@click.command("login", cls=Command, context_settings={"allow_extra_args": True})
@click.pass_context
@with_appcontext
def login(context: click.Context) -> None:
    """Store a token for a service.

    The token is asked for or, without a terminal, read from standard input. It is stored in a file
    that only you may read, in ~/.config/widget-catalog. The variable CATALOG_TOKEN has precedence.
    """
    if context.args:
        # The message of click would show it.
        raise click.UsageError("The token is no argument, which others could see: type or pipe it.")
    if sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline() if sys.stdin is not None else ""
    target = service()
    target.token = check_token(text, "The input")
    session = target.request("GET", "/api/session")
    store_token(target.url, target.token)
    validity = f"valid until {session['expiresAt'] or 'it is revoked'}"
    print_status(f"Logged in to {target.url} with the token {session['token']}, {validity}.")
    print_status(f"It is stored in {token_file()}.")
    if os.environ.get(VARIABLE):
        print_status(f"{VARIABLE} is set, and has precedence over it.")


@click.command("logout", cls=Command)
@with_appcontext
def logout() -> None:
    """Remove the stored token for a service; it stays valid."""
    url = service().url
    if store_token(url, None):
        print_status(f"Removed the token for {url}; to end it, revoke it at the service.")
    else:
        print_status(f"There is no stored token for {url}.")
