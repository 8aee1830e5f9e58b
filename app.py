"""Entry point: `python app.py` serves the catalog, and `flask` runs the operator's commands."""

import sys
from collections.abc import Mapping

import click
from flask import Flask
from flask.cli import AppGroup

from catalog import application
from catalog.commands import COMMANDS
from catalog.commands.context import FILES, SERVICE
from catalog.opening import Files
from catalog.settings import SettingError

__all__ = ["create_app"]


class CatalogCommands(AppGroup):
    """Adds the widget-catalog commands to `flask`; they use the files of the application."""

    def __init__(self, app: Flask) -> None:
        super().__init__(app.name, commands=dict(COMMANDS))
        files = Files(app.config, app.extensions["database"], app.extensions["bundles"])
        self._found = {FILES: files, SERVICE: app}

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Put the files and the application into the context, and return the command."""
        context.meta.update(self._found)
        return super().get_command(context, name)


def create_app(settings: Mapping[str, object] | None = None) -> Flask:
    """Return the application for one catalog; raise SettingError if a setting is invalid."""
    try:
        app = application.create_app(settings)
    except SettingError as error:
        # Under the flask command, raise a ClickException: flask prints its message.
        if click.get_current_context(silent=True):
            raise click.ClickException(str(error)) from None
        raise
    app.cli = CatalogCommands(app)
    return app


if __name__ == "__main__":
    # This import is local because the commands do not need the server.
    from catalog.serving.server import serve

    try:
        serve(create_app())
    except (SettingError, click.ClickException) as error:
        sys.exit(f"Error: {error}")
