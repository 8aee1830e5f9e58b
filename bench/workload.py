"""The benchmark's rows, each with a list of requests that is the same in every run."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, count, cycle, islice, product
from random import Random
from string import ascii_lowercase
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from bench.generate import FIXED_SCOPE, LONG_HISTORY, document
from bench.words import EVERYWHERE, WORDS, Item, pick

SEARCH = "/api/v1/widgets/search"
UPDATES = "/api/v1/widgets/updates"
IMPORT_MAP = "/api/v1/widgets/importmap"
# Half of the widgets have a version from before this day and one from after it.
MIDDLE = "2021-06-01"
MONTHS, DAYS = range(1, 13), range(1, 29)
REGISTRY = f"/api/widgets/{FIXED_SCOPE}/registry.json"
# The size in bytes of a page with 20 search results, and of a registry with 200 widgets.
BASELINE_SIZES = PAGE_BYTES, REGISTRY_BYTES = 20_000, 800_000
CONNECTIONS = 8
IDLE_CONNECTIONS = 700
REQUESTS = 800
# The number of requests in rows that take several milliseconds per request.
SLOW_REQUESTS = 40
EARLIER_QUERIES = 500
USUAL_QUERIES = 2000
HOT_QUERIES = 50
INSTALLED = 20
# The installed widgets are chosen from this many widgets.
INSTALLED_FROM = 1000
# The most frequent words are left out: searches for words with many hits have their own row.
USUAL_RANKS = slice(40, 4000)
SDKS = ("0.9.5", "1.0.0", "1.2.6", "1.4.2", "1.6.1", "2.0.1", "2.3.0", "3.0.0")


class Request(NamedTuple):
    method: str
    path: str


def constant_path(size: int) -> str:
    """Return the path of a constant response, below /api/ so that the I/O thread serves it."""
    return f"/api/constant/{size}"


@dataclass(frozen=True)
class Row:
    """A row in the benchmark; a cold row runs in a new process with an empty cache."""

    key: str
    title: str
    requests: Sequence[Request]
    # The minimum ratio of this row's rate to the baseline's rate.
    target: float | None = None
    cold: bool = False
    # The minimum number of requests per second.
    min_rate: int | None = None
    # The maximum CPU time per request, which is the target for web pages.
    max_milliseconds: int | None = None
    baseline_bytes: int = PAGE_BYTES
    headers: dict[str, str] = field(default_factory=dict)
    # True if requests send the response's ETag in If-None-Match.
    revalidates: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    # The number of other connections that stay idle in the meantime.
    idle_connections: int = 0
    # The maximum ratio of this row's CPU time to the CPU time of the compared_with row.
    max_cpu_ratio: float | None = None
    compared_with: str = ""


def rows(widgets: int) -> list[Row]:
    """Return every row, for a catalog of this size."""
    plain, registry = [Request("GET", SEARCH)], [Request("GET", REGISTRY)]
    hot, details, installs = hot_searches(), details_of(widgets), installs_of(widgets)
    words = cold_queries()
    compatible = [searches([q], compatSdk=SDKS[i % len(SDKS)])[0] for i, q in enumerate(words)]
    gzip = {"Accept-Encoding": "gzip, deflate"}
    metrics = {"CATALOG_METRICS": "127.0.0.1:0"}
    large: dict[str, Any] = {"baseline_bytes": REGISTRY_BYTES}
    history = detail_of(LONG_HISTORY)
    pages = [Request("GET", history.path.removeprefix("/api/v1"))] * SLOW_REQUESTS
    return [
        Row("search", "search, no q", repeated(plain), 1.4),
        Row("hot", "search, q, hot", hot, 1.4),
        idle_row(hot),
        Row("metrics", "search, q, hot, metrics on", hot, settings=metrics),
        Row("cold", "search, q, cold", searches(words), 0.30, cold=True),
        Row("compatible", "search, q + compatSdk, cold", compatible, 0.22, cold=True),
        cold_row("stable", "search, q + stable, cold", searches(words, stable="true")),
        cold_row("before", "search, q + before, cold", searches(words, before=MIDDLE)),
        cold_row("before-updated", "search, sort=updated + before, cold", by_update()),
        Row("two-letters", "search, two letters, cold", searches(two_letters()), cold=True),
        Row("detail", "detail, random", repeated(details), 0.5),
        Row("detail-hot", "detail, 60 versions, hot", repeated([history]), 1.4),
        Row("registry", "registry, 200 widgets, hot", repeated(registry), 1.2, **large),
        Row("gzip", "registry, 200 widgets, hot, gzip", repeated(registry), headers=gzip, **large),
        Row("304", "registry, 304", repeated(registry), 1.4, revalidates=True),
        Row("updates", "updates of 20 widgets, cold", updates_of(widgets), cold=True, min_rate=400),
        import_map_row(widgets),
        Row("post", "POST, durable", repeated(installs), 0.30),
        Row("mix", "97% reads, 3% installs", mix(hot, details, installs), 0.8),
        Row("browse", "browse page, 20 cards", browse_pages(), max_milliseconds=15),
        Row("page", "page of a widget, 60 versions", pages, max_milliseconds=20),
    ]


def cold_row(key: str, title: str, requests: Sequence[Request]) -> Row:
    """Return the row for a search that may take 1.5 times the CPU time of the "cold" row."""
    return Row(key, title, requests, cold=True, max_cpu_ratio=1.5, compared_with="cold")


def import_map_row(widgets: int) -> Row:
    """Return the row for import maps with the same widgets as "updates"; it must be as fast."""
    return Row(
        "import-map",
        "import map of 20 widgets, cold",
        import_maps_of(widgets),
        cold=True,
        max_cpu_ratio=1.0,
        compared_with="updates",
    )


def idle_row(hot: Sequence[Request]) -> Row:
    """Return the row that repeats the "hot" searches while many other connections are idle."""
    return Row(
        "idle",
        f"search, q, hot, {IDLE_CONNECTIONS} idle connections",
        hot,
        # The server must not close the idle connections while the row is measured.
        settings={"CATALOG_IDLE_TIMEOUT": "3600"},
        idle_connections=IDLE_CONNECTIONS,
        max_cpu_ratio=1.2,
        compared_with="hot",
    )


QUICK_ROWS = ("cold", "hot", "detail", "304", "post")


def growth_rows(widgets: int) -> list[Row]:
    """Return the rows that are measured at every size."""
    return [
        Row("cold", "search, q, cold", searches(cold_queries()[:300])),
        Row("everywhere", "search, a word in every widget, cold", everywhere()),
        Row("detail", "detail, random", details_of(widgets)[:300]),
        Row("post", "POST, durable", installs_of(widgets)[:300]),
        Row("registry", "registry, 200 widgets, hot", [Request("GET", REGISTRY)] * 300),
    ]


def slow_requests(widgets: int) -> Iterator[Request]:
    """Yield distinct slow requests endlessly: long update lists, and searches for two letters."""
    installed = [("installed", oldest_of(number)) for number in range(min(widgets, 100))]
    for number, letters in zip(count(1), cycle(two_letters()), strict=False):
        query = urlencode([("compatSdk", f"1.4.{number}"), *installed])
        yield Request("GET", f"{UPDATES}?{query}")
        yield searches([letters], page=str(number))[0]


def warm_up() -> list[Request]:
    """Return requests that make every thread of a new process open its database connection."""
    return [*(detail_of(number) for number in range(40)), *[Request("GET", SEARCH)] * 40]


@cache
def earlier_use() -> list[Request]:
    """Return searches that are sent before the measurement, as if the process had been in use."""
    prefixes = [query[:-1] for query in usual_queries() if _long_enough(query[:-1])]
    others = [query for query in dict.fromkeys(prefixes) if query not in usual_queries()]
    with_sdk = [{}, *({"compatSdk": sdk} for sdk in SDKS)]
    rng = Random(8)
    return [searches([query], **pick(rng, with_sdk))[0] for query in others[:EARLIER_QUERIES]]


def cold_queries() -> list[str]:
    return shuffled(usual_queries()[:USUAL_QUERIES], Random(3))[:REQUESTS]


@cache
def usual_queries() -> list[str]:
    """Return two-word display names, and words of medium frequency, some of them cut off."""
    rng = Random(3)
    titles = (document(number)["widget"]["displayName"] for number in range(1000))
    queries = [title for title in titles if len(title.split()) == 2 and _long_enough(title)]
    queries = list(dict.fromkeys(queries))[: USUAL_QUERIES * 15 // 100]
    for word in WORDS[USUAL_RANKS]:
        cut = len(word) > 5 and rng.random() < 0.2
        query = word[: 4 + int(rng.random() * 2)] if cut else word
        if _long_enough(query) and query not in queries:
            queries.append(query)
    return queries


def _long_enough(query: str) -> bool:
    return all(len(folded(word)) >= 3 for word in query.split())


def hot_searches() -> list[Request]:
    """Return searches with few distinct queries, some much more frequent than others."""
    queries = [word for word in WORDS[60:] if _long_enough(word)][:HOT_QUERIES]
    weights = list(accumulate(1 / rank for rank in range(1, HOT_QUERIES + 1)))
    return searches(Random(4).choices(queries, cum_weights=weights, k=REQUESTS))


def two_letters() -> list[str]:
    """Return pairs of letters that are adjacent in some word."""
    adjacent = {folded(word)[at : at + 2] for word in WORDS[:2000] for at in range(len(word) - 1)}
    pairs = {first + second for first, second in product(ascii_lowercase, ascii_lowercase)}
    return shuffled(sorted(adjacent & pairs), Random(5))[:SLOW_REQUESTS]


def everywhere() -> list[Request]:
    """Return the first pages of a search for a word that every widget contains."""
    return [searches([EVERYWHERE], page=str(page))[0] for page in range(1, 11)]


def browse_pages() -> list[Request]:
    """Return browse pages: half of them search for words, the others filter and sort."""
    filters: list[dict[str, str]] = [
        {},
        {"sort": "updated"},
        {"scope": FIXED_SCOPE},
        {"compatSdk": "1.4.2"},
        {"compatSdk": "1.4.2", "compatible": "true"},
        {"official": "true"},
        {"permission": "network", "license": "MIT"},
    ]
    words = [{"q": query} for query in cold_queries()[: SLOW_REQUESTS // 2]]
    others = list(islice(cycle(filters), SLOW_REQUESTS // 2))
    return [Request("GET", f"/?{urlencode(arguments)}") for arguments in (*words, *others)]


def details_of(widgets: int) -> list[Request]:
    """Return requests for the details of random widgets, except the one with a long history."""
    numbers = [number for number in range(widgets) if number != LONG_HISTORY]
    return [detail_of(number) for number in shuffled(numbers, Random(6))[:5000]]


@cache
def detail_of(number: int) -> Request:
    widget = document(number)["widget"]
    return Request("GET", f"/api/v1/widgets/{quote(widget['scope'])}/{quote(widget['name'])}")


@cache
def updates_of(widgets: int) -> list[Request]:
    """Return update checks for the oldest versions of random widgets, in many combinations."""
    rng = Random(10)
    numbers = range(min(widgets, INSTALLED_FROM))
    requests = []
    for index in range(REQUESTS):
        installed = list(dict.fromkeys(pick(rng, numbers) for _ in range(2 * INSTALLED)))
        query = [("installed", oldest_of(number)) for number in installed[:INSTALLED]]
        sdk = SDKS[index % len(SDKS)]
        requests.append(Request("GET", f"{UPDATES}?{urlencode([('compatSdk', sdk), *query])}"))
    return requests


def import_maps_of(widgets: int) -> list[Request]:
    """Return import map requests for the same widgets and SDKs as updates_of()."""
    requests = []
    for each in updates_of(widgets):
        (_, sdk), *installed = parse_qsl(urlsplit(each.path).query)
        query = [("widget", value.rpartition("@")[0]) for _, value in installed]
        path = f"{IMPORT_MAP}?{urlencode([('compatSdk', sdk), *query])}"
        requests.append(Request("GET", path))
    return requests


def by_update() -> list[Request]:
    """Return searches sorted by update time, each limited to the time before another day."""
    days = (
        f"20{year}-{month:02}-{day:02}" for year in (20, 21) for month in MONTHS for day in DAYS
    )
    return [Request("GET", f"{SEARCH}?sort=updated&before={day}") for day in days]


@cache
def oldest_of(number: int) -> str:
    each = document(number)
    widget, oldest = each["widget"], each["versions"][-1]
    return f"{widget['scope']}/{widget['name']}@{oldest['version']}"


def installs_of(widgets: int) -> list[Request]:
    return [Request("POST", request.path) for request in reversed(details_of(widgets))]


def mix(
    hot: Sequence[Request], details: Sequence[Request], installs: Sequence[Request]
) -> list[Request]:
    """Return a mix of 60% searches with q, 12% without q, 25% details and 3% installs."""
    rng = Random(7)
    kinds: list[Sequence[Request]] = (
        [hot] * 60 + [[Request("GET", SEARCH)]] * 12 + [details] * 25 + [installs] * 3
    )
    return [pick(rng, pick(rng, kinds)) for _ in range(REQUESTS)]


def searches(queries: Sequence[str], **parameters: str) -> list[Request]:
    return [Request("GET", f"{SEARCH}?{urlencode({'q': q, **parameters})}") for q in queries]


def repeated(requests: Sequence[Request]) -> list[Request]:
    return list(islice(cycle(requests), REQUESTS))


def folded(text: str) -> str:
    """Return a string as a search compares it: without case and accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def shuffled(items: Iterable[Item], rng: Random) -> list[Item]:
    # Random.random() is the only method that returns the same numbers in every Python version.
    return sorted(items, key=lambda _: rng.random())
