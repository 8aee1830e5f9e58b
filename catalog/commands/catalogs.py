"""The catalog that a command works on: in the database of this machine, or behind a service."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..changes import Edited, Moderated, NewVersion, Published, WidgetName
from ..documents import Json
from ..installed_list import Installed, UpdatesQuery
from ..remote.token_file import stored_ca
from ..server_option import Server, named_server
from ..store.connection.sqlite import today
from ..store.read import json_sql
from ..store.read.about import find_origin
from ..store.read.export import read_document
from ..store.read.installs import find_installs
from ..store.read.updates import find_updates
from ..store.write import moderation, publishing
from ..store.write.audit import local_actor, read_entries
from ..store.write.lookup import find_widget, get_widget
from .base import REMOTE, SETTINGS, bundles, database, files, print_status

# Only --server needs urllib3, so the functions for it import what needs it.
if TYPE_CHECKING:
    from ..remote.catalog import RemoteCatalog


def open_remote(server: Server) -> "RemoteCatalog":
    """Return the catalog of a service, which is trusted as its login said."""
    from ..remote.catalog import RemoteCatalog
    from ..remote.service import Service

    context = click.get_current_context()
    service = Service(server.url, server.ca or stored_ca(server.url), print_status)
    context.call_on_close(service.close)
    context.meta[REMOTE] = catalog = RemoteCatalog(service)
    return catalog


def open_catalog() -> "DatabaseCatalog | RemoteCatalog":
    """Return the catalog that this command works on: that of a service, or the one here."""
    context = click.get_current_context()
    if SETTINGS in context.meta and {"server", "ca"} & context.meta.keys():
        raise click.UsageError("Use either --server or --database.")
    server = None if SETTINGS in context.meta else named_server(context)
    return open_remote(server) if server else DatabaseCatalog()


LIST = f"""
SELECT json_set({json_sql.WIDGET},
        '$.listed', json(iif(listed, 'true', 'false')),
        '$.versions', (SELECT count(*) FROM version WHERE widget_id = widget.id),
        '$.latestVersion', latest.version,
        '$.deprecationMessage', latest.deprecation_message,
        '$.updatedAt', updated_at) AS json
FROM (
    SELECT *, coalesce(
        (SELECT max(published_at) FROM version WHERE widget_id = widget.id), created_at
    ) AS updated_at FROM widget
) AS widget LEFT JOIN version AS latest ON latest.id = (
    SELECT id FROM version WHERE widget_id = widget.id AND yanked = 0
    ORDER BY {json_sql.NEWEST_FIRST} LIMIT 1)
WHERE (:scope IS NULL OR scope = :scope) AND (NOT :unlisted OR NOT listed)
ORDER BY
    CASE :sort WHEN 'updated' THEN updated_at WHEN 'created' THEN widget.created_at END DESC,
    scope, name
"""


class DatabaseCatalog:
    """The catalog in the database of this machine, with the same methods as a RemoteCatalog."""

    # Whether a bundle is stored if publish has neither --store nor --bundle-url.
    stores_by_default = False

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

    def edit_widget(self, widget: WidgetName, changes: Json) -> Edited:
        return moderation.edit_widget(database(), local_actor(), widget, changes)

    def set_picture(self, widget: WidgetName, content: bytes) -> Edited:
        return moderation.set_picture(database(), bundles(), local_actor(), widget, content)

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        with database().read() as connection:
            names = widget and (widget.scope, widget.name)
            return read_entries(connection, names, since=since or "", limit=limit or -1)

    def read_list(self, scope: str | None, unlisted: bool, sort: str) -> list[Json]:
        values = {"scope": scope, "unlisted": unlisted, "sort": sort}
        with database().read() as connection:
            return [json.loads(row["json"]) for row in connection.execute(LIST, values)]

    def read_document(self, widget: WidgetName) -> Json:
        row = get_widget(database().fetch, widget)
        with database().read() as connection:
            return read_document(connection, row)

    def read_installs(self, widget: WidgetName, days: int) -> Json | None:
        names = widget.scope, widget.name
        with database().read() as connection:
            found = find_installs(connection, *names, days=days, today=today(), unlisted=True)
        installs: Json | None = json.loads(found[1]) if found else None
        return installs

    def read_origin(self, widget: WidgetName) -> dict[str, str]:
        """Return from where a copy is, as a field to print."""
        with database().read() as connection:
            origin = find_origin(connection, widget.scope, widget.name)
        return {"copied from": origin} if origin else {}

    def find_updates(self, sdk: str, installed: Sequence[Installed]) -> list[Json]:
        _, body = find_updates(database().reader(), UpdatesQuery(sdk, tuple(installed)))
        items: list[Json] = json.loads(body)["updates"]
        return items


def resolve_name(catalog: "DatabaseCatalog | RemoteCatalog", target: WidgetName) -> WidgetName:
    """Return the target without a version if the @ belongs to the name of a widget here.

    An earlier release may have stored it.
    """
    whole = WidgetName(target.scope, f"{target.name}@{target.version}")
    is_local = isinstance(catalog, DatabaseCatalog)
    # No name has unprintable characters, and SQLite takes no lone surrogates.
    if target.version is None or not is_local or not whole.name.isprintable():
        return target
    return whole if find_widget(database().fetch, whole.scope, whole.name) else target
