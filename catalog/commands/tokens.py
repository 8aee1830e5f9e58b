"""widget-catalog token: the tokens for publishing over HTTP."""

import click

from ..documents import Json
from ..rights import ADMIN, PERMISSIONS
from ..store.connection.transaction import now
from ..store.write import tokens
from ..store.write.audit import local_actor
from ..store.write.tokens import MAX_NAME_LENGTH, Token
from ..text import NotAllowedError, plural
from ..validators import check_identifier
from .base import COMMANDS, CommandGroup, command, database, json_option, print_status
from .durations import NEVER, describe_expiry, lifetime, parse_lifetime
from .names import ValidatedType
from .terminal import format_json, format_table


def parse_name(text: str) -> str:
    """Return the name of a token; raise NotAllowedError."""
    if not (0 < len(text) <= MAX_NAME_LENGTH and text.isprintable() and text == text.strip()):
        raise NotAllowedError(f"1 to {MAX_NAME_LENGTH} printable characters, no space at the ends")
    return text


def parse_permissions(text: str) -> str:
    """Return a list of permissions; raise NotAllowedError."""
    if not set(text.split(",")) <= set(PERMISSIONS):
        raise NotAllowedError(f"a list of {', '.join(PERMISSIONS)}, with commas between")
    return text


NAME = ValidatedType("name", parse_name)
expires_option = click.option(
    "--expires",
    type=ValidatedType("lifetime", parse_lifetime),
    metavar="90d|12h|never",
    default="90d",
    show_default=True,
    help="How long it is valid.",
)
token = CommandGroup("token", help="Manage the tokens for publishing over HTTP.")
COMMANDS["token"] = token


@command("create", token)
@click.argument("name", type=NAME)
@click.option(
    "--scope",
    "scopes",
    type=ValidatedType("scope", check_identifier),
    multiple=True,
    help="A scope that it is for; may be repeated.",
)
@click.option(
    "--can",
    "permissions",
    type=ValidatedType("permissions", parse_permissions),
    metavar="LIST",
    default="publish",
    show_default=True,
    help=f"What it may do: {', '.join(PERMISSIONS)}, with commas between.",
)
@expires_option
def create(name: str, scopes: tuple[str, ...], permissions: str, expires: str) -> None:
    """Create a token, and print it.

    It is shown only now: the database holds its hash. With admin it may do everything in all
    scopes; otherwise it needs a scope.
    """
    allowed = [each for each in PERMISSIONS if each in permissions.split(",")]
    if ADMIN in allowed and scopes:
        raise click.UsageError("A token with admin is for all scopes; leave out --scope.")
    if ADMIN not in allowed and not scopes:
        raise click.UsageError("Give a --scope.")
    created, text = tokens.create_token(
        database(),
        local_actor(),
        name,
        [*dict.fromkeys(scopes)],
        [ADMIN] if ADMIN in allowed else allowed,
        lifetime(expires),
    )
    print_secret("Created", created, text)


def print_secret(verb: str, created: Token, text: str) -> None:
    """Print the text of a token, which cannot be read again."""
    click.echo(text)
    validity = describe_expiry(created.expires_at)
    print_status(f"{verb} the token {created.name}, {validity}. It is shown only now.")


@command("list", token)
@json_option
def list_command(json_output: bool) -> None:
    """List all tokens, also those that are no longer valid."""
    with database().read() as connection:
        found = tokens.list_tokens(connection)
    time = now()
    if json_output:
        click.echo(format_json([token_json(each, time) for each in found]))
        return
    headings = ("NAME", "ID", "STATUS", "CAN", "SCOPES", "EXPIRES", "LAST USED")
    cells = [
        [
            each.name,
            each.id,
            each.status(time),
            ", ".join(each.permissions),
            ", ".join(each.scopes) or "all",
            each.expires_at or NEVER,
            each.last_used_day or NEVER,
        ]
        for each in found
    ]
    click.echo("\n".join(format_table(headings, cells, shrink_first=4)))
    for warning in filter(None, (each.expiry_warning(time) for each in found)):
        print_status(f"Warning: {warning}.")
    print_status(f"{plural(len(found), 'token')}.")


def token_json(shown: Token, time: str) -> Json:
    """Return the token as `token list --json` prints it."""
    return {
        **tokens.describe_token(shown),
        "status": shown.status(time),
        "createdAt": shown.created_at,
        "revokedAt": shown.revoked_at,
        "lastUsedDay": shown.last_used_day,
    }


@command("revoke", token)
@click.argument("name", type=NAME)
def revoke(name: str) -> None:
    """Revoke a token: it is refused from the next request on."""
    changed = tokens.revoke_token(database(), local_actor(), name)
    print_status(f"The token {name} is {'' if changed else 'already '}revoked.")


@command("rotate", token)
@click.argument("name", type=NAME)
@expires_option
def rotate(name: str, expires: str) -> None:
    """Replace the secret of a token, and print the new one.

    The old one is refused from the next request on. Scopes and permissions stay.
    """
    rotated, text = tokens.rotate_token(database(), local_actor(), name, lifetime(expires))
    print_secret("Rotated", rotated, text)
