"""The catalog that a command works on: in the database of this machine, or behind a service."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from flask.cli import ScriptInfo

from ..documents import Json, Row
from ..remote.token_file import remembered_servers
from ..server_option import Server, named_server
from ..settings import DEFAULTS
from ..store.write import moderation, publishing
from ..store.write.audit import local_actor, read_entries
from ..store.write.lookup import WidgetName
from ..store.write.moderation import Moderation, VersionChange
from ..store.write.publishing import PublishResult, Upload
from .base import application, bundles, database, print_status

# Only --server needs urllib3, so the functions for it import what needs it.
if TYPE_CHECKING:
    from ..remote.catalog import RemoteCatalog


def find_server() -> Server | None:
    """Return the service that the command works on; None is the database of this machine.

    It is named by an option or a variable, or is that of the last login if no database is named and
    there is none.
    """
    context = click.get_current_context()
    if "DATABASE" in context.ensure_object(ScriptInfo).data:
        if "server" in context.meta:
            raise click.UsageError("Use either --server or --database.")
        return None
    if server := named_server(context):
        return server._replace(ca=server.ca or remembered_servers().get(server.url))
    if application().config["DATABASE"] != DEFAULTS["DATABASE"] or database().exists():
        return None
    if server := last_login():
        print_status(f"The catalog is that of {server.url}, where you are logged in.")
    return server


def last_login() -> Server | None:
    """Return the service of the last login, if there is one."""
    servers = [Server(*each) for each in remembered_servers().items()]
    return servers[-1] if servers else None


def open_remote(server: Server) -> "RemoteCatalog":
    """Return the catalog of a service."""
    from ..remote.catalog import RemoteCatalog
    from ..remote.service import Service

    return RemoteCatalog(Service(server.url, server.ca))


def open_catalog() -> "DatabaseCatalog | RemoteCatalog":
    """Return the catalog that this command works on."""
    server = find_server()
    return open_remote(server) if server else DatabaseCatalog()


class DatabaseCatalog:
    """The catalog in the database of this machine, with the same methods as a RemoteCatalog."""

    # Whether a bundle is stored if publish has neither --store nor --bundle-url.
    stores_by_default = False

    @property
    def bundles_name(self) -> str:
        return bundles().name

    def publish(self, upload: Upload, *, dry_run: bool) -> PublishResult:
        return publishing.publish(
            database(), bundles(), application().config, local_actor(), upload, dry_run=dry_run
        )

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> Moderation:
        return moderation.set_yanked(
            database(), local_actor(), targets, yanked, reason, dry_run=dry_run
        )

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[VersionChange]:
        return moderation.set_deprecation(
            database(), local_actor(), targets, message, dry_run=dry_run
        )

    def edit_widget(self, widget: WidgetName, changes: Row) -> bool:
        return moderation.edit_widget(database(), local_actor(), widget, changes)

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        with database().read() as connection:
            names = widget and (widget.scope, widget.name)
            return read_entries(connection, names, since=since or "", limit=limit or -1)
