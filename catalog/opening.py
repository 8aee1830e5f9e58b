"""What the service and every command need: settings, the database, and the held bundles."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .settings import DEFAULTS, environment_settings, parse_settings, warn_of_unknown_settings
from .store.bundles import Bundles
from .store.connection.database import Database


class Files(NamedTuple):
    """The parsed settings, and the files that they name; nothing is read before it is used."""

    config: Mapping[str, Any]
    database: Database
    bundles: Bundles


def open_files(given: Mapping[str, object]) -> Files:
    """Return the files of a catalog; raise SettingError if a setting is invalid.

    The settings in the argument take precedence over those in the environment.
    """
    warn_of_unknown_settings(os.environ)
    config: dict[str, Any] = {**DEFAULTS, **environment_settings(os.environ), **given}
    parse_settings(config)
    database = open_database(config)
    # Each database has its own directory: the command gc removes bundles that it does not name.
    default_bundles = database.path.with_name(f"{database.path.name}-bundles")
    return Files(config, database, Bundles(Path(config["BUNDLES"] or default_bundles)))


def open_database(config: Mapping[str, Any]) -> Database:
    """Return the database that the settings describe: a file, or the cluster that owns it."""
    if not config["RQLITE"]:
        return Database(config["DATABASE"])
    # Only a cluster needs urllib3.
    from .store.connection.cluster.cluster import Cluster
    from .store.connection.cluster.rqlite_http import Node

    node = Node(config["RQLITE"], config["RQLITE_AUTH"], config["RQLITE_CA"])
    return Cluster(config["DATABASE"], node)
