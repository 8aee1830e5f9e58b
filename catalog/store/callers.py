"""The caller of a command that runs as the user of the service.

deploy/widget-catalog starts commands like a set-user-ID program: the effective user is that of the
service, who owns the catalog, and the real user is the caller, who owns the files that the command
line names. In any other process the two are the same, and nothing here has an effect.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeVar

T_co = TypeVar("T_co", covariant=True)


@contextmanager
def as_caller() -> Iterator[None]:
    """Run the block with the rights of the caller. No other thread may use files meanwhile."""
    user, group = os.geteuid(), os.getegid()
    if (user, group) == (os.getuid(), os.getgid()):
        yield
        return
    os.setegid(os.getgid())
    os.seteuid(os.getuid())
    try:
        yield
    finally:
        os.setegid(group)
        os.seteuid(user)


class CallerContext(AbstractContextManager[T_co]):
    """A context manager that begins and ends with the rights of the caller.

    The block itself has those of the service.
    """

    def __init__(self, manager: AbstractContextManager[T_co]) -> None:
        self._manager = manager

    def __enter__(self) -> T_co:
        with as_caller():
            return self._manager.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        with as_caller():
            return self._manager.__exit__(kind, error, trace)
