"""The demo catalog: seed/demo.jsonl, and a small bundle for each of its versions."""

import json

from ..data_files import find_data_file
from ..documents import Document
from ..store.bundles import Bundles
from ..store.connection.database import Database
from ..store.connection.transaction import Transaction
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


def create_demo(database: Database, bundles: Bundles) -> list[Document]:
    """Create the database with the demo catalog, and store its bundles; return its documents."""
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
        put_documents(transaction, documents)
        hold_bundles(transaction, held)

    database.create(fill)
    return documents


def demo_bundle(scope: str, name: str, version: str) -> bytes:
    """Return the bundle of a version."""
    values = {"name": json.dumps(f"{scope}/{name}"), "version": json.dumps(version)}
    return BUNDLE.format(**values).encode()
