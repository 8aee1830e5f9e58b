"""The text index of search after large writes: its segments are merged into one."""

from ..connection.database import Database

# Each large write adds segments to the index, and a search reads all of them. Merge them after a
# write of at least this many widgets.
MERGE_AFTER = 1000
COUNT_SEGMENTS = "SELECT count(DISTINCT segid) FROM listing_text_idx"
# A negative number of pages means that all segments become one. Writing 500 pages takes about 50
# milliseconds, for which installs wait.
MERGE_STEP = "INSERT INTO listing_text (listing_text, rank) VALUES ('merge', -500)"
# The index of 100,000 widgets needs fewer steps than this.
MAX_STEPS = 1000


def merge_search_index(database: Database) -> None:
    """Merge the segments of the text index in short transactions."""
    for _ in range(MAX_STEPS):
        ((segments,),) = database.fetch(COUNT_SEGMENTS, {})
        if segments <= 1:
            return
        database.execute(MERGE_STEP, {})
