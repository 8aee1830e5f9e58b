"""The commands of widget-catalog, one module per family."""

# Importing a module registers its commands.
from . import (  # noqa: F401
    cluster,
    drill,
    edit,
    gc,
    health,
    import_export,
    list_show,
    log,
    login,
    maintenance,
    mirror,
    mirror_upstreams,
    outdated,
    packs,
    publish,
    serve,
    tokens,
    trusts,
)
from .base import COMMANDS

__all__ = ["COMMANDS"]
