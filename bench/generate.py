"""Generates catalogs: widget number n is the same in every catalog and in every run."""

import hashlib
import json
import re
import unicodedata
from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from bench.words import EVERYWHERE, WORDS, pick, some_words

Json = dict[str, Any]

# This scope and the widget with many versions are the same in catalogs of every size.
FIXED_SCOPE = "two-hundred"
FIXED_SCOPE_SIZE = 200
# The sequence number of the widget with many versions.
LONG_HISTORY = 200
LONG_HISTORY_VERSIONS = 60
USUAL_VERSIONS = 5

SCOPES = tuple(f"{word}-labs" for word in WORDS[600:] if word.isascii() and len(word) < 7)[:49]
_CUMULATIVE_SCOPES = tuple(accumulate(1 / (rank + 5) for rank in range(len(SCOPES))))

SDK_RANGES = (
    *("^0.8.0", "^0.9.1", "~0.9.4", ">=0.9.0", "0.x", "^0.9.0 || ^1.0.0"),
    *("^1.0.0", "1.x", "~1.0.3", ">=1.0.0 <2.0.0", "^1.1.0", "~1.1.0", "^1.2.0", "~1.2.5"),
    *("1.2.x", ">=1.2.0", "^1.3.0", "1.3.0 - 1.6.0", "^1.4.0", "~1.4.2", "^1.5.1", "1.5.2"),
    *("^1.6.0", "^1.6.0 || ^2.0.0", ">=1.6.0 <3.0.0", "^2.0.0", "2.x", "~2.0.1", "2", "^2.1.0"),
    *("~2.1.3", "^2.2.0", ">=2.2.0", "^2.3.0", "~2.3.1", "2.0.0 - 2.4.0", "^2.4.0", "*"),
    *("^3.0.0-beta.1", "^3.0.0"),
)
ICONS = "clock weather-sunny chart-line calendar map music rss home lightbulb water camera".split()
LICENSES = ("MIT", "MIT", "MIT", "Apache-2.0", "Apache-2.0", "GPL-3.0-only", "ISC", None)
PERMISSIONS = ("network", "storage", "geolocation", "notifications", "clipboard", "camera")
FIRST_DAY = datetime(2019, 1, 1, tzinfo=UTC).timestamp()
DAY = 86_400.0


def document(number: int) -> Json:
    """Return the document for a widget."""
    rng = Random(1_000_003 * (number + 1))
    created = FIRST_DAY + rng.random() * 900 * DAY
    scope, title = _scope(rng, number), _title(rng)
    name = f"{_slug(title)}-{number:x}"
    widget = {
        "scope": scope,
        "name": name,
        "displayName": title,
        "description": _description(rng),
        "icon": f"mdi:{pick(rng, ICONS)}" if rng.random() < 0.9 else None,
        "isOfficial": None if rng.random() < 0.05 else rng.random() < 0.04,
        "downloadCount": _download_count(rng),
        "createdAt": _moment(created),
        "listed": True,
    }
    count = LONG_HISTORY_VERSIONS if number == LONG_HISTORY else USUAL_VERSIONS
    return {"widget": widget, "versions": _versions(rng, scope, name, created, count)}


def documents(count: int) -> Iterator[Json]:
    """Yield a catalog of this size; a smaller catalog is the beginning of a larger one."""
    return map(document, range(count))


def write_catalog(path: Path, count: int) -> None:
    """Write a catalog of this size to a file that widget-catalog import can read."""
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", encoding="utf-8") as file:
        for widget in documents(count):
            file.write(json.dumps(widget, ensure_ascii=False) + "\n")
    unfinished.replace(path)


def _scope(rng: Random, number: int) -> str:
    usual = SCOPES[bisect(_CUMULATIVE_SCOPES, rng.random() * _CUMULATIVE_SCOPES[-1])]
    return FIXED_SCOPE if number < FIXED_SCOPE_SIZE else usual


def _title(rng: Random) -> str:
    words = some_words(rng, 1 + int(rng.random() * 3), first_rank=40)
    return " ".join(word[0].upper() + word[1:] for word in words)


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z]+", "-", plain).strip("-") or "widget"


def _description(rng: Random) -> str:
    words = some_words(rng, 7 + int(rng.random() * 14))
    words.insert(int(rng.random() * (len(words) + 1)), EVERYWHERE)
    return _sentences(words)


def _sentences(words: list[str]) -> str:
    middle = len(words) // 2 if len(words) > 13 else len(words)
    parts = [" ".join(part) for part in (words[:middle], words[middle:]) if part]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def _download_count(rng: Random) -> int | None:
    # A Pareto distribution: a few widgets have most of the installs.
    return None if rng.random() < 0.02 else int(40 / (1.0001 - rng.random()) ** 1.3)


def _versions(rng: Random, scope: str, name: str, created: float, count: int) -> list[Json]:
    numbers, published, versions = [0, 1, 0], created, []
    sdk = int(rng.random() * (len(SDK_RANGES) - 10))
    for _ in range(count):
        part = bisect((0.1, 0.5), rng.random())
        numbers = [*numbers[:part], numbers[part] + 1, *(0 for _ in numbers[part + 1 :])]
        published += (1 + rng.random() * 2 * 700 / count) * DAY
        sdk = min(sdk + int(rng.random() * 4), len(SDK_RANGES) - 1)
        text = ".".join(map(str, numbers))
        versions.append(_version(rng, scope, name, text, published, SDK_RANGES[sdk]))
    # The newest version comes first, as in the service's exports.
    return versions[::-1]


def _version(
    rng: Random, scope: str, name: str, text: str, published: float, sdk_range: str
) -> Json:
    address = f"https://cdn.example.com/{scope}/{name}/{text}.js"
    yanked, width = rng.random() < 0.02, 1 + int(rng.random() * 4)
    return {
        "version": text,
        "bundleUrl": address,
        "bundleSize": int(2_000 * 50 ** rng.random()),
        "sha256Hash": hashlib.sha256(address.encode()).hexdigest(),
        "publishedAt": _moment(published),
        "yanked": yanked,
        "yankedReason": _sentences(some_words(rng, 6)) if yanked else None,
        "deprecationMessage": "Please update." if rng.random() < 0.04 else None,
        "releaseNotes": _sentences(some_words(rng, 8)) if rng.random() < 0.6 else None,
        "displayName": None,
        "description": _description(rng) if rng.random() < 0.05 else None,
        "icon": None,
        "minSize": {"w": width, "h": 1},
        "maxSize": {"w": width + 4, "h": 6},
        "sdkVersion": sdk_range,
        "configVersion": pick(rng, (None, 1, 1, 2)),
        "permissions": [each for each in PERMISSIONS if rng.random() < 0.2],
        "license": pick(rng, LICENSES),
    }


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
