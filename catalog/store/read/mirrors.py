"""The upstreams that the catalog knows, and the widgets that were copied from them."""

import json
from typing import NamedTuple
from urllib.parse import urlsplit

from ...domain.changes import WidgetName
from ...domain.documents import Json, Row
from ...domain.validators import is_loopback
from ..connection.database import Database


class LocalWidget(NamedTuple):
    """A widget in the local catalog; the last three fields are None unless it is a copy."""

    listed: bool
    # The base URL of the upstream; None for a local widget.
    source: str | None
    etag: str | None
    upstream_count: int | None


LOCAL_WIDGETS = """
SELECT scope, name, listed, source, etag, upstream_count
FROM widget LEFT JOIN mirrored ON widget_id = id
ORDER BY scope, name
"""


def find_local_widgets(database: Database) -> dict[WidgetName, LocalWidget]:
    """Return all widgets in the local catalog."""
    rows = database.fetch(LOCAL_WIDGETS, {}) if database.exists() else []
    return {WidgetName(*row[:2]): LocalWidget(bool(row[2]), *row[3:]) for row in rows}


class KnownUpstream(NamedTuple):
    """An upstream with the state that its last runs stored, and the number of its copies."""

    source: str
    # The fields of MirrorOptions.
    options: Json
    # Every copy is current up to this position in the upstream's changes.
    position: str | None
    # The end time of the last run in which no widget failed.
    refreshed_at: str | None
    # The error that made the last run fail; None if the run succeeded.
    last_error: str | None
    # The publication time of each version that is held back, by scope/name@version.
    held_back: dict[str, str]
    # The numbers of listed copies, of their versions and stored bundles, and of copies that are
    # gone from the upstream.
    widgets: int
    versions: int
    bundles: int
    gone: int


KNOWN_UPSTREAMS = """
SELECT upstream.source, options, token, refreshed_at, last_error, held_back,
    count(DISTINCT widget.id) FILTER (WHERE listed), count(version.id) FILTER (WHERE listed),
    count(bundle_path) FILTER (WHERE listed),
    count(DISTINCT widget.id) FILTER (WHERE gone AND NOT listed)
FROM upstream LEFT JOIN mirrored USING (source)
LEFT JOIN widget ON widget.id = mirrored.widget_id
LEFT JOIN version ON version.widget_id = widget.id
GROUP BY upstream.source ORDER BY upstream.source
"""


def find_upstreams(database: Database) -> list[KnownUpstream]:
    """Return the upstreams that earlier runs have stored."""
    rows = database.fetch(KNOWN_UPSTREAMS, {}) if database.exists() else []
    return [
        KnownUpstream(
            row["source"],
            json.loads(row["options"]),
            row["token"],
            row["refreshed_at"],
            row["last_error"],
            json.loads(row["held_back"]),
            *row[6:],
        )
        for row in rows
    ]


SOURCES = "SELECT source FROM upstream UNION SELECT source FROM mirrored ORDER BY source"


def find_sources(database: Database) -> list[str]:
    """Return the URLs of all upstreams, including upstreams that only copies refer to."""
    rows = database.fetch(SOURCES, {}) if database.exists() else []
    return [source for (source,) in rows]


def find_source(database: Database, url: str) -> str:
    """Return the URL under which this upstream is stored, or the given URL if it is unknown."""
    identity = _identity(url)
    return next((each for each in find_sources(database) if _identity(each) == identity), url)


def _identity(url: str) -> tuple[str, str, int, str]:
    """Return a key that is the same for all spellings of an upstream's URL."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, "localhost" if is_loopback(host) else host, port, parts.path


STORED_VERSIONS = """
SELECT version.* FROM version JOIN widget ON widget.id = widget_id
WHERE scope = :scope AND name = :name
"""


def find_versions(database: Database, widget: WidgetName) -> dict[str, Row]:
    """Return the columns of each version of a widget, by version number."""
    rows = database.fetch(STORED_VERSIONS, widget._asdict()) if database.exists() else []
    return {row["version"]: dict(row) for row in rows}


class CopiedVersion(NamedTuple):
    """A version of a listed copy, and its bundle."""

    scope: str
    name: str
    version: str
    sha256: str
    size: int
    # The bundleUrl at the upstream.
    url: str
    is_stored: bool
    # True if the stored bundle's URL contains its hash; after mirror --adopt, it does not yet.
    has_hash: bool

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}@{self.version}"


COPIED_VERSIONS = """
SELECT scope, name, version, sha256_hash, bundle_size, bundle_url, bundle_path IS NOT NULL,
    instr(bundle_path, '?') > 0
FROM version JOIN widget ON widget.id = version.widget_id
JOIN mirrored ON mirrored.widget_id = widget.id
WHERE source = :source AND listed
ORDER BY scope, name, version
"""


def find_copied_versions(database: Database, source: str) -> list[CopiedVersion]:
    """Return the versions of all listed copies from an upstream."""
    return [CopiedVersion(*row) for row in database.fetch(COPIED_VERSIONS, {"source": source})]
