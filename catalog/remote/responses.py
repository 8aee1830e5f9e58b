"""Parsers of the responses of a service.

A service of another release may send other keys or types. Each parser raises one of PARSE_ERRORS
then.
"""

from typing import NamedTuple

from catalog.documents import Json
from catalog.store.write.lookup import WidgetName
from catalog.store.write.moderation import LatestChange, VersionChange
from catalog.store.write.publishing import PublishResult
from catalog.text import escape_unprintable
from catalog.validators import check_boolean, check_text, check_version, check_whole_number

PARSE_ERRORS = (AttributeError, KeyError, TypeError, ValueError)


class Session(NamedTuple):
    """The token that a request was made with, and the limit of the service."""

    token: str
    scopes: list[str]
    permissions: list[str]
    expires_at: str | None
    max_bundle_bytes: int


def parse_session(response: Json) -> Session:
    expires_at = response["expiresAt"]
    return Session(
        _parse_line(response["token"]),
        list(map(check_text, response["scopes"])),
        list(map(check_text, response["permissions"])),
        None if expires_at is None else _parse_line(expires_at),
        check_whole_number(response["maxBundleBytes"]),
    )


def parse_published(target: WidgetName, response: Json) -> PublishResult:
    document = response["document"]
    return PublishResult(
        target,
        check_boolean(response["published"]),
        check_boolean(response["stored"]),
        [_parse_line(warning) for warning in response["warnings"]],
        check_boolean(response["isUnlisted"]),
        check_boolean(response["isOfficialIgnored"]),
        _parse_latest(response["previousLatestVersion"]),
        _parse_latest(response["latestVersion"]),
        None if document is None else _parse_object(document),
    )


def parse_changes(widget: WidgetName, response: Json) -> list[VersionChange]:
    """Return what changed in the versions of the widget."""
    changes = []
    for each in response["versions"]:
        _, _, version = each["version"].rpartition("@")
        target = widget._replace(version=check_version(version))
        changes.append(VersionChange(target, check_boolean(each["changed"])))
    return changes


def parse_yanked(widget: WidgetName, response: Json) -> tuple[list[VersionChange], LatestChange]:
    """Return what changed in the versions of the widget, and in its latest version."""
    before, after = response["previousLatestVersion"], response["latestVersion"]
    latest = LatestChange(widget, _parse_latest(before), _parse_latest(after))
    return parse_changes(widget, response), latest


def parse_changed(response: Json) -> bool:
    return check_boolean(response["changed"])


def parse_entries(before: int, response: Json) -> list[Json]:
    """Return a page of the record of changes, whose ids descend from the one before it."""
    entries = [_parse_entry(entry) for entry in response["entries"]]
    for entry in entries:
        if not entry["id"] < before:
            raise ValueError
        before = entry["id"]
    return entries


def _parse_entry(entry: Json) -> Json:
    check_whole_number(entry["id"])
    for key in ("at", "kind", "actor", "action"):
        check_text(entry[key])
    for key in ("scope", "name", "version"):
        if entry[key] is not None:
            check_text(entry[key])
    for key in ("before", "after"):
        if entry[key] is not None:
            _parse_object(entry[key])
    return entry


def _parse_latest(value: object) -> str | None:
    return None if value is None else check_version(value)


def _parse_line(value: object) -> str:
    return escape_unprintable(check_text(value))


def _parse_object(value: object) -> Json:
    if not isinstance(value, dict):
        raise TypeError
    return value
