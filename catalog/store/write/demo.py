"""The demo catalog: seed/demo.jsonl with bundles, pictures and recent installs."""

import json
from collections.abc import Iterator, Sequence
from zlib import crc32

from ...domain.documents import Document
from ...system.data_files import DataFileError, find_data_file
from ..bundles.bundles import Bundles
from ..connection.database import Database
from ..connection.transaction import Transaction
from .about import picture_file
from .documents import put_documents, version_rows

# The bundle for each widget without a module in seed/bundles. seed/demo.jsonl contains the size and
# hash of each bundle.
BUNDLE = """\
// A widget of the demo catalog. It shows its own name and version.
export const name = "NAME";
export const version = "VERSION";

export function mount(element) {
  element.textContent = `${name} ${version}`;
}
"""
# The number of recent days with installs. The counts in seed/demo.jsonl include these installs.
INSTALL_DAYS = 84
# Weekly growth rates of installs, in percent.
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
)


def create_demo(
    database: Database, bundles: Bundles, documents: Sequence[Document], day: int | None = None
) -> None:
    """Create the database from the demo catalog's documents, and store its bundles.

    If a day is given, add installs for the weeks up to that day.
    """

    def fill(transaction: Transaction) -> None:
        # The database file is created only after all bundles are stored.
        with bundles.writing():
            for document in documents:
                for row in version_rows(document):
                    content = demo_bundle(row["scope"], row["name"], row["version"])
                    # Syncing each bundle would take a second on a slow disk.
                    bundles.add(row["sha256_hash"], row["bundle_size"], [content], durable=False)
                if document.about and document.about["picture"]:
                    path = f"seed/pictures/{document.path.replace('/', '-')}.webp"
                    picture = picture_file(find_data_file(path).read_bytes())
                    bundles.add(picture.sha256, picture.size, picture.content, durable=False)
        put_documents(transaction, documents, has_bundle=bundles.has)
        if day is not None:
            rows = [row for document in documents for row in demo_installs(document, day)]
            for statement in INSTALL_STATEMENTS:
                transaction.execute(statement, {"installs": json.dumps(rows)})

    database.create(fill)


def demo_bundle(scope: str, name: str, version: str) -> bytes:
    """Return a version's bundle: a module from seed/bundles, or the default BUNDLE."""
    try:
        source = find_data_file(f"seed/bundles/{scope}-{name}.js").read_text("utf-8")
    except DataFileError:
        source = BUNDLE.replace("NAME", f"{scope}/{name}")
    return source.replace("VERSION", version).encode()


def demo_installs(document: Document, last: int) -> Iterator[tuple[str, str, int, str, int]]:
    """Yield a widget's installs up to this day, each as scope, name, day, version and count."""
    scope, name = document.widget["scope"], document.widget["name"]
    available = [row["version"] for row in document.versions if not row["yanked"]]
    usual = (document.widget["download_count"] or 0) // 500
    growth = GROWTHS[crc32(name.encode()) % len(GROWTHS)]
    for ago in range(INSTALL_DAYS):
        day = last - ago
        # Weekends have fewer installs (day 0 was a Thursday), and the count varies over time.
        percent = (65 if day % 7 in (2, 3) else 100) + crc32(f"{name}{ago // 3}".encode()) % 30
        installs = usual * percent * (100 * 7 - growth * ago) // (100 * 100 * 7)
        older = installs // 4
        for version, part in zip(available, (installs - older, older), strict=False):
            if part:
                yield scope, name, day, version, part
