"""Arguments that are validated: the names of widgets and versions, and others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..changes import WidgetName
from ..opening import Files
from ..semver_ranges import is_version
from ..text import NotAllowedError, quoted
from ..validators import check_identifier

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


def parse_widget(text: str) -> WidgetName:
    """Return the widget of scope/name; raise NotAllowedError."""
    target = parse_target(text, "scope/name")
    if target.version is None:
        return target
    # A name that was stored by an earlier release may contain an @.
    if is_version(target.version):
        raise NotAllowedError("of the form scope/name")
    return WidgetName(target.scope, f"{target.name}@{target.version}")


def parse_target(text: str, form: str = "scope/name or scope/name@version") -> WidgetName:
    """Return a widget, or a version or range of versions; raise NotAllowedError."""
    widget, at, version = text.rpartition("@")
    # A scope may begin with an @.
    if "/" in version or widget.endswith("/"):
        widget, at, version = text, "", ""
    scope, _, name = widget.partition("/")
    try:
        return WidgetName(check_identifier(scope), check_identifier(name), version if at else None)
    except ValueError:
        raise NotAllowedError(f"of the form {form}") from None


def parse_version(text: str) -> WidgetName:
    """Return a version or range of versions; raise NotAllowedError."""
    form = "scope/name@version"
    target = parse_target(text, form)
    if target.version is None:
        raise NotAllowedError(f"of the form {form}; for all releases, use {target}@*")
    return target
