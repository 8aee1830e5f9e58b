"""The limit on the bytes that one change of many versions writes, checked before writing."""

import json

from ...domain.changes import ChangeError
from ...domain.documents import Row

# Writing this many bytes takes up to two seconds, and installs wait for it.
MAX_WRITTEN_BYTES = 16 * 1024 * 1024
# The approximate size of a row without its long texts.
ROW_BYTES = 200


class WriteBudget:
    """Counts the bytes that a change writes, and refuses a change beyond the limit."""

    def __init__(self) -> None:
        self._left = MAX_WRITTEN_BYTES

    def spend(self, *states: Row) -> None:
        """Count the bytes of a version's old and new state; raise ChangeError beyond the limit.

        The audit log stores all states, and the row of the version stores the last one.
        """
        sizes = [len(json.dumps(state, ensure_ascii=False).encode()) for state in states]
        self._left -= sum(sizes) + sizes[-1] + 2 * ROW_BYTES
        if self._left < 0:
            raise ChangeError(
                f"The change would write more than {MAX_WRITTEN_BYTES} bytes, and installs would "
                "have to wait for it. Name fewer versions at once, or use a shorter text."
            )
