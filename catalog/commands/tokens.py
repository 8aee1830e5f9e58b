"""widget-catalog token: manages the tokens for publishing over HTTP."""

import click

from ..domain.documents import Json
from ..domain.messages import NotAllowedError, plural
from ..domain.permissions import ADMIN, PERMISSIONS, Access
from ..domain.timestamps import now
from ..store.read.audit import local_actor
from ..store.read.tokens import Token, describe_token, list_tokens
from ..store.write.tokens import MAX_NAME_LENGTH, create_token, revoke_token, rotate_token
from .base import COMMANDS, CommandGroup, command
from .context import database
from .options import (
    NEVER,
    SCOPE,
    WIDGET_PATH,
    ValidatedType,
    json_option,
    lifetime,
    list_option,
    parse_age,
    parse_lifetime,
)
from .output import describe_expiry, print_json, print_lines, print_status
from .terminal import format_table


def parse_name(text: str) -> str:
    """Return a token name; raise NotAllowedError if it is invalid."""
    if not (0 < len(text) <= MAX_NAME_LENGTH and text.isprintable() and text == text.strip()):
        raise NotAllowedError(
            f"1 to {MAX_NAME_LENGTH} printable characters without leading or trailing spaces"
        )
    return text


def parse_permission(text: str) -> str:
    """Return a permission name; raise NotAllowedError if it is invalid."""
    if text not in PERMISSIONS:
        raise NotAllowedError(f"a permission: {', '.join(PERMISSIONS)}")
    return text


NAME = ValidatedType("name", parse_name)
expires_option = click.option(
    "--expires",
    type=ValidatedType("lifetime", parse_lifetime),
    metavar="90d|12h|never",
    default="90d",
    show_default=True,
    help="Set how long the token is valid.",
)
token = CommandGroup("token", help="Manage the tokens for publishing over HTTP.")
COMMANDS["token"] = token


@command("create", token)
@click.argument("name", type=NAME)
@list_option("--scope", "scopes", type=SCOPE, help="Allow changes to all widgets of this scope.")
@list_option("--widget", "widgets", type=WIDGET_PATH, help="Allow changes to this widget.")
@list_option(
    "--can",
    "permissions",
    type=ValidatedType("permission", parse_permission),
    default=["publish"],
    show_default=True,
    help=f"Grant this permission: {', '.join(PERMISSIONS)}.",
)
@expires_option
def create(
    name: str,
    scopes: tuple[str, ...],
    widgets: tuple[str, ...],
    permissions: tuple[str, ...],
    expires: str,
) -> None:
    """Create a token, and print it.

    The token is shown only once, since the database stores only its hash. A token with the
    admin permission is valid for all widgets. Any other token needs --scope or --widget.
    """
    allowed = [each for each in PERMISSIONS if each in permissions]
    is_limited = bool(scopes or widgets)
    if ADMIN in allowed and is_limited:
        raise click.UsageError(
            "An admin token is valid for all widgets; omit --scope and --widget."
        )
    if ADMIN not in allowed and not is_limited:
        raise click.UsageError("Specify --scope or --widget.")
    access = Access(
        [ADMIN] if ADMIN in allowed else allowed,
        [*scopes],
        [*widgets],
    )
    created, text = create_token(database(), local_actor(), name, access, lifetime(expires))
    print_secret("Created", created, text)


def print_secret(verb: str, created: Token, text: str) -> None:
    """Print a token's secret, which is shown only once."""
    print_lines(text)
    validity = describe_expiry(created.expires_at)
    print_status(f"{verb} the token {created.name}, {validity}. It is shown only once.")


@command("list", token)
@json_option
def list_command(json_output: bool) -> None:
    """List all tokens, including expired and revoked ones."""
    with database().read() as connection:
        found = list_tokens(connection)
    time = now()
    if json_output:
        print_json([token_json(each, time) for each in found])
        return
    headings = ("NAME", "ID", "STATUS", "CAN", "FOR", "EXPIRES", "LAST USED")
    cells = [
        [
            each.name,
            each.id,
            each.status(time),
            ", ".join(each.access.permissions),
            ", ".join([*each.access.scopes, *each.access.widgets]) or "all",
            each.expires_at or NEVER,
            each.last_used_day or NEVER,
        ]
        for each in found
    ]
    print_lines(*format_table(headings, cells, shrink_first=4))
    for warning in filter(None, (each.expiry_warning(time) for each in found)):
        print_status(f"Warning: {warning}.")
    for each in found:
        end = each.previous_expires_at
        if end and end > time and each.status(time) == "active":
            print_status(f"The previous secret of the token {each.name} is valid until {end}.")
    print_status(f"{plural(len(found), 'token')}.")


def token_json(shown: Token, time: str) -> Json:
    """Return the token as `token list --json` prints it."""
    return {
        **describe_token(shown),
        "status": shown.status(time),
        "createdAt": shown.created_at,
        "revokedAt": shown.revoked_at,
        "lastUsedDay": shown.last_used_day,
        "previousExpiresAt": shown.previous_expires_at,
    }


@command("revoke", token)
@click.argument("name", type=NAME)
def revoke(name: str) -> None:
    """Revoke a token: it is refused from the next request on."""
    changed = revoke_token(database(), local_actor(), name)
    print_status(f"The token {name} is {'' if changed else 'already '}revoked.")


@command("rotate", token)
@click.argument("name", type=NAME)
@expires_option
@click.option(
    "--overlap",
    type=ValidatedType("duration", parse_age),
    metavar="1h|2d",
    help="Keep the old secret valid for this long.",
)
def rotate(name: str, expires: str, overlap: str | None) -> None:
    """Replace a token's secret, and print the new one.

    The token keeps its name, permissions, scopes and widgets. Without --overlap, the old secret is
    refused from the next request on.
    """
    kept = lifetime(overlap) if overlap else None
    rotated, text = rotate_token(database(), local_actor(), name, lifetime(expires), kept)
    print_secret("Rotated", rotated, text)
    if rotated.previous_expires_at:
        print_status(f"The old secret is valid until {rotated.previous_expires_at}.")
