"""widget-catalog cluster and migrate: show a cluster's nodes, and migrate its catalog."""

import os

import click

from ..domain.messages import plural
from ..store.schema.schema import SCHEMA_VERSION
from .base import command
from .context import database
from .options import json_option
from .output import CommandError, print_json, print_lines, print_status
from .terminal import format_table

# The help lists these commands only if CATALOG_RQLITE is set, as in a cluster.
IS_HIDDEN = not os.environ.get("CATALOG_RQLITE")


@command("cluster", hidden=IS_HIDDEN)
@click.argument("action", type=click.Choice(["status"]))
@json_option
def cluster(action: str, json_output: bool) -> None:
    """Show the nodes of the cluster.

    The exit status is 1 if there is no leader, or if a node cannot be reached. It is also 1 if the
    local node's database is behind the leader or has a different schema.
    """
    # This import is local because it needs urllib3, which few commands use.
    from ..store.connection.cluster.cluster import Cluster

    catalog = database()
    if not isinstance(catalog, Cluster):
        raise CommandError(
            "CATALOG_RQLITE is not set: this catalog is a single file, not a cluster."
        )
    nodes = catalog.node.list_nodes()
    if json_output:
        print_json(nodes)
    else:
        rows = [[str(value) for value in node.values()] for node in nodes]
        headings = ["NODE", "ADDRESS", "ROLE", "REACHABLE"]
        print_lines(*format_table(headings, rows, shrink_first=1))
    unreachable = sum(not node["reachable"] for node in nodes)
    if unreachable:
        raise CommandError(f"{unreachable} of {plural(len(nodes), 'node')} cannot be reached.")
    catalog.check()
    catalog.check_writes()
    print_status(f"{plural(len(nodes), 'node')}, all in order.")


@command("migrate", hidden=IS_HIDDEN)
def migrate() -> None:
    """Migrate the catalog to this release's schema.

    A catalog in one file is copied first, and the copy is kept beside it; the service also migrates
    such a catalog when it starts. A cluster is migrated only by this command: stop all services
    first, and start the services of this release afterwards.
    """
    database().migrate()
    print_status(f"{database().name} has schema version {SCHEMA_VERSION}.")
