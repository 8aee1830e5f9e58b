"""widget-catalog cluster, migrate: the nodes of a cluster, and the schema of its catalog."""

import os
from typing import TYPE_CHECKING

import click

from ..documents import Json
from ..store.schema.schema import SCHEMA_VERSION
from ..text import plural
from .base import CommandError, command, database, json_option, print_status
from .terminal import format_json, format_table

if TYPE_CHECKING:
    from ..store.connection.cluster.rqlite_http import Member

HEADINGS = ["NODE", "ADDRESS", "ROLE", "REVISION", "LAG", "SCHEMA", "FOREIGN KEYS", "RQLITE"]


# Help lists them only for the operator of a cluster.
IS_HIDDEN = not os.environ.get("CATALOG_RQLITE")


@command("cluster", hidden=IS_HIDDEN)
@click.argument("action", type=click.Choice(["status"]))
@json_option
def cluster(action: str, json_output: bool) -> None:
    """Show the nodes of the cluster.

    The revision counts changes and installs, and the lag is how many of them the leader has and the
    node does not. The exit code is 1 if there is no leader, or if a node does not respond or cannot
    be used by this release.
    """
    members = find_members()
    latest = max((sum_revision(member) or 0 for member in members if member.is_leader), default=0)
    nodes = [describe_member(member, latest) for member in members]
    if json_output:
        click.echo(format_json(nodes))
    else:
        rows = [
            ["unknown" if value is None else str(value) for value in node.values()]
            for node in nodes
        ]
        click.echo("\n".join(format_table(HEADINGS, rows, shrink_first=1)))
    unusable = [member.id for member in members if not is_usable(member)]
    if unusable:
        raise CommandError(f"{plural(len(unusable), 'node')} of {len(nodes)} cannot be used.")
    if not latest:
        raise CommandError("The cluster has no leader.")
    print_status(f"{plural(len(nodes), 'node')}, all in order.")


def find_members() -> "list[Member]":
    """Return the members of the cluster; raise CommandError if the catalog is a file."""
    # Few commands need urllib3, which the imported module needs.
    from ..store.connection.cluster.cluster import Cluster

    catalog = database()
    if not isinstance(catalog, Cluster):
        raise CommandError("CATALOG_RQLITE is not set: this catalog is one file.")
    return catalog.nodes.members()


def sum_revision(member: "Member") -> int | None:
    """Return the number of changes and installs of a node; None if it is unknown."""
    return sum(member.state.revision) if member.state and member.state.revision else None


def describe_member(member: "Member", latest: int) -> Json:
    """Return a node as widget-catalog cluster status --json prints it."""
    state, revision = member.state, sum_revision(member)
    return {
        "id": member.id,
        "address": member.address,
        "role": "leader" if member.is_leader else "follower" if member.is_voter else "non-voter",
        "revision": revision,
        # The nodes are read one after another, so a follower may be ahead of what the leader had.
        "lag": max(latest - revision, 0) if latest and revision is not None else None,
        "schemaVersion": state.schema_version if state else None,
        "foreignKeys": state.foreign_keys if state else None,
        "rqliteVersion": state.version if state else None,
    }


def is_usable(member: "Member") -> bool:
    """Return whether a node responds and can be used by this release."""
    state = member.state
    return bool(
        state and state.is_catalog and state.foreign_keys and state.schema_version == SCHEMA_VERSION
    )


@command("migrate", hidden=IS_HIDDEN)
def migrate() -> None:
    """Migrate the catalog to the schema of this release.

    A file is copied beside itself first. The service also migrates it when it starts, but never the
    nodes of a cluster: stop all services first, and start those of this release afterwards.
    """
    database().migrate()
    print_status(f"{database().name} has schema version {SCHEMA_VERSION}.")
