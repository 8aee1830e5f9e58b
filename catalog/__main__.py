"""The command widget-catalog; `python -m catalog` is the same."""

from flask.cli import ScriptInfo

from catalog.application import create_app
from catalog.commands import commands


def main() -> None:
    """Run the command line."""
    commands.cli.main(prog_name="widget-catalog", obj=ScriptInfo(create_app=create_app))


if __name__ == "__main__":
    main()
