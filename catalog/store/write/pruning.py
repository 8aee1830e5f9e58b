"""Finds and removes the widgets and versions that imported files lack, for `import --prune`."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ...domain.changes import WidgetName
from ...domain.documents import Document
from ..connection.database import Database
from ..connection.transaction import Actor, Transaction
from .moderation import REMOVABLE_WIDGETS, remove_versions, remove_widgets

# The number of versions that one transaction removes, in about 0.1 seconds.
BATCH_SIZE = 500


class Others(NamedTuple):
    """Stored widgets, and stored versions of imported widgets, that the imported files lack."""

    # Pairs of a widget and its number of versions.
    widgets: list[tuple[WidgetName, int]]
    # The key is scope/name.
    versions: dict[str, list[WidgetName]]

    def sizes(self) -> tuple[int, int]:
        """Return how many widgets, and how many versions of imported widgets, the files lack."""
        return len(self.widgets), sum(map(len, self.versions.values()))


COUNT_VERSIONS = """
SELECT scope, name, (SELECT count(*) FROM version WHERE widget_id = widget.id) AS versions
FROM widget ORDER BY scope, name
"""
VERSIONS_OF = """
SELECT scope, name, version FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN version ON widget_id = widget.id
"""


def find_others(
    database: Database, paths: Container[str], batches: Iterable[Sequence[Document]]
) -> Others:
    """Return the stored versions that are not in the documents, and the widgets not in paths."""
    widgets = []
    for scope, name, versions in database.fetch(COUNT_VERSIONS, {}):
        widget = WidgetName(scope, name)
        if str(widget) not in paths:
            widgets.append((widget, versions))
    others: dict[str, list[WidgetName]] = {}
    for batch in batches:
        numbers = {each.path: {row["version"] for row in each.versions} for each in batch}
        names = json.dumps([path.split("/") for path in numbers])
        for row in database.fetch(VERSIONS_OF, {"names": names}):
            version = WidgetName(*row)
            path = str(version.widget)
            if version.version not in numbers[path]:
                others.setdefault(path, []).append(version)
    return Others(widgets, others)


def remove_others(
    database: Database, actor: Actor, others: Others, totals: Mapping[str, int] | None
) -> None:
    """Remove the versions and the widgets in short transactions.

    If totals are given, the first transaction records the import with them.
    """
    versions = [version for each in others.versions.values() for version in each]
    steps = [
        partial(_remove_versions, versions=versions[start : start + BATCH_SIZE])
        for start in range(0, len(versions), BATCH_SIZE)
    ]
    steps += [partial(_remove_widgets, widgets=batch) for batch in _batches(others.widgets)]
    for number, step in enumerate(steps):
        database.transact(partial(step, totals=None if number else totals), actor)


def _batches(widgets: Iterable[tuple[WidgetName, int]]) -> Iterator[list[WidgetName]]:
    batch: list[WidgetName] = []
    size = 0
    for widget, versions in widgets:
        if batch and size + versions + 1 > BATCH_SIZE:
            yield batch
            batch, size = [], 0
        batch.append(widget)
        size += versions + 1
    if batch:
        yield batch


REMOVED_VERSIONS = """
SELECT scope, name, version.id, widget_id, version, sha256_hash, yanked, yanked_reason,
    deprecation_message
FROM json_each(:names) AS given
CROSS JOIN widget ON scope = given.value ->> 0 AND name = given.value ->> 1
CROSS JOIN version ON widget_id = widget.id AND version = given.value ->> 2
"""
REMOVED_WIDGETS = f"""
{REMOVABLE_WIDGETS}
WHERE (scope, name) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:names))
"""


def _remove_versions(
    transaction: Transaction, versions: Sequence[WidgetName], totals: Mapping[str, int] | None
) -> None:
    rows = transaction.read(REMOVED_VERSIONS, {"names": json.dumps(versions)})
    removed = {WidgetName(row["scope"], row["name"], row["version"]): row for row in rows}
    remove_versions(transaction, "import", removed)
    _record_totals(transaction, totals)


def _remove_widgets(
    transaction: Transaction, widgets: Sequence[WidgetName], totals: Mapping[str, int] | None
) -> None:
    rows = transaction.read(REMOVED_WIDGETS, {"names": json.dumps(widgets)})
    remove_widgets(transaction, "import", rows)
    _record_totals(transaction, totals)


def _record_totals(transaction: Transaction, totals: Mapping[str, int] | None) -> None:
    if totals:
        transaction.record("import", after=totals)
