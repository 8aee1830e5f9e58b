"""The commands of widget-catalog, one module per family."""

# Importing a module registers its commands.
from ..serving.health_client import health
from . import (  # noqa: F401
    bundles,
    cluster,
    drill,
    edit,
    import_export,
    list_show,
    login,
    maintenance,
    mirror,
    outdated,
    packs,
    publish,
    stats,
    tokens,
)
from .base import commands

commands.cli.add_command(health)

__all__ = ["commands"]
