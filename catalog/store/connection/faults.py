"""The errors of requests: a line in the log for each, and those that last until a restart."""

import logging
import threading

from .sqlite import DatabaseGoneError, is_damage

logger = logging.getLogger(__name__)


class Faults:
    """What requests found wrong with the file; all methods may be called by any thread."""

    def __init__(self) -> None:
        # Whether a request has read a damaged part of the file. Others may still succeed.
        self.is_damaged = False
        self._is_gone = False
        self._lock = threading.Lock()

    def log(self, effect: str, error: Exception) -> None:
        """Log that the error had this effect. What lasts until a restart is explained once."""
        is_gone = isinstance(error, DatabaseGoneError)
        # The cause is that of a DatabaseError, if the file cannot be opened.
        is_damaged = is_damage(error) or is_damage(error.__cause__)
        with self._lock:
            is_known = (is_gone and self._is_gone) or (is_damaged and self.is_damaged)
            self._is_gone |= is_gone
            self.is_damaged |= is_damaged
        if is_gone and not is_known:
            logger.error("%s The service must be started again.", error)
        elif is_damaged and not is_known:
            logger.error(
                "The database is damaged: %s. Look at it with widget-catalog check, and replace it"
                " by a backup with widget-catalog restore.",
                error,
            )
        elif not is_gone:
            logger.error("%s: %s", effect, error)
