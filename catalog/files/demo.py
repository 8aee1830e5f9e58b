"""The demo catalog: seed/demo.jsonl, bundles of its versions, seed/pictures, recent installs."""

import json
from collections.abc import Iterator
from zlib import crc32

from ..data_files import find_data_file
from ..documents import Document
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
from ..store.schema.derived import COUNT_INSTALLS
from ..store.write.about import picture_file
from ..store.write.held_bundles import held_bundles, hold_bundles
from ..store.write.imports import put_documents
from .jsonl import read_catalog

# Size and hash in seed/demo.jsonl are those of this text.
BUNDLE = """\
// A widget of the demo catalog. It shows its own name and version.
export const name = {name};
export const version = {version};

export default function mount(element) {{
  element.textContent = `${{name}} ${{version}}`;
}}
"""
# Installs of the last weeks, which are a part of those in seed/demo.jsonl.
INSTALL_DAYS = 84
# Of the widgets, in percent a week.
GROWTHS = (-2, -1, 1, 2, 4, 5, 7)
INSTALLS = """
FROM json_each(:installs) AS item
JOIN widget ON scope = item.value ->> 0 AND name = item.value ->> 1
"""
INSTALL_STATEMENTS = (
    "INSERT INTO install_day SELECT widget.id, item.value ->> 2 AS day, sum(item.value ->> 4)"
    f" {INSTALLS} GROUP BY widget.id, day",
    "INSERT INTO install_version"
    " SELECT widget.id, item.value ->> 3 AS version, sum(item.value ->> 4)"
    f" {INSTALLS} GROUP BY widget.id, version",
    COUNT_INSTALLS,
)


def create_demo(database: Database, bundles: Bundles, day: int | None = None) -> list[Document]:
    """Create the database with the demo catalog, and store its bundles; return its documents.

    With the number of a day, it has installs of the weeks up to this day.
    """
    with find_data_file("seed/demo.jsonl").open("rb") as file:
        documents = read_catalog([file])
    held = [bundle for document in documents for bundle in held_bundles(document)]

    def fill(transaction: Transaction) -> None:
        # The catalog exists only with all its bundles.
        with bundles.writing():
            for each in held:
                content = demo_bundle(each.scope, each.name, each.version)
                # Syncing each of them would take a second on a slow disk.
                bundles.add(each.sha256, each.size, [content], durable=False)
            for document in documents:
                if document.about and document.about["picture"]:
                    path = f"seed/pictures/{document.path.replace('/', '-')}.webp"
                    bundles.add(*picture_file(find_data_file(path).read_bytes()), durable=False)
        put_documents(transaction, documents)
        hold_bundles(transaction, held)
        if day is not None:
            rows = [row for document in documents for row in demo_installs(document, day)]
            for statement in INSTALL_STATEMENTS:
                transaction.execute(statement, {"installs": json.dumps(rows)})

    database.create(fill)
    return documents


def demo_bundle(scope: str, name: str, version: str) -> bytes:
    """Return the bundle of a version."""
    values = {"name": json.dumps(f"{scope}/{name}"), "version": json.dumps(version)}
    return BUNDLE.format(**values).encode()


def demo_installs(document: Document, last: int) -> Iterator[tuple[str, str, int, str, int]]:
    """Yield the installs of a widget up to this day: scope, name, day, version and number."""
    scope, name = document.widget["scope"], document.widget["name"]
    available = [row["version"] for row in document.versions if not row["yanked"]]
    usual = (document.widget["download_count"] or 0) // 500
    growth = GROWTHS[crc32(name.encode()) % len(GROWTHS)]
    for ago in range(INSTALL_DAYS):
        day = last - ago
        # Fewer at weekends (day 0 was a Thursday), and no two days alike.
        percent = (65 if day % 7 in (2, 3) else 100) + crc32(f"{name}{ago // 3}".encode()) % 30
        installs = usual * percent * (100 * 7 - growth * ago) // (100 * 100 * 7)
        older = installs // 4
        for version, part in zip(available, (installs - older, older), strict=False):
            if part:
                yield scope, name, day, version, part
