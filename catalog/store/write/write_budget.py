"""A bound for what one change of many versions writes, checked before it is written."""

import json

from ...domain.changes import ChangeError
from ...domain.documents import Row

# Writing it takes up to two seconds, for which installs wait.
MAX_WRITTEN_BYTES = 16 * 1024 * 1024
# The approximate size of a row without its long texts
ROW_BYTES = 200


class WriteBudget:
    """Counts what a change writes, and refuses it beyond the bound."""

    def __init__(self) -> None:
        self._left = MAX_WRITTEN_BYTES

    def spend(self, *states: Row) -> None:
        """Count a version that is changed, by its states before and after; raise ChangeError.

        The audit log has all states, and the row of the version the last one.
        """
        sizes = [len(json.dumps(state, ensure_ascii=False).encode()) for state in states]
        self._left -= sum(sizes) + sizes[-1] + 2 * ROW_BYTES
        if self._left < 0:
            raise ChangeError(
                f"The change would write more than {MAX_WRITTEN_BYTES} bytes, for which installs "
                "would have to wait. Name fewer versions at once, or use a shorter text."
            )
