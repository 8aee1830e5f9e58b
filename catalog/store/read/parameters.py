"""Validates and parses the query parameters that several API routes share."""

from collections.abc import Mapping, Sequence

from ...domain.messages import quoted
from ...domain.semver_ranges import MAX_SAFE_INTEGER, is_version
from ...domain.timestamps import parse_time

DEFAULT_LIMIT = 20
MAX_LIMIT = 100


class ParameterError(ValueError):
    """A parameter is invalid; the message names the parameter and the allowed values."""


def parse_boolean(name: str, value: str | None) -> bool | None:
    """Return the value as a boolean, or None if empty; raise ParameterError if it is invalid."""
    if not value:
        return None
    if value.lower() not in ("true", "false"):
        raise ParameterError(f"{name} must be true or false, not {quoted(value)}.")
    return value.lower() == "true"


def parse_positive(name: str, value: str | None, default: int) -> int:
    """Return a positive number, or the default; raise ParameterError if the value is invalid."""
    if not value:
        return default
    is_number = value.isascii() and value.isdigit()
    digits = value.lstrip("0")
    # Check the length before int(), which fails on more than 4,300 digits.
    if not (is_number and 0 < len(digits) <= 16 and int(digits) <= MAX_SAFE_INTEGER):
        allowed = f"a whole number from 1 to {MAX_SAFE_INTEGER}"
        raise ParameterError(f"{name} must be {allowed}, not {quoted(value)}.")
    return int(digits)


def parse_limit(parameters: Mapping[str, str]) -> int:
    """Return the page size; raise ParameterError if it is invalid."""
    return min(parse_positive("limit", parameters.get("limit"), DEFAULT_LIMIT), MAX_LIMIT)


def parse_compat_sdk(value: str | None) -> str | None:
    """Return compatSdk, or None if it is absent; raise ParameterError if it is invalid."""
    if value is not None and not is_version(value):
        raise ParameterError(
            f"compatSdk must be a valid semver string such as 1.4.0, not {quoted(value)}; "
            "a + in it must be sent as %2B."
        )
    return value


def require_compat_sdk(value: str | None) -> str:
    """Return compatSdk for a route that requires it; raise ParameterError if it is invalid."""
    if value is None:
        raise ParameterError(
            "compatSdk is missing: send the SDK version of the dashboard, such as 1.4.0."
        )
    parse_compat_sdk(value)
    return value


def check_repeated(name: str, values: Sequence[object], maximum: int) -> None:
    """Raise ParameterError unless a parameter has 1 to maximum values, all different."""
    if not 1 <= len(values) <= maximum:
        raise ParameterError(f"{name} must be given 1 to {maximum} times, not {len(values)}.")
    if len(set(values)) < len(values):
        repeated = next(each for each in values if values.count(each) > 1)
        raise ParameterError(f"{name} contains {quoted(str(repeated))} more than once.")


def parse_before(value: str | None) -> str | None:
    """Return the time in the stored format, or None; raise ParameterError if it is invalid.

    An empty value is invalid, so that an unset shell variable does not disable a cool-down.
    """
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise ParameterError(
            f"before must be {error}, not {quoted(value or '')}; a + in it must be sent as %2B."
        ) from None
