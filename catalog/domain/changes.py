"""Changes of a catalog: how they name versions, why they are refused, and what they result in.

A result has the keys of the API, from the transaction to the terminal.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypedDict

from .documents import MAX_DOCUMENT_BYTES, MAX_VERSIONS, Json
from .messages import NotAllowedError, quoted
from .semver_ranges import is_range, is_version
from .validators import check_identifier


class ChangeError(Exception):
    """A change that is refused; the message says why in one sentence."""


class MissingError(ChangeError):
    """There is no such widget or version."""


class ConflictError(ChangeError):
    """The change contradicts what is stored."""


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
    if not is_version_or_range(target.version):
        raise NotAllowedError(
            f"of the form {form}: {quoted(target.version)} is neither a version nor a range of "
            "versions"
        )
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
    """The size and hash of a bundle, as a version states them."""

    size: int
    sha256: str
    # How a message names the bundle.
    label: str = "The bundle"
    # Why the bundle is not JavaScript, to continue a sentence about it; None if it may be.
    problem: str | None = None

    def check_size(self) -> None:
        """Raise ChangeError if the bundle is empty."""
        if not self.size:
            raise ChangeError(f"{self.label} is empty.")

    def check_content(self) -> None:
        """Raise ChangeError if the bundle is certainly not JavaScript."""
        if self.problem:
            raise ChangeError(f"{self.label} {self.problem}.")


class NewVersion(NamedTuple):
    """A manifest and a bundle to be published."""

    manifest: Any
    bundle: BundleSummary
    # The bundle in pieces; None if it is not to be stored.
    content: Iterable[bytes] | None
    # Where dashboards load the bundle, with {scope}, {name} and {version}. None is the setting
    # CATALOG_BUNDLE_URL or, if the bundle is stored, its URL at this service.
    url_template: str | None
    # A new version replaces the readme and picture of its widget with these, if they are given.
    readme: bytes | None = None
    picture: bytes | None = None
    # Whether an existing version whose bundle is elsewhere gets this content too.
    stores_again: bool = False


class LatestVersions(TypedDict):
    """The latest version of a widget before and after a change; None if there is none."""

    previousLatestVersion: str | None
    latestVersion: str | None
    # The latest version that is not a prerelease.
    latestStableVersion: str | None


class Published(LatestVersions):
    """What publishing a version did, or would do."""

    # scope/name@version.
    version: str
    # False if the same version was published before. Then a message says so.
    published: bool
    message: str | None
    stored: bool
    warnings: list[str]
    # Properties of an existing widget that a new version does not change.
    isUnlisted: bool
    isOfficialIgnored: bool
    # In a dry run, the widget and the new version as they would be stored
    document: Json | None


def already_published(version: str) -> str:
    """Return the message for a version that was published before, as scope/name@version."""
    return f"{version} is already published; readme, links, keywords and picture are unchanged."


class ChangedVersion(TypedDict):
    """A version that a command selects, and whether the command changes it."""

    # scope/name@version.
    version: str
    changed: bool
    # Whether it was yanked or deprecated before; then the change is one of the reason or message.
    already: bool


class Moderated(LatestVersions):
    """What yank, deprecate or a similar command did, or would do, to versions of one widget."""

    versions: list[ChangedVersion]


class Edited(TypedDict):
    """A widget that a command selects, and whether the command changes it."""

    # scope/name.
    widget: str
    changed: bool
