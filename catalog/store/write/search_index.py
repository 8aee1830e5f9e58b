"""Merges the segments of the search index into one after large writes."""

from ..connection.database import Database

# Each large write adds segments to the index, and a search reads all of them. They are merged after
# an import or a mirror run that writes at least this many widgets.
MERGE_AFTER = 1000
COUNT_SEGMENTS = "SELECT count(DISTINCT segid) FROM listing_text_idx"
# A negative number of pages makes FTS5 merge all segments into one. Writing 500 pages takes about
# 50 milliseconds, and installs wait for it.
MERGE_STEP = "INSERT INTO listing_text (listing_text, rank) VALUES ('merge', -500)"
# Merging the index for 100,000 widgets takes fewer steps than this.
MAX_STEPS = 1000


def merge_search_index(database: Database) -> None:
    """Merge the segments of the full-text index in short transactions."""
    for _ in range(MAX_STEPS):
        ((segments,),) = database.fetch(COUNT_SEGMENTS, {})
        if segments <= 1:
            return
        database.execute(MERGE_STEP, {})
