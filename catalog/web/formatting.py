"""Formats numbers, dates and shell commands for the pages."""

import json
import shlex
from base64 import b64encode
from datetime import UTC, date, datetime
from functools import lru_cache

from ..domain.documents import Json
from ..domain.file_names import bundle_file_name
from ..domain.semver_ranges import is_range

# Units of age, with their length in days.
UNITS = (("year", 365), ("month", 30.44), ("week", 7), ("day", 1))
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def format_number(value: int) -> str:
    """Return a number with thousands separators, such as 301,482."""
    return f"{value:,}"


def format_short_number(value: int) -> str:
    """Return a rounded number with a unit, such as 301k."""
    for unit, size in (("", 1), ("k", 10**3), ("M", 10**6), ("bn", 10**9)):
        scaled = value / size
        if scaled < 999.5 or unit == "bn":
            digits = 1 if unit and scaled < 9.95 else 0
            return f"{scaled:,.{digits}f}".removesuffix(".0") + unit
    raise AssertionError("the last unit has no upper bound")


def format_bytes(value: int) -> str:
    """Return a number of bytes with a unit, such as 20.3 kB."""
    if value < 1000:
        return "1 byte" if value == 1 else f"{value} bytes"
    # A value just below the next unit is rounded up: 999,950 bytes are shown as 1 MB.
    units = (("kB", 10**3), ("MB", 10**6), ("GB", 10**9))
    unit, size = next((each for each in units if value < each[1] * 999.95), units[-1])
    return f"{value / size:,.1f}".removesuffix(".0") + f" {unit}"


def format_day(timestamp: str) -> str:
    """Return the date of a UTC timestamp, such as 4 Aug 2026."""
    year, month, day = timestamp[:10].split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}"


def format_age(timestamp: str, now: date | None = None) -> str:
    """Return how long ago a UTC timestamp was, such as 2 months ago; its date if in the future."""
    days = ((now or datetime.now(UTC).date()) - date.fromisoformat(timestamp[:10])).days
    if days < 2:
        return format_day(timestamp) if days < 0 else ("today", "yesterday")[days]
    unit, length = next((unit, length) for unit, length in UNITS if days >= length)
    return f"{format_count(int(days / length), unit)} ago"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun, such as 1 release or 1,060 releases."""
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


# Parsing a range that is thousands of characters long takes milliseconds, so results are cached.
@lru_cache(maxsize=512)
def is_readable(sdk_range: str) -> bool:
    """Return whether an SDK range is a valid npm range and can be shown to users."""
    return is_range(sdk_range)


def sri_hash(sha256_hash: str) -> str:
    """Return a hexadecimal SHA-256 in the format of the integrity attribute."""
    return "sha256-" + b64encode(bytes.fromhex(sha256_hash)).decode()


def fetch_command(entry: Json) -> str:
    """Return the shell command that downloads a version's bundle."""
    return f"curl -fgL -o {file_name(entry)} {shlex.quote(entry['bundleUrl'])}"


def check_command(entry: Json) -> str:
    """Return the shell command that checks the downloaded bundle against the version's hash."""
    return f"echo '{entry['sha256Hash']}  {file_name(entry)}' | sha256sum -c"


def import_map(entry: Json) -> str:
    """Return the HTML that loads a version in a dashboard, and verifies its bundle."""
    name, url = f"{entry['scope']}/{entry['name']}", entry["bundleUrl"]
    imports = {"imports": {name: url}, "integrity": {url: sri_hash(entry["sha256Hash"])}}
    # In a script element, "<" could begin the end tag.
    text = json.dumps(imports, indent=2, ensure_ascii=False).replace("<", "\\u003c")
    specifier = json.dumps(name, ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<script type="importmap">\n{text}\n</script>\n'
        f'<script type="module">\nconst widget = await import({specifier});\n</script>'
    )


def file_name(entry: Json) -> str:
    """Return the file name for a version's bundle."""
    return bundle_file_name(entry["name"], entry["version"])


def page_numbers(page: int, last: int) -> list[int | None]:
    """Return the numbers in a pager: first, last, current and its neighbours; None for a gap."""
    near = sorted({1, last, *range(max(page - 1, 1), min(page + 1, last) + 1)})
    numbers: list[int | None] = []
    for before, after in zip([0, *near], near, strict=False):
        if after - before == 2:
            # A gap would take up as much space as the single page number it hides.
            numbers.append(after - 1)
        elif after - before > 2:
            numbers.append(None)
        numbers.append(after)
    return numbers
