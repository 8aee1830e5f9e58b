"""The operator's command line: flask publish, flask yank and so on, a module for each family."""

from catalog.commands import (  # noqa: F401, each adds its own
    bundles,
    changes,
    files,
    mirror,
    publish,
    reading,
    upkeep,
)
from catalog.commands.base import commands

__all__ = ["commands"]
