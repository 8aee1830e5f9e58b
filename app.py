"""Entry point: `python app.py` serves the catalog, `flask` runs the operator's commands."""

import sys
from collections.abc import Mapping

import click
from flask import Flask

from catalog import application
from catalog.settings import SettingError

__all__ = ["create_app"]


def create_app(settings: Mapping[str, object] | None = None) -> Flask:
    """Return a service on one database; raise SettingError if a setting is invalid."""
    try:
        return application.create_app(settings)
    except SettingError as error:
        # Called by the flask command, which prints the message of a ClickException.
        if click.get_current_context(silent=True):
            raise click.ClickException(str(error)) from None
        raise


if __name__ == "__main__":
    # The commands do not need it.
    from catalog.serving.server import serve

    try:
        serve(create_app())
    except (SettingError, click.ClickException) as error:
        sys.exit(f"Error: {error}")
