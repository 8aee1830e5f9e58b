"""The errors of requests: a line in the log for each, and those that last until a restart."""

import logging

from catalog.store.connection.sqlite import DatabaseGoneError, is_damage

logger = logging.getLogger(__name__)


class Faults:
    """What requests found wrong with the file; all methods may be called by any thread."""

    def __init__(self) -> None:
        # Whether a request has read a damaged part of the file. Others may still succeed.
        self.is_damaged = False
        self._is_gone = False

    def log(self, effect: str, error: Exception) -> None:
        """Log that the error had this effect. What lasts until a restart is explained once."""
        if isinstance(error, DatabaseGoneError):
            if not self._is_gone:
                logger.error("%s The service must be started again.", error)
            self._is_gone = True
            return
        # Of a DatabaseError, if the file cannot be opened.
        cause = error if error.__cause__ is None else error.__cause__
        if (is_damage(error) or is_damage(cause)) and not self.is_damaged:
            self.is_damaged = True
            logger.error(
                "The database is damaged: %s. Look at it with widget-catalog check, and replace it"
                " by a backup with widget-catalog restore.",
                error,
            )
            return
        logger.error("%s: %s", effect, error)
