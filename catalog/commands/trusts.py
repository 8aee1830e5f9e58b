"""widget-catalog trust: manages the CI systems whose jobs may publish with id tokens."""

from datetime import timedelta
from importlib.util import find_spec

import click

from ..domain.messages import NotAllowedError, plural
from ..domain.permissions import DESCRIBE, PUBLISH, YANK, Access
from ..domain.timestamps import now
from ..domain.token_text import generate_token
from ..domain.trusts import PATTERN_CLAIMS, Trust, check_issuer, parse_claim, parse_jwks
from ..store.read.audit import local_actor
from ..store.read.trusts import describe_trust, list_trusts
from ..store.write.trusts import add_trust, remove_trust
from .base import COMMANDS, CommandGroup, command
from .context import database, files
from .options import (
    CONTENT,
    SCOPE,
    WIDGET_PATH,
    ValidatedType,
    duration,
    json_option,
    list_option,
    parse_age,
)
from .output import CommandError, print_json, print_lines, print_status
from .terminal import format_table
from .tokens import NAME

JOB_PERMISSIONS = (PUBLISH, YANK, DESCRIBE)
MAX_MINUTES = 24 * 60
trust = CommandGroup("trust", help="Manage the CI systems whose jobs publish without a secret.")
COMMANDS["trust"] = trust


def parse_minutes(text: str) -> int:
    """Return the lifetime of a job's token in minutes; raise NotAllowedError if it is invalid."""
    minutes = duration(parse_age(text, units="mh")) // timedelta(minutes=1)
    if not 0 < minutes <= MAX_MINUTES:
        raise NotAllowedError("1m to 24h")
    return minutes


def check_library() -> None:
    """Raise CommandError if the libraries for verifying id tokens are not installed."""
    if any(find_spec(name) is None for name in ("jwt", "cryptography")):
        raise CommandError(
            "The libraries that verify id tokens are not installed. Install the wheel with its "
            "extra: pip install 'widget_catalog-….whl[oidc]'."
        )


@command("add", trust)
@click.argument("name", type=NAME)
@click.option(
    "--issuer",
    required=True,
    type=ValidatedType("URL", check_issuer),
    metavar="URL",
    help="Set the issuer of the id tokens, exactly as in their iss claim.",
)
@click.option(
    "--claim",
    "claims",
    type=ValidatedType("claim", parse_claim),
    metavar="KEY=VALUE",
    multiple=True,
    required=True,
    help="Require this claim in the id token. Repeatable. Warning: a value that ends in * also "
    f"matches names that others choose; it is allowed for {', '.join(PATTERN_CLAIMS)}.",
)
@list_option("--scope", "scopes", type=SCOPE, help="Allow changes to all widgets of this scope.")
@list_option("--widget", "widgets", type=WIDGET_PATH, help="Allow changes to this widget.")
@list_option(
    "--can",
    "permissions",
    type=click.Choice(JOB_PERMISSIONS),
    metavar="PERMISSION",
    default=[PUBLISH],
    show_default=True,
    help=f"Grant this permission: {', '.join(JOB_PERMISSIONS)}.",
)
@click.option(
    "--jwks",
    type=CONTENT,
    metavar="FILE",
    help="Read the keys of the issuer from this JSON Web Key Set, and never fetch them.",
)
@click.option(
    "--ca",
    type=CONTENT,
    metavar="FILE",
    help="Trust the certificates in this PEM file when the keys are fetched.",
)
@click.option(
    "--expires",
    "minutes",
    type=ValidatedType("lifetime", parse_minutes),
    metavar="15m|1h",
    default="15m",
    show_default=True,
    help="Set how long a job can use its token.",
)
def add(
    name: str,
    issuer: str,
    claims: tuple[tuple[str, str], ...],
    scopes: tuple[str, ...],
    widgets: tuple[str, ...],
    permissions: tuple[str, ...],
    jwks: bytes | None,
    ca: bytes | None,
    minutes: int,
) -> None:
    """Let the jobs of a CI system publish with their id tokens.

    A job proves its identity with an id token from its CI system, and gets a short-lived token. The
    issuer and every claim must match exactly, and the audience must be CATALOG_PUBLIC_URL. The
    audit log shows NAME together with the subject of the id token.
    """
    check_library()
    if not scopes and not widgets:
        raise click.UsageError("Specify --scope or --widget.")
    if len(dict(claims)) < len(claims):
        raise click.UsageError("Specify each --claim only once.")
    allowed = [each for each in JOB_PERMISSIONS if each in permissions]
    new = Trust(
        id=generate_token()[0],
        name=name,
        issuer=issuer,
        claims=dict(claims),
        access=Access(allowed, [*scopes], [*widgets]),
        minutes=minutes,
        jwks=read_jwks(jwks),
        ca=read_certificates(ca),
        created_at=now(),
    )
    add_trust(database(), local_actor(), new)
    print_status(f"Added the trust {name}.")
    if new.is_for_every_project:
        print_status(
            f"Warning: no claim names a project or a subject, so every project of {issuer} "
            "that has these claims may publish."
        )
    if not files().config["PUBLIC_URL"]:
        print_status("Warning: set CATALOG_PUBLIC_URL; it is the audience of id tokens.")


def read_jwks(content: bytes | None) -> str | None:
    """Return a key set as a string; raise UsageError if the file is not a key set."""
    if content is None:
        return None
    try:
        parse_jwks(content)
        return content.decode()
    except ValueError:
        raise click.UsageError("The --jwks file is not a JSON Web Key Set.") from None


def read_certificates(content: bytes | None) -> str | None:
    """Return the certificates in a PEM file; raise UsageError if it has none."""
    # This import is local because few commands need TLS.
    from ..system.tls import CertificatesError, PemText, create_context

    if content is None:
        return None
    try:
        text = content.decode("ascii")
        create_context(PemText(text))
    except (UnicodeDecodeError, CertificatesError):
        raise click.UsageError("The --ca file does not contain PEM certificates.") from None
    return text


@command("list", trust)
@json_option
def list_command(json_output: bool) -> None:
    """List all trusts."""
    found = list_trusts(database().fetch)
    if json_output:
        print_json([{**describe_trust(each), "createdAt": each.created_at} for each in found])
        return
    headings = ("NAME", "ISSUER", "CLAIMS", "CAN", "FOR", "EXPIRES")
    cells = [
        [
            each.name,
            each.issuer,
            ", ".join(f"{key}={value}" for key, value in each.claims.items()),
            ", ".join(each.access.permissions),
            ", ".join([*each.access.scopes, *each.access.widgets]),
            f"{each.minutes}m",
        ]
        for each in found
    ]
    print_lines(*format_table(headings, cells, shrink_first=2))
    print_status(f"{plural(len(found), 'trust')}.")


@command("remove", trust)
@click.argument("name", type=NAME)
def remove(name: str) -> None:
    """Remove a trust: its tokens are refused from the next request on."""
    remove_trust(database(), local_actor(), name)
    print_status(f"Removed the trust {name}. Its tokens are no longer valid.")
