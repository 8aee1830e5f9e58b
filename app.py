"""Entry point: `python app.py` serves the catalog, `flask` runs the operator's commands."""

import sys

from click import ClickException

from catalog.application import create_app
from catalog.serving.server import serve

__all__ = ["create_app"]

if __name__ == "__main__":
    try:
        serve(create_app())
    except ClickException as error:
        sys.exit(f"Error: {error.message}")
