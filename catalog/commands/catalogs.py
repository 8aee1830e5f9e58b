"""The catalog that a command changes: in the database of this machine, or behind a service."""

from collections.abc import Sequence
from typing import Protocol

from flask import Flask

from ..documents import Json, Row
from ..store.write import moderation, publishing
from ..store.write.audit import local_actor, read_entries
from ..store.write.lookup import WidgetName
from ..store.write.moderation import LatestChange, VersionChange
from ..store.write.publishing import PublishResult, Upload
from .base import application, bundles, database
from .lookup import get_widget

# The key of the RemoteCatalog in the extensions of an application without a database.
REMOTE_CATALOG = "remote_catalog"


class Catalog(Protocol):
    """What commands can do to a catalog, wherever it is."""

    # Whether a bundle is stored if publish has neither --store nor --bundle-url.
    stores_by_default: bool

    @property
    def bundles_name(self) -> str:
        """Where bundles are stored, for messages."""

    def publish(self, upload: Upload, *, dry_run: bool) -> PublishResult:
        """Add a version, and store its bundle if its content is given."""

    def set_yanked(
        self, targets: Sequence[WidgetName], yanked: bool, reason: str | None, *, dry_run: bool
    ) -> tuple[list[VersionChange], list[LatestChange]]:
        """Yank the versions or make them available again; None as the reason keeps the stored one.

        Return what changed in the versions, and in the latest versions of their widgets.
        """

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[VersionChange]:
        """Set the warning of the versions; None removes it."""

    def edit_widget(self, widget: WidgetName, changes: Row) -> bool:
        """Set columns of the widget; return whether one of them was different."""

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        """Return the recorded changes, the newest first."""


def create_remote_app(url: str, ca: str | None) -> Flask:
    """Return an application for commands that change the catalog of another machine."""
    # Only these commands need urllib3, which the imported modules need.
    from ..remote.catalog import RemoteCatalog
    from ..remote.service import Service

    app = Flask("catalog")
    app.extensions[REMOTE_CATALOG] = RemoteCatalog(Service(url, ca))
    return app


def open_catalog() -> Catalog:
    """Return the catalog that this command changes."""
    remote: Catalog | None = application().extensions.get(REMOTE_CATALOG)
    return remote or DatabaseCatalog()


class DatabaseCatalog:
    """The catalog in the database of this machine."""

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
    ) -> tuple[list[VersionChange], list[LatestChange]]:
        check_widgets(targets)
        return moderation.set_yanked(
            database(), local_actor(), targets, yanked, reason, dry_run=dry_run
        )

    def set_deprecation(
        self, targets: Sequence[WidgetName], message: str | None, *, dry_run: bool
    ) -> list[VersionChange]:
        check_widgets(targets)
        return moderation.set_deprecation(
            database(), local_actor(), targets, message, dry_run=dry_run
        )

    def edit_widget(self, widget: WidgetName, changes: Row) -> bool:
        get_widget(widget)
        return moderation.edit_widget(database(), local_actor(), widget, changes)

    def read_log(
        self, widget: WidgetName | None, since: str | None, limit: int | None
    ) -> list[Json]:
        with database().read() as connection:
            names = widget and (widget.scope, widget.name)
            return read_entries(connection, names, since=since or "", limit=limit or -1)


def check_widgets(targets: Sequence[WidgetName]) -> None:
    """Raise CommandError, with the nearest widget, if one of the widgets does not exist."""
    for widget in dict.fromkeys(target.widget for target in targets):
        get_widget(widget)
