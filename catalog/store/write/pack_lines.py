"""Writes the additional lines in a pack: the origins of copies, and deleted versions."""

from collections.abc import Iterable

from ..connection.transaction import Transaction, Values
from ..schema.derived import ADD_BUNDLE_HASHES

PUT_MIRRORED_LINE = """
INSERT INTO mirrored (widget_id, source, etag, upstream_count, gone)
SELECT id, :source, :etag, :upstreamCount, :gone FROM widget WHERE scope = :scope AND name = :name
"""
PUT_DELETED_LINE = """
INSERT INTO deleted_version (scope, name, version, sha256_hash)
VALUES (:scope, :name, :version, :sha256Hash) ON CONFLICT DO NOTHING
"""


def put_mirrored_lines(transaction: Transaction, lines: Iterable[Values]) -> None:
    """Write the parsed lines from mirrored.jsonl."""
    transaction.execute_many(PUT_MIRRORED_LINE, lines)
    # The copies' bundles were registered like local widgets' bundles, without a hash in the URL.
    transaction.execute(ADD_BUNDLE_HASHES)


def put_deleted_lines(transaction: Transaction, lines: Iterable[Values]) -> None:
    """Write the parsed lines from deleted.jsonl."""
    transaction.execute_many(PUT_DELETED_LINE, lines)
