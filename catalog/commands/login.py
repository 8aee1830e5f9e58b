"""widget-catalog login, logout, whoami: the token of this user for a service."""

import os
import shlex
import sys

import click

from ..documents import Json
from ..remote.token_file import VARIABLE, check_token, read_logins, store_login, token_file
from ..server_option import SERVER_VARIABLE, Server, named_server
from .base import command, json_option, print_status
from .catalogs import open_remote
from .durations import describe_expiry
from .terminal import format_json, replace_unprintable


def require_server() -> Server:
    """Return the service that an option or the variable names; raise UsageError if none does."""
    server = named_server(click.get_current_context())
    if server is None:
        raise click.UsageError("Name the service: --server URL.")
    return server


@command("login", remote=True)
# An argument would be reported by click, with the token.
@click.argument("arguments", nargs=-1, metavar="")
def login(arguments: tuple[str, ...]) -> None:
    """Store a token for a service.

    The token is asked for or, without a terminal, read from standard input. It is stored in a file
    that only you may read, in ~/.config/widget-catalog. The variable CATALOG_TOKEN has precedence.
    The file of --ca is remembered with it.
    """
    if arguments:
        raise click.UsageError("The token is no argument, which others could see: type or pipe it.")
    server = require_server()
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
    if not os.environ.get(SERVER_VARIABLE):
        line = f"export {SERVER_VARIABLE}={shlex.quote(service.url)}"
        print_status(f"To leave out --server from now on: {line}")
    if os.environ.get(VARIABLE):
        print_status(f"{VARIABLE} is set, and has precedence over it.")


@command("logout", remote=True)
def logout() -> None:
    """Remove the stored token for a service; it stays valid."""
    url = require_server().url
    if url in read_logins():
        store_login(url, None)
        print_status(f"Removed the token for {url}; to end it, revoke it at the service.")
    else:
        print_status(f"There is no stored token for {url}.")


@command("whoami", remote=True)
@json_option
def whoami(json_output: bool) -> None:
    """Show your token at a service: its name, rights and expiry.

    Exit code 1 if the service does not accept it, so it is a good first step of a job.
    """
    session: Json = open_remote(require_server()).service.request("GET", "/api/session")
    if json_output:
        click.echo(format_json(session))
        return
    lines = {
        "token": session["token"],
        "scopes": ", ".join(session["scopes"]) or "all",
        "permissions": ", ".join(session["permissions"]),
        "expires": session["expiresAt"] or "never",
    }
    for label, text in lines.items():
        click.echo(replace_unprintable(f"{label + ':':13}{text}"))
