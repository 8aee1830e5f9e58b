"""Changes to a catalog: the names of versions, the errors for refused changes, and the results.

The code that writes to the database returns results with the same keys as the API.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypedDict

from .documents import MAX_DOCUMENT_BYTES, MAX_VERSIONS, Json
from .messages import NotAllowedError, quoted
from .semver_ranges import is_range, is_version
from .validators import check_identifier


class ChangeError(Exception):
    """A change was refused; the message gives the reason in one sentence."""


class MissingError(ChangeError):
    """The widget or version does not exist."""


class ConflictError(ChangeError):
    """The change contradicts the stored data."""


class WidgetName(NamedTuple):
    """A widget's name, optionally followed by an @ and a version or a range of versions."""

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
    """Parse scope/name; raise NotAllowedError if the string has another form."""
    target = parse_target(text, "scope/name")
    if target.version is None:
        return target
    # Earlier releases allowed an @ in names, so only a version after the @ is an error.
    if is_version(target.version):
        raise NotAllowedError("of the form scope/name")
    return WidgetName(target.scope, f"{target.name}@{target.version}")


def parse_target(text: str, form: str = "scope/name or scope/name@version") -> WidgetName:
    """Parse scope/name with an optional @version; raise NotAllowedError if it is invalid."""
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
    """Parse scope/name@version or scope/name@range; raise NotAllowedError if it is invalid."""
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
    """The widget does not exist."""

    def __init__(self, widget: WidgetName) -> None:
        super().__init__(f"There is no widget {widget}.")
        self.widget = widget


class TooLargeError(ConflictError):
    """A widget is, or would become, larger than allowed."""

    def __init__(self, path: str, versions: int, size: int) -> None:
        # The path is scope/name; the reason completes a sentence about it, without the full stop.
        self.path = path
        self.reason = (
            f"is too large ({versions} versions, {size} bytes as JSON); at most "
            f"{MAX_VERSIONS} versions and {MAX_DOCUMENT_BYTES} bytes are allowed"
        )
        super().__init__(f"{self.path} {self.reason}.")


def is_version_or_range(text: str) -> bool:
    """Return whether the part after an @ is a version or a range of versions."""
    return bool(text) and (is_version(text) or is_range(text))


def check_version_or_range(text: str | None) -> str:
    """Return the part after an @; raise ChangeError unless it is a version or a range."""
    if not text or not is_version_or_range(text):
        raise ChangeError(f"{quoted(text or '')} is neither a version nor a range of versions.")
    return text


class BundleSummary(NamedTuple):
    """The size and hash of a bundle, and any problem with its content."""

    size: int
    sha256: str
    # The name of the bundle in messages.
    label: str = "The bundle"
    # Why the bundle is not JavaScript, as the end of a sentence; None if it may be JavaScript.
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
    """A manifest and a bundle to publish."""

    manifest: Any
    bundle: BundleSummary
    # The bundle in pieces; None if the bundle should not be stored.
    content: Iterable[bytes] | None
    # The URL that dashboards load the bundle from, with {scope}, {name} and {version}. If it is
    # None, the CATALOG_BUNDLE_URL setting applies or, for a stored bundle, its URL on this service.
    url_template: str | None
    # A new version sets its widget's readme and picture; None keeps the stored value.
    readme: bytes | None = None
    picture: bytes | None = None
    # True to store the content even for an existing version whose bundle is at another URL.
    stores_again: bool = False


class LatestVersions(TypedDict):
    """The latest version of a widget before and after a change; None if there is none."""

    previousLatestVersion: str | None
    latestVersion: str | None
    # The latest version that is not a prerelease.
    latestStableVersion: str | None


class Published(LatestVersions):
    """The result of publishing a version, or of a dry run."""

    # The version as scope/name@version.
    version: str
    # False if the same version was already published; a message then says so.
    published: bool
    message: str | None
    stored: bool
    warnings: list[str]
    # Whether the widget stays unlisted, and whether isOfficial in the manifest was ignored.
    isUnlisted: bool
    isOfficialIgnored: bool
    # In a dry run, the widget and the new version as they would be stored.
    document: Json | None


def already_published(version: str) -> str:
    """Return the message for an already published version, given as scope/name@version."""
    return f"{version} is already published; readme, links, keywords and picture are unchanged."


class ChangedVersion(TypedDict):
    """A version that a command selects, and whether the command changes it."""

    # The version as scope/name@version.
    version: str
    changed: bool
    # True if the version was already yanked or deprecated: only its reason or message changes.
    already: bool


class Moderated(LatestVersions):
    """The result of a command such as yank, or of its dry run, for one widget."""

    versions: list[ChangedVersion]


class Edited(TypedDict):
    """A widget that a command selects, and whether the command changes it."""

    # The widget as scope/name.
    widget: str
    changed: bool
