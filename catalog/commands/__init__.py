"""The operator's command line: flask publish, flask yank and so on, a module for each family."""

from catalog.commands import changes, files, publish, reading, upkeep  # noqa: F401, each adds its own
from catalog.commands.base import commands

__all__ = ["commands"]
