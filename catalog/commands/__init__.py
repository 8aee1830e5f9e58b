"""The commands of widget-catalog, one module per family."""

# Importing a module registers its commands.
from catalog.commands import (  # noqa: F401
    bundles,
    cluster,
    edit,
    import_export,
    list_show,
    maintenance,
    mirror,
    outdated,
    publish,
    tokens,
)
from catalog.commands.base import commands
from catalog.serving.health_client import health

commands.cli.add_command(health)

__all__ = ["commands"]
