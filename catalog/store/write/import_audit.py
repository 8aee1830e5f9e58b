"""The record of an import or mirror: one entry for all of it, one for each state that it changes.

An entry for each widget of a catalog would be longer than the catalog. So widgets and versions that
are added are only counted; what is listed, unlisted, yanked, deprecated or removed has entries.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence

from catalog.documents import Document
from catalog.store.connection.sqlite import Statement
from catalog.store.write.audit import RECORD, Actor, record, record_values
from catalog.store.write.moderation import DELETED_VERSION_STATE, DELETED_WIDGET_STATE

# Documents whose states are compared in one statement.
BATCH = 500

RECORD_LISTINGS = f"""{RECORD}
    scope, name, NULL,
    json_object('listed', json(iif(listed, 'true', 'false'))),
    json_object('listed', json(iif(given.value ->> 2, 'true', 'false')))
FROM json_each(:widgets) AS given CROSS JOIN widget
    ON scope = given.value ->> 0 AND name = given.value ->> 1
WHERE listed <> given.value ->> 2
"""

_GIVEN_STATE = "(given.value ->> 3, given.value ->> 4, given.value ->> 5)"
RECORD_STATES = f"""{RECORD}
    scope, name, version,
    json_object(
        'yanked', json(iif(yanked, 'true', 'false')), 'yankedReason', yanked_reason,
        'deprecationMessage', deprecation_message
    ),
    json_object(
        'yanked', json(iif(given.value ->> 3, 'true', 'false')),
        'yankedReason', given.value ->> 4, 'deprecationMessage', given.value ->> 5
    )
FROM json_each(:versions) AS given
    CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
    CROSS JOIN version ON widget_id = widget.id AND version = given.value ->> 2
WHERE (yanked, yanked_reason, deprecation_message) IS NOT {_GIVEN_STATE}
"""

RECORD_REMOVED_WIDGETS = f"""{RECORD} scope, name, NULL, {DELETED_WIDGET_STATE}, NULL
FROM widget WHERE scope || '/' || name NOT IN (SELECT value FROM json_each(:paths))
"""

# The versions of the named widgets only: with a mirror they are few of many.
RECORD_REMOVED_VERSIONS = f"""{RECORD} scope, name, version, {DELETED_VERSION_STATE}, NULL
FROM json_each(:widgets) AS given
    CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
    CROSS JOIN version ON widget_id = widget.id
WHERE scope || '/' || name || '@' || version NOT IN (SELECT value FROM json_each(:versions))
"""


def record_changes(
    actor: Actor, documents: Sequence[Document], action: str = "import"
) -> list[Statement]:
    """Record the states that importing the documents will change; these statements come first."""
    statements = []
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        widgets, versions = json.dumps([*_listings(batch)]), json.dumps([*_states(batch)])
        statements += [
            record(RECORD_LISTINGS, actor, action, widgets=widgets),
            record(RECORD_STATES, actor, action, versions=versions),
        ]
    return statements


def record_removals(actor: Actor, documents: Sequence[Document]) -> list[Statement]:
    """Record what an import with --prune will remove; these statements come first too."""
    paths = json.dumps([document.path for document in documents])
    return [
        record(RECORD_REMOVED_WIDGETS, actor, "import", paths=paths),
        _record_removed_versions(actor, documents, "import"),
    ]


def record_replacements(actor: Actor, documents: Sequence[Document]) -> list[Statement]:
    """Record the states that a mirror will change, and the versions that it will remove."""
    # It lists every copy.
    listed = [each._replace(widget={**each.widget, "listed": True}) for each in documents]
    return [
        *record_changes(actor, listed, "mirror"),
        _record_removed_versions(actor, documents, "mirror"),
    ]


def _record_removed_versions(actor: Actor, documents: Sequence[Document], action: str) -> Statement:
    widgets = [(document.widget["scope"], document.widget["name"]) for document in documents]
    kept = [
        f"{document.path}@{row['version']}" for document in documents for row in document.versions
    ]
    values = {"widgets": json.dumps(widgets), "versions": json.dumps(kept)}
    return record(RECORD_REMOVED_VERSIONS, actor, action, **values)


def _listings(documents: Sequence[Document]) -> Iterator[tuple[object, ...]]:
    for document in documents:
        widget = document.widget
        # Without it, the stored value stays.
        if widget["listed"] is not None:
            yield widget["scope"], widget["name"], widget["listed"]


def _states(documents: Sequence[Document]) -> Iterator[tuple[object, ...]]:
    keys = ("version", "yanked", "yanked_reason", "deprecation_message")
    for document in documents:
        for row in document.versions:
            yield document.widget["scope"], document.widget["name"], *(row[key] for key in keys)


RECORD_IMPORT = f"""{RECORD} NULL, NULL, NULL, NULL, :after
FROM revision WHERE (content, downloads) IS NOT (:content, :downloads)
"""


def record_import(
    connection: sqlite3.Connection, actor: Actor, documents: Sequence[Document]
) -> Statement:
    """Record an import, if it changes anything; this statement comes last."""
    revision = connection.execute("SELECT content, downloads FROM revision").fetchone()
    after = json.dumps(_counts(documents))
    return record(RECORD_IMPORT, actor, "import", after=after, **revision)


def record_batch(actor: Actor, documents: Sequence[Document]) -> list[Statement]:
    """Record a part of an import into a cluster, all of whose documents change something."""
    entry = record_values(actor, "import", after=_counts(documents))
    return [*record_changes(actor, documents), entry]


def _counts(documents: Sequence[Document]) -> dict[str, int]:
    versions = sum(len(document.versions) for document in documents)
    return {"widgets": len(documents), "versions": versions}
