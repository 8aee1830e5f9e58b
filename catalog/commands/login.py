"""widget-catalog login, logout and whoami: manage this user's token for a service."""

import os
import shlex
import sys

import click

from ..domain.documents import Json
from ..domain.messages import quoted
from ..remote.token_file import VARIABLE, check_token, read_logins, store_login, token_file
from .base import command
from .catalogs import open_remote
from .options import json_option
from .output import describe_expiry, print_json, print_lines, print_status
from .server_option import SERVER_VARIABLE, Server, named_server
from .terminal import replace_unprintable


def require_server() -> Server:
    """Return the service named by --server or CATALOG_SERVER; raise UsageError if there is none."""
    server = named_server(click.get_current_context())
    if server is None:
        raise click.UsageError("Specify the service with --server URL.")
    return server


@command("login", remote=True)
# Without this argument, click's error message would show a token passed by mistake.
@click.argument("arguments", nargs=-1, metavar="")
def login(arguments: tuple[str, ...]) -> None:
    """Store a token for a service.

    At a terminal the command asks for the token; otherwise it reads it from standard input. The
    token is stored in a file that only you can read, in ~/.config/widget-catalog, together with the
    path of the --ca file. The CATALOG_TOKEN variable takes precedence over the stored token.
    """
    if arguments:
        raise click.UsageError(
            "Do not pass the token as an argument: other users could see it. Type or pipe it."
        )
    server = require_server()
    catalog = open_remote(server)
    service = catalog.service
    if sys.stdin is not None and sys.stdin.isatty():
        text = click.prompt("Token", hide_input=True, err=True)
    else:
        text = sys.stdin.readline() if sys.stdin is not None else ""
    service.token = check_token(text, "The input")
    session = catalog.read_session()
    store_login(server.url, service.token, server.ca)
    validity = describe_expiry(session["expiresAt"])
    print_status(f"Logged in to {service.url} with the token {session['token']}, {validity}.")
    print_status(f"The token is stored in {token_file()}.")
    if not os.environ.get(SERVER_VARIABLE):
        line = f"export {SERVER_VARIABLE}={shlex.quote(service.url)}"
        print_status(f"To use this service without --server: {line}")
    if os.environ.get(VARIABLE):
        print_status(f"{VARIABLE} is set, and takes precedence over the stored token.")


@command("logout", remote=True)
def logout() -> None:
    """Remove the stored token for a service; the token stays valid."""
    url = require_server().url
    if url in read_logins():
        store_login(url, None)
        print_status(f"Removed the token for {url}. It stays valid until it is revoked there.")
    else:
        print_status(f"There is no stored token for {url}.")


@command("whoami", remote=True)
@json_option
def whoami(json_output: bool) -> None:
    """Show the name, permissions and expiry of your token.

    In a CI job that publishes without a secret, show the trust and the claims of the id token. The
    exit status is 1 if the service does not accept the token, so the command is a good first step
    in a job.
    """
    session = open_remote(require_server()).read_session()
    if json_output:
        print_json(session)
        return
    # Services older than release 1.1 do not support trusts.
    claims = {f"claim {key}": quoted(each) for key, each in session.get("claims", {}).items()}
    lines = {
        "trust" if claims else "token": session["token"],
        **format_targets(session),
        "permissions": ", ".join(session["permissions"]),
        "expires": session["expiresAt"] or "never",
        **claims,
    }
    for label, text in lines.items():
        print_lines(replace_unprintable(f"{label + ':':13}{text}"))


def format_targets(session: Json) -> dict[str, str]:
    """Return the scopes and widgets that a token may change, as lines to print."""
    # Services older than release 1.1 do not support tokens for single widgets.
    scopes, widgets = session["scopes"], session.get("widgets", [])
    lines = {"scopes": ", ".join(scopes), "widgets": ", ".join(widgets)}
    return {label: text for label, text in lines.items() if text} or {"scopes": "all"}
