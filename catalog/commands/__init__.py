"""The commands of widget-catalog, one module per family."""

# Importing a module registers its commands.
from . import (  # noqa: F401
    bundles,
    cluster,
    edit,
    gc,
    health,
    import_export,
    list_show,
    log,
    login,
    maintenance,
    mirror,
    outdated,
    publish,
    serve,
    stats,
    tokens,
)
from .base import COMMANDS

__all__ = ["COMMANDS"]
