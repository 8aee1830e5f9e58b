"""Changes of a catalog: how they name versions, why they are refused, and what they result in.

A result has the keys of the API, from the transaction to the terminal.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypedDict

from .documents import MAX_DOCUMENT_BYTES, MAX_VERSIONS, Json
from .semver_ranges import is_range, is_version
from .text import NotAllowedError, quoted
from .validators import check_identifier


class ChangeError(Exception):
    """A change that is refused; the message says why in one sentence."""


class MissingError(ChangeError):
    """There is no such widget or version."""


class ConflictError(ChangeError):
    """What is stored contradicts the change."""


class WidgetName(NamedTuple):
    """The name of a widget, optionally with a version or a range of versions after an @."""

    scope: str
    name: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}" + ("" if self.version is None else f"@{self.version}")

    @property
    def widget(self) -> "WidgetName":
        """The widget without the version."""
        return self._replace(version=None)


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


class MissingWidgetError(MissingError):
    """There is no such widget."""

    def __init__(self, widget: WidgetName) -> None:
        super().__init__(f"There is no widget {widget}.")
        self.widget = widget


class TooLargeError(ConflictError):
    """A widget is larger than allowed, or would be."""

    def __init__(self, path: str, versions: int, size: int) -> None:
        # The widget as scope/name, and the rest of the sentence without its full stop.
        self.path = path
        self.reason = (
            f"is too large, with {versions} versions of {size} bytes as JSON; a widget may have "
            f"{MAX_VERSIONS} versions of {MAX_DOCUMENT_BYTES} bytes"
        )
        super().__init__(f"{self.path} {self.reason}.")


def is_version_or_range(text: str) -> bool:
    """Return whether the text after an @ can name versions."""
    return bool(text) and (is_version(text) or is_range(text))


def check_version_or_range(text: str | None) -> str:
    """Return the text after an @; raise ChangeError if it cannot name versions."""
    if not text or not is_version_or_range(text):
        raise ChangeError(f"{quoted(text or '')} is neither a version nor a range of versions.")
    return text


class BundleSummary(NamedTuple):
    """What a version says about its bundle."""

    size: int
    sha256: str
    # How a message names the bundle.
    label: str = "The bundle"


class NewVersion(NamedTuple):
    """A manifest and a bundle to be published."""

    manifest: Any
    bundle: BundleSummary
    # The bundle in pieces; None if it is not to be stored.
    content: Iterable[bytes] | None
    # Where dashboards load the bundle, with {scope}, {name} and {version}. None is the setting
    # CATALOG_BUNDLE_URL or, if the bundle is stored, its URL at this service.
    url_template: str | None
    # If they are given, they replace those of the widget.
    readme: bytes | None = None
    picture: bytes | None = None


class Published(TypedDict):
    """What publishing a version did, or would do."""

    # scope/name@version.
    version: str
    # False if the same version was published before.
    published: bool
    stored: bool
    warnings: list[str]
    # Properties of an existing widget that a new version does not change.
    isUnlisted: bool
    isOfficialIgnored: bool
    previousLatestVersion: str | None
    latestVersion: str | None
    # In a dry run: the widget and the new version as they would be stored.
    document: Json | None


class ChangedVersion(TypedDict):
    """A version that was to be changed, and whether it had to be."""

    # scope/name@version.
    version: str
    changed: bool


class Moderated(TypedDict):
    """What was done, or would be, to versions of one widget by yank, deprecate and the like."""

    versions: list[ChangedVersion]
    previousLatestVersion: str | None
    latestVersion: str | None


class Edited(TypedDict):
    """A widget whose properties were to be changed, and whether one of them was different."""

    # scope/name.
    widget: str
    changed: bool
