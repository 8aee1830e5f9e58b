"""SQL expressions that render rows of the widget and version tables as the API's JSON.

SQLite writes the JSON, so that a statement returns a whole response, or a large piece of one, in
one row. SQLite runs without the GIL, and each further row would cost another GIL switch.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...domain.changes import LatestVersions
from ...domain.semver_ranges import is_prerelease
from .candidates import AVAILABLE, NEWEST_FIRST

# The members that the detail and the registry have in common.
_WIDGET_MEMBERS = """
    'scope', widget.scope, 'name', widget.name, 'displayName', widget.display_name,
    'description', widget.description, 'icon', widget.icon,
    'isOfficial',
    json(CASE widget.is_official WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE 'null' END)"""

WIDGET = f"""json_object({_WIDGET_MEMBERS},
    'downloadCount', widget.download_count, 'createdAt', widget.created_at)"""

# The version number of a widget's newest version that is not yanked, as a JSON string or null.
LATEST_VERSION = f"json_quote({AVAILABLE.newest('version', 'widget.id')})"
# All versions of a widget, as a JSON array.
VERSION_ENTRIES = f"""'[' || coalesce((
    SELECT group_concat(entry) FROM (
        SELECT entry FROM version_entry WHERE widget_id = widget.id
        ORDER BY {NEWEST_FIRST})), '') || ']'"""

# trim() removes only the outer braces, because no member of the widget is an object.
REGISTRY_WIDGET = f"""'{{'
    || trim(json_object({_WIDGET_MEMBERS}, 'createdAt', widget.created_at), '{{}}')
    || ',"latestVersion":' || {LATEST_VERSION} || ',"versions":' || {VERSION_ENTRIES} || '}}'"""

# In the JSON, these bytes mark stored bundles and nothing else: quotes inside a JSON string are
# escaped, so no value can contain them, and a bundle_url in the database never begins with a slash.
STORED_BUNDLE_URL = b',"bundleUrl":"/'


def with_bundle_urls(text: bytes, public_url: str) -> bytes:
    """Return the JSON with the path of each stored bundle replaced by its absolute URL."""
    return text.replace(STORED_BUNDLE_URL, STORED_BUNDLE_URL[:-1] + json_escaped(public_url) + b"/")


def json_escaped(text: str) -> bytes:
    """Return the string escaped for use inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def latest_version(newest_first: Iterable[Any], *, stable: bool = False) -> str | None:
    """Return the version number of the newest version that is not yanked, or None.

    If stable is true, prereleases are ignored.
    """
    available = (each["version"] for each in newest_first if not each["yanked"])
    return next((each for each in available if not (stable and is_prerelease(each))), None)


def latest_versions(before: Iterable[Any], after: Sequence[Any]) -> LatestVersions:
    """Return the latest versions before and after a change; both lists are newest first."""
    return LatestVersions(
        previousLatestVersion=latest_version(before),
        latestVersion=latest_version(after),
        latestStableVersion=latest_version(after, stable=True),
    )
