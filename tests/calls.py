"""The work of a request as a number of calls: unlike a time, it is the same on every machine."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType


def count_calls(function: Callable[[], object], module: ModuleType | None = None) -> int:
    """Return how many Python functions are called, of this module if there is one."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and (module is None or frame.f_code.co_filename == module.__file__):
            calls += 1

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
