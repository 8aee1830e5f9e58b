"""Finds and removes the widgets and versions that imported files lack, for `import --prune`."""

import json
import sqlite3
from collections.abc import Container, Iterable, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

from ...domain.changes import WidgetName
from ...domain.documents import Document
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from .moderation import REMOVABLE_WIDGETS, remove_versions, remove_widgets

# Removing about this many widgets and versions takes 0.1 seconds. Installs wait for it.
BATCH_SIZE = 500


class Others(NamedTuple):
    """Stored widgets, and stored versions of imported widgets, that the imported files lack."""

    widgets: list[sqlite3.Row]
    # The id of each version.
    versions: dict[WidgetName, int]


ALL_WIDGETS = f"{REMOVABLE_WIDGETS} ORDER BY scope, name"
VERSIONS_OF = """
SELECT scope, name, version, version.id FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN version ON widget_id = widget.id
"""


def find_others(
    database: Database, paths: Container[str], batches: Iterable[Sequence[Document]]
) -> Others:
    """Return stored versions that are not in the documents, and widgets that are not in paths."""
    widgets = database.fetch(ALL_WIDGETS, {})
    others = Others([row for row in widgets if f"{row['scope']}/{row['name']}" not in paths], {})
    for batch in batches:
        numbers = {each.path: {row["version"] for row in each.versions} for each in batch}
        names = json.dumps([path.split("/") for path in numbers])
        for row in database.fetch(VERSIONS_OF, {"names": names}):
            version = WidgetName(*row[:3])
            if version.version not in numbers[str(version.widget)]:
                others.versions[version] = row["id"]
    return others


def remove_others(database: Database, actor: Actor, others: Others) -> None:
    """Remove the versions and the widgets in short transactions."""
    versions = [*others.versions.values()]
    for start in range(0, len(versions), BATCH_SIZE):
        ids = versions[start : start + BATCH_SIZE]
        database.transact(partial(_remove_versions, ids=ids), actor)
    # For each widget, the number of widgets and versions up to and including it.
    sizes = accumulate(row["versions"] + 1 for row in others.widgets)
    rows_with_sizes = zip(others.widgets, sizes, strict=True)
    for _, batch in groupby(rows_with_sizes, lambda each: each[1] // BATCH_SIZE):
        ids = [row["id"] for row, _ in batch]
        database.transact(partial(_remove_widgets, ids=ids), actor)


# The rows are read again when they are removed: others may have changed them since.
REMOVED_VERSIONS = """
SELECT scope, name, version, version.id, widget_id, sha256_hash, yanked, yanked_reason,
    deprecation_message
FROM version JOIN widget ON widget.id = widget_id
WHERE version.id IN (SELECT value FROM json_each(:ids))
"""
REMOVED_WIDGETS = f"{REMOVABLE_WIDGETS} WHERE id IN (SELECT value FROM json_each(:ids))"


def _remove_versions(transaction: Transaction, ids: Sequence[int]) -> None:
    rows = transaction.read(REMOVED_VERSIONS, {"ids": json.dumps(ids)})
    remove_versions(transaction, "import", {WidgetName(*row[:3]): row for row in rows})


def _remove_widgets(transaction: Transaction, ids: Sequence[int]) -> None:
    rows = transaction.read(REMOVED_WIDGETS, {"ids": json.dumps(ids)})
    remove_widgets(transaction, "import", rows)
