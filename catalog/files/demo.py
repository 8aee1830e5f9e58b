"""The demo catalog: seed/demo.jsonl, and a small bundle for each of its versions."""

import json
from collections.abc import Iterator

from catalog.data_files import find_data_file
from catalog.documents import Document
from catalog.files.jsonl import read_catalog
from catalog.store.bundles import Bundles
from catalog.store.connection.database import Database
from catalog.store.connection.sqlite import Statement
from catalog.store.write import held_bundles as bundle_writes
from catalog.store.write import writes
from catalog.store.write.held_bundles import held_bundles

# Size and hash in seed/demo.jsonl are those of this text.
BUNDLE = """\
// A widget of the demo catalog. It shows its own name and version.
export const name = {name};
export const version = {version};

export default function mount(element) {{
  element.textContent = `${{name}} ${{version}}`;
}}
"""


def create_demo(database: Database, bundles: Bundles) -> list[Document]:
    """Create the database with the demo catalog, and store its bundles; return its documents."""
    with find_data_file("seed/demo.jsonl").open("rb") as file:
        documents = read_catalog([file])
    database.create(_store_bundles(documents, bundles))
    return documents


def _store_bundles(documents: list[Document], bundles: Bundles) -> Iterator[Statement]:
    """Store the bundles of each document, and return its statements.

    So a file of the catalog exists only with all its bundles.
    """
    with bundles.writing():
        for document in documents:
            held = held_bundles(document)
            for each in held:
                content = demo_bundle(each.scope, each.name, each.version)
                # Syncing each of them would take a second on a slow disk.
                bundles.add(each.sha256, each.size, [content], durable=False)
            yield from writes.put_document(document)
            yield from bundle_writes.hold_bundles(held)


def demo_bundle(scope: str, name: str, version: str) -> bytes:
    """Return the bundle of a version."""
    values = {"name": json.dumps(f"{scope}/{name}"), "version": json.dumps(version)}
    return BUNDLE.format(**values).encode()
