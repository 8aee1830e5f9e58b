"""Installed versions: as a dashboard names them, and the list that a person has.

A list is lines of text, or a JSON lockfile.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .semver_ranges import is_version
from .text import plural, quoted

FORM = "scope/name@version, such as acme/clock@1.0.0"
# The members of an object that can have its version.
VERSION_MEMBERS = ("version", "installed")
NPM = "This is a lockfile of npm: it names packages of npm, not widgets."
# Around a version in a line that was copied out of JSON.
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


def parse_installed(text: str) -> Installed:
    """Return the version that scope/name@version names; raise ValueError."""
    path, _, version = text.rpartition("@")
    scope, _, name = path.partition("/")
    if not scope or not name or "/" in name or not is_version(version):
        raise ValueError(
            f"installed must be scope/name@version such as acme/clock@1.0.0, not {quoted(text)}; "
            "a + in it must be sent as %2B."
        )
    return Installed(scope, name, version)


class InstalledList(NamedTuple):
    """The versions in a text, each once.

    notice says what was ignored, error why the text is invalid; each is empty otherwise.
    """

    installed: list[Installed]
    notice: str
    error: str


def read_installed_list(text: str) -> InstalledList:
    """Return the versions in the text: a scope/name@version in each line, or JSON."""
    if text.lstrip(" \t\r\n\ufeff").startswith(("{", "[")):
        return _read_json(text.strip(" \t\r\n\ufeff"))
    return _read_lines(text.splitlines())


def _read_lines(lines: Iterable[str]) -> InstalledList:
    """Return the versions in the lines; an empty line and one that begins with # has none."""
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
    """Return the versions that JSON of any shape names."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return InstalledList([], "", "This is not valid JSON: is it complete?")
    if (
        isinstance(value, dict)
        and "lockfileVersion" in value
        and {"packages", "dependencies"} & {*value}
    ):
        return InstalledList([], "", NPM)
    candidates = list(_find_candidates(value))
    versions = [_parse(candidate) for candidate in candidates]
    installed = list(dict.fromkeys(version for version in versions if version))
    if not installed:
        return InstalledList([], "", f"This JSON names no version in a form like {FORM}.")
    ignored = [each for each, version in zip(candidates, versions, strict=True) if not version]
    notice = ""
    if ignored:
        entries = plural(len(ignored), "entry", "entries")
        notice = f"Ignored {entries} without an exact version, such as {quoted(ignored[0])}."
    return InstalledList(installed, notice, "")


def _find_candidates(value: object) -> Iterator[str]:
    """Yield what looks like an installed version, in a form like scope/name@version.

    It is a string in a list, a key, a key with its version, or an object with scope and name.
    """
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            yield from (each for each in value if isinstance(each, str) and _is_path(each))
            pending += [each for each in reversed(value) if not isinstance(each, str)]
        elif isinstance(value, dict):
            version = _version_of(value)
            if version and {"scope", "name"} <= value.keys():
                yield f"{value['scope']}/{value['name']}@{version}"
                continue
            for key, inner in value.items():
                if _is_path(key):
                    version = inner if isinstance(inner, str) else _version_of(inner)
                    yield f"{key}@{version}" if version and not _parse(key) else key
            pending += [inner for key, inner in reversed(value.items()) if not _is_path(key)]


def _version_of(value: object) -> str | None:
    """Return the version that an object has, if any."""
    if not isinstance(value, dict):
        return None
    return next((value[key] for key in VERSION_MEMBERS if isinstance(value.get(key), str)), None)


def _is_path(text: str) -> bool:
    scope, slash, name = text.partition("/")
    return bool(scope and slash and name) and "/" not in name


def _parse(text: str) -> Installed | None:
    try:
        return parse_installed(text)
    except ValueError:
        return None
