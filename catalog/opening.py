"""Loads the settings, and opens the database and stored bundles, for the service and commands."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .settings import (
    DEFAULTS,
    SettingError,
    environment_settings,
    parse_settings,
    warn_of_unknown_settings,
)
from .store.bundles.bundles import Bundles
from .store.connection.database import Database
from .system.paths import path_text


class Files(NamedTuple):
    """The parsed settings, with the database and bundles that they name, opened on first use."""

    config: Mapping[str, Any]
    database: Database
    bundles: Bundles


def configure_catalog(given: Mapping[str, object]) -> Files:
    """Return a catalog's files; raise SettingError if a setting is invalid.

    Settings in the argument take precedence over environment variables.
    """
    warn_of_unknown_settings(os.environ)
    config: dict[str, Any] = {**DEFAULTS, **environment_settings(os.environ), **given}
    parse_settings(config)
    database = open_database(config)
    return Files(config, database, Bundles(Path(config["BUNDLES"] or default_bundles(database))))


def default_bundles(database: Database) -> Path:
    """Return the bundle directory beside the database file; if the path is a link, follow it.

    Each database has its own directory, because gc removes bundles that the database does not name.
    Raise SettingError if the path is a directory, or if the bundles are still beside the link.
    """
    path, real_path = database.path, database.real_path
    if os.path.isdir(path):
        raise SettingError(
            f"CATALOG_DATABASE must name a file, but {database.name} is a directory."
        )
    directory = real_path.with_name(f"{real_path.name}-bundles")
    # If the path was a link, release 1.0.0 stored the bundles beside the link.
    old = path.with_name(f"{path.name}-bundles")
    if os.path.realpath(old) == str(directory):
        # Messages show the path as the operator wrote it.
        return old
    if os.path.isdir(old) and not os.path.exists(directory):
        raise SettingError(
            f"{database.name} is a link, so its bundles belong in {path_text(directory)}. Move "
            f"{path_text(old)} there, or set CATALOG_BUNDLES."
        )
    return directory


def open_database(config: Mapping[str, Any]) -> Database:
    """Return the database that the settings describe: a file, or the cluster that owns the file."""
    if not config["RQLITE"]:
        return Database(config["DATABASE"])
    # This import is local because only a cluster needs an HTTP client.
    from .store.connection.cluster.cluster import Cluster
    from .store.connection.cluster.rqlite_http import Node

    node = Node(config["RQLITE"], config["RQLITE_AUTH"], config["RQLITE_CA"])
    return Cluster(config["DATABASE"], node)
