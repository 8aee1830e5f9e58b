"""The names of widgets and versions on the command line."""

from ..semver_ranges import is_version
from ..store.write.lookup import WidgetName
from ..text import NotAllowedError
from ..validators import check_identifier


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
