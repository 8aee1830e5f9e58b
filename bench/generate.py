"""Catalogs of any size, always the same: the widget of a number is the same in all of them."""

import hashlib
import json
import re
import sys
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

# One scope and one widget that are the same at every size, so that growth alone can be seen.
FIXED_SCOPE = "two-hundred"
FIXED_SCOPE_SIZE = 200
LONG_HISTORY = 200  # the number of the widget with many versions
LONG_HISTORY_VERSIONS = 60
USUAL_VERSIONS = 5

SCOPES = tuple(f"{word}-labs" for word in WORDS[600:] if word.isascii() and len(word) < 7)[:49]
_SCOPE_UP_TO = tuple(accumulate(1 / (rank + 5) for rank in range(len(SCOPES))))

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
FIRST_DAY = datetime(2022, 1, 1, tzinfo=UTC).timestamp()
DAY = 86_400.0


def document(number: int) -> Json:
    """The widget document of this number."""
    chance = Random(1_000_003 * (number + 1))
    created = FIRST_DAY + chance.random() * 900 * DAY
    scope, title = _scope(chance, number), _title(chance)
    name = f"{_slug(title)}-{number:x}"
    widget = {
        "scope": scope,
        "name": name,
        "displayName": title,
        "description": _description(chance),
        "icon": f"mdi:{pick(chance, ICONS)}" if chance.random() < 0.9 else None,
        "isOfficial": None if chance.random() < 0.05 else chance.random() < 0.04,
        "downloadCount": _download_count(chance),
        "createdAt": _moment(created),
        "listed": True,
    }
    count = LONG_HISTORY_VERSIONS if number == LONG_HISTORY else USUAL_VERSIONS
    return {"widget": widget, "versions": _versions(chance, scope, name, created, count)}


def documents(count: int) -> Iterator[Json]:
    """The catalog of so many widgets; a smaller one is the beginning of a larger one."""
    return map(document, range(count))


def write_catalog(path: Path, count: int) -> None:
    """Put the catalog of so many widgets into a file that can be imported."""
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", encoding="utf-8") as file:
        for each in documents(count):
            file.write(json.dumps(each, ensure_ascii=False) + "\n")
    unfinished.replace(path)


def _scope(chance: Random, number: int) -> str:
    drawn = SCOPES[bisect(_SCOPE_UP_TO, chance.random() * _SCOPE_UP_TO[-1])]
    return FIXED_SCOPE if number < FIXED_SCOPE_SIZE else drawn


def _title(chance: Random) -> str:
    words = some_words(chance, 1 + int(chance.random() * 3), first_rank=40)
    return " ".join(word[0].upper() + word[1:] for word in words)


def _slug(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z]+", "-", plain).strip("-") or "widget"


def _description(chance: Random) -> str:
    words = some_words(chance, 7 + int(chance.random() * 14))
    words.insert(int(chance.random() * (len(words) + 1)), EVERYWHERE)
    return _sentences(words)


def _sentences(words: list[str]) -> str:
    middle = len(words) // 2 if len(words) > 13 else len(words)
    parts = [" ".join(part) for part in (words[:middle], words[middle:]) if part]
    return " ".join(f"{part[0].upper()}{part[1:]}." for part in parts)


def _download_count(chance: Random) -> int | None:
    # A few widgets have most of the installs, and many have a handful.
    return None if chance.random() < 0.02 else int(40 / (1.0001 - chance.random()) ** 1.3)


def _versions(chance: Random, scope: str, name: str, created: float, count: int) -> list[Json]:
    numbers, published, versions = [0, 1, 0], created, []
    sdk = int(chance.random() * (len(SDK_RANGES) - 10))
    for _ in range(count):
        part = bisect((0.1, 0.5), chance.random())
        numbers = [*numbers[:part], numbers[part] + 1, *(0 for _ in numbers[part + 1 :])]
        published += (1 + chance.random() * 2 * 700 / count) * DAY
        sdk = min(sdk + int(chance.random() * 4), len(SDK_RANGES) - 1)
        text = ".".join(map(str, numbers))
        versions.append(_version(chance, scope, name, text, published, SDK_RANGES[sdk]))
    return versions[::-1]  # newest first, as the service writes them


def _version(
    chance: Random, scope: str, name: str, text: str, published: float, sdk_range: str
) -> Json:
    address = f"https://cdn.example.com/{scope}/{name}/{text}.js"
    yanked, width = chance.random() < 0.02, 1 + int(chance.random() * 4)
    return {
        "version": text,
        "bundleUrl": address,
        "bundleSize": int(2_000 * 50 ** chance.random()),
        "sha256Hash": hashlib.sha256(address.encode()).hexdigest(),
        "publishedAt": _moment(published),
        "yanked": yanked,
        "yankedReason": _sentences(some_words(chance, 6)) if yanked else None,
        "deprecationMessage": "Please update." if chance.random() < 0.04 else None,
        "releaseNotes": _sentences(some_words(chance, 8)) if chance.random() < 0.6 else None,
        "displayName": None,
        "description": _description(chance) if chance.random() < 0.05 else None,
        "icon": None,
        "minSize": {"w": width, "h": 1},
        "maxSize": {"w": width + 4, "h": 6},
        "sdkVersion": sdk_range,
        "configVersion": pick(chance, (None, 1, 1, 2)),
        "permissions": [each for each in PERMISSIONS if chance.random() < 0.2],
        "license": pick(chance, LICENSES),
    }


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    write_catalog(Path(sys.argv[2]), int(sys.argv[1]))
