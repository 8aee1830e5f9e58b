"""The operator's command line: flask publish, flask yank and so on, a module for each family."""

from catalog.commands import (  # noqa: F401, each adds its own
    bundles,
    edit,
    import_export,
    list_show,
    maintenance,
    mirror,
    publish,
)
from catalog.commands.base import commands

__all__ = ["commands"]
