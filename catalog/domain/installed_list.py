"""Installed versions: their notation, and the lists of versions that people enter.

A list has one scope/name@version on each line, or it is a JSON array of such strings, or a JSON
object that maps scope/name to a version.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from .messages import plural, quoted
from .semver_ranges import is_version

FORM = "scope/name@version, such as acme/clock@1.0.0"
JSON_FORM = (
    'This JSON is not an array like ["acme/clock@1.0.0"] or an object like {"acme/clock": "1.0.0"}.'
)
# Characters that surround a version if its line was copied from JSON.
PUNCTUATION = " \t\ufeff,\"'"


class Installed(NamedTuple):
    """A version that a dashboard has installed."""

    scope: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}@{self.version}"


class UpdatesQuery(NamedTuple):
    """Installed versions, and the SDK of the dashboard."""

    sdk: str
    installed: tuple[Installed, ...]
    # Updates that were published at or after this stored timestamp are ignored.
    before: str | None = None


def parse_installed(text: str) -> Installed:
    """Parse scope/name@version; raise ValueError if the string is invalid."""
    path, _, version = text.rpartition("@")
    scope, _, name = path.partition("/")
    if not scope or not name or "/" in name or not is_version(version):
        raise ValueError(
            f"installed must be scope/name@version such as acme/clock@1.0.0, not {quoted(text)}; "
            "a + in it must be sent as %2B."
        )
    return Installed(scope, name, version)


class InstalledList(NamedTuple):
    """The versions in a list that a user entered, without duplicates.

    notice describes ignored entries, and error explains why the list is invalid; each may be empty.
    """

    installed: list[Installed]
    notice: str
    error: str


def read_installed_list(text: str) -> InstalledList:
    """Return the versions in a list that has one scope/name@version per line or is JSON."""
    if text.lstrip(" \t\r\n\ufeff").startswith(("{", "[")):
        return _read_json(text.strip(" \t\r\n\ufeff"))
    return _read_lines(text.splitlines())


def _read_lines(lines: Iterable[str]) -> InstalledList:
    """Return the versions in the lines; empty lines and lines that begin with # are ignored."""
    installed: dict[Installed, None] = {}
    for number, line in enumerate(lines, start=1):
        content = line.strip(PUNCTUATION)
        if not content or content.startswith("#"):
            continue
        version = _parse(content)
        if version is None:
            return InstalledList([], "", f"Line {number}: {quoted(content)} is not {FORM}.")
        installed[version] = None
    return InstalledList(list(installed), "", "")


def _read_json(text: str) -> InstalledList:
    """Return the versions in a JSON array or object; ignore entries without an exact version."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return InstalledList([], "", "This is not valid JSON: is it complete?")
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        value = [f"{path}@{version}" for path, version in value.items()]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return InstalledList([], "", JSON_FORM)
    installed = list(dict.fromkeys(version for each in value if (version := _parse(each))))
    ignored = [each for each in value if not _parse(each)]
    if not installed:
        return InstalledList([], "", JSON_FORM)
    notice = ""
    if ignored:
        entries = plural(len(ignored), "entry", "entries")
        notice = f"Ignored {entries} without an exact version, such as {quoted(ignored[0])}."
    return InstalledList(installed, notice, "")


def _parse(text: str) -> Installed | None:
    try:
        return parse_installed(text)
    except ValueError:
        return None
