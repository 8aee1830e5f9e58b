"""The catalog that a command works on: a database on this machine, or a service's catalog."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..domain.changes import (
    Edited,
    MissingWidgetError,
    Moderated,
    NewVersion,
    Published,
    WidgetName,
)
from ..domain.documents import Json
from ..domain.installed_list import Installed, UpdatesQuery
from ..domain.validators import check_keywords
from ..remote.token_file import stored_ca
from ..settings import served_url
from ..store.connection.sqlite import today
from ..store.read.about import find_origin
from ..store.read.audit import local_actor, read_entries
from ..store.read.installs import find_installs
from ..store.read.lookup import find_widget
from ..store.read.updates import find_updates
from ..store.read.widget_list import list_widgets, read_shown
from ..store.write import moderation, publishing
from .context import REMOTE, SETTINGS, bundles, database, files
from .output import print_status
from .server_option import Server, named_server

# Only --server needs urllib3, so modules that depend on urllib3 are imported inside functions.
if TYPE_CHECKING:
    from ..remote.remote_catalog import RemoteCatalog


def open_remote(server: Server) -> "RemoteCatalog":
    """Return a service's catalog, and trust the certificates that login stored for it."""
    from ..remote.remote_catalog import RemoteCatalog
    from ..remote.service import Service

    context = click.get_current_context()
    service = Service(server.url, server.ca or stored_ca(server.url), print_status)
    context.call_on_close(service.close)
    context.meta[REMOTE] = catalog = RemoteCatalog(service)
    return catalog


def open_catalog() -> "DatabaseCatalog | RemoteCatalog":
    """Return the catalog that this command works on: a remote catalog, or the local one."""
    context = click.get_current_context()
    if SETTINGS in context.meta and {"server", "ca"} & context.meta.keys():
        raise click.UsageError("Use either --server or --database.")
    server = None if SETTINGS in context.meta else named_server(context)
    return open_remote(server) if server else DatabaseCatalog()


class DatabaseCatalog:
    """The catalog in this machine's database, with the same methods as a RemoteCatalog."""

    @property
    def bundle_url(self) -> str:
        """The default URL for bundles; empty if bundles are stored with the catalog."""
        return str(files().config["BUNDLE_URL"])

    @property
    def bundles_name(self) -> str:
        return bundles().name

    def publish(self, new: NewVersion, *, dry_run: bool) -> Published:
        return publishing.publish(
            database(), bundles(), files().config, local_actor(), new, dry_run=dry_run
        )

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        return moderation.set_yanked(
            database(), local_actor(), targets, yanked, reason, dry_run=dry_run
        )

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[Moderated]:
        return moderation.set_deprecation(
            database(), local_actor(), targets, message, dry_run=dry_run
        )

    def edit_widget(
        self, widget: WidgetName, changes: Json, picture: bytes | None = None
    ) -> Edited:
        columns = dict(changes)
        if "keywords" in changes:
            columns["keywords"] = check_keywords(changes["keywords"])
        return moderation.edit_widget(
            database(), bundles(), local_actor(), widget, columns, picture
        )

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        with database().read() as connection:
            names = widget and (widget.scope, widget.name)
            return read_entries(connection, names, since=since or "", limit=limit or -1)

    def read_list(self, scope: str | None, sort: str, *, unlisted: bool) -> list[Json]:
        with database().read() as connection:
            return list_widgets(connection, scope, unlisted=unlisted, sort=sort)

    def read_document(self, widget: WidgetName) -> Json:
        url = served_url(files().config)
        with database().read() as connection:
            shown = read_shown(connection, bundles(), widget.scope, widget.name, url)
        if shown is None:
            raise MissingWidgetError(widget.widget)
        return shown

    def read_installs(self, widget: WidgetName, days: int) -> Json | None:
        names = widget.scope, widget.name
        with database().read() as connection:
            found = find_installs(connection, *names, days=days, today=today(), unlisted=True)
        installs: Json | None = json.loads(found) if found else None
        return installs

    def read_origin(self, widget: WidgetName) -> dict[str, str]:
        """Return a copy's upstream as a field to print."""
        with database().read() as connection:
            origin = find_origin(connection, widget.scope, widget.name)
        return {"copied from": origin} if origin else {}

    def find_updates(
        self, sdk: str, installed: Sequence[Installed], before: str | None
    ) -> list[Json]:
        _, body = find_updates(database().reader(), UpdatesQuery(sdk, tuple(installed), before))
        items: list[Json] = json.loads(body)["updates"]
        return items


def resolve_name(catalog: "DatabaseCatalog | RemoteCatalog", target: WidgetName) -> WidgetName:
    """Return the whole target as a widget name if a stored widget is called that.

    Earlier releases allowed an @ in names.
    """
    whole = WidgetName(target.scope, f"{target.name}@{target.version}")
    is_local = isinstance(catalog, DatabaseCatalog)
    # No name contains unprintable characters, and SQLite rejects lone surrogates.
    if target.version is None or not is_local or not whole.name.isprintable():
        return target
    return whole if find_widget(database().fetch, whole.scope, whole.name) else target
