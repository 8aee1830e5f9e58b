"""Arguments that are validated, among them names that a shell can complete."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..opening import Files
from ..text import NotAllowedError, quoted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ValidatedType(click.ParamType):  # type: ignore[type-arg]
    """An argument that a function validates."""

    def __init__(self, name: str, validate: Callable[[str], Any]) -> None:
        self.name = name
        self.validate = validate

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        try:
            return self.validate(value)
        except NotAllowedError as error:
            self.fail(f"{quoted(value)} is not {error}.", parameter, context)


class NameType(ValidatedType):
    """The name of a widget or version, which a shell can complete."""

    def __init__(
        self, name: str, validate: Callable[[str], Any], files: Callable[[], Files], end: str
    ) -> None:
        """Complete from these files; let the shell add the end to the name of a widget."""
        super().__init__(name, validate)
        self.files, self.end = files, end

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the widgets or versions of the database that begin with the text."""
        # Only a shell that completes a line needs it.
        from .completion import complete_name

        return complete_name(self.files, context, incomplete, self.end)
