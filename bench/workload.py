"""What is asked: the rows of the table, each a list of requests that is always the same."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, product
from random import Random
from typing import NamedTuple
from urllib.parse import quote, urlencode

from bench.generate import FIXED_SCOPE, LONG_HISTORY, document
from bench.words import EVERYWHERE, WORDS, Item, pick

SEARCH = "/api/v1/widgets/search"
REGISTRY = f"/api/widgets/{FIXED_SCOPE}/registry.json"
COLD_QUERIES = 2000
EARLIER_QUERIES = 1000
HOT_QUERIES = 50
# A catalog has thousands of words; a search for the few most frequent ones is a row of its own.
USUAL_RANKS = slice(40, 4000)
SDKS = ("0.9.5", "1.0.0", "1.2.6", "1.4.2", "1.6.1", "2.0.1", "2.3.0", "3.0.0")


class Request(NamedTuple):
    method: str
    path: str


@dataclass(frozen=True)
class Row:
    """One line of the table. A cold row sends each request once, to a process of its own."""

    key: str
    title: str
    requests: Sequence[Request]
    cold: bool = False
    just_started: bool = False  # the process has answered nothing yet; others have been in use
    target: float | None = None  # the least ratio to the limit
    headers: dict[str, str] = field(default_factory=dict)
    revalidates: bool = False  # sends the ETag of the answer, and expects 304
    seconds: int = 1


def rows(widgets: int) -> list[Row]:
    """Every row, for a catalog of so many widgets."""
    hot = hot_searches()
    details, installs = details_of(widgets), installs_of(widgets)
    plain, registry = [Request("GET", SEARCH)], [Request("GET", REGISTRY)]
    words = cold_queries()
    compatible = [searches([q], compatSdk=SDKS[i % len(SDKS)])[0] for i, q in enumerate(words)]
    pages = last_page(widgets)
    return [
        Row("search", "search, no q", plain, target=0.85),
        Row("cold", "search, q, cold", searches(words), cold=True, target=0.50, seconds=3),
        Row(
            *("started", "search, q, cold, just started", searches(words)),
            cold=True,
            just_started=True,
            seconds=3,
        ),
        Row("hot", "search, q, hot", hot, target=0.85),
        Row(
            *("compatible", "search, q + compatSdk, cold", compatible),
            cold=True,
            target=0.45,
            seconds=3,
        ),
        Row("two-letters", "search, two letters, cold", searches(two_letters()), cold=True),
        Row("everywhere", "search, a word in every widget, cold", everywhere(pages), cold=True),
        Row("page-50", "search, page 50 and deeper, cold", deep_pages(pages), cold=True),
        Row("detail", "detail, 5 versions", details, target=0.85),
        Row("detail-60", "detail, 60 versions", [detail_of(LONG_HISTORY)]),
        Row("registry", "registry, 200 widgets", registry, target=0.90),
        Row(
            *("registry-gzip", "registry, 200 widgets, gzip accepted", registry),
            headers={"Accept-Encoding": "gzip"},
        ),
        Row("registry-304", "registry, 304", registry, target=0.90, revalidates=True),
        Row("post", "POST, durable", installs, target=0.60),
        Row("mix", "97% reads, 3% POST", mix(hot, details, installs), target=0.70),
    ]


QUICK = ("cold", "hot", "detail", "registry-304", "post")


def growth_rows(widgets: int) -> list[Row]:
    """What is asked of catalogs of every size; details and installs all over each of them."""
    queries = searches(cold_queries()[:300])  # few enough to be through them all at every size
    return [
        Row("cold", "search, q, cold", queries, cold=True, seconds=3),
        Row("everywhere", "search, a word in every widget, cold", everywhere(50), cold=True),
        Row("detail", "detail, 5 versions", details_of(widgets)),
        Row("post", "POST, durable", installs_of(widgets)),
        Row("registry", "registry, 200 widgets", [Request("GET", REGISTRY)]),
    ]


def warm_up() -> list[Request]:
    """Requests that let every thread of a new process open what it keeps open."""
    return [*(detail_of(number) for number in range(40)), *[Request("GET", SEARCH)] * 40]


def earlier_use() -> list[Request]:
    """What was asked of a service that has been in use: searches that are not measured later."""
    typing = [query[:-1] for query in usual_queries() if _long_enough(query[:-1])]
    others = [query for query in dict.fromkeys(typing) if query not in usual_queries()]
    with_sdk = [{}, *({"compatSdk": sdk} for sdk in SDKS)]
    chance = Random(8)
    return [searches([query], **pick(chance, with_sdk))[0] for query in others[:EARLIER_QUERIES]]


def cold_queries() -> list[str]:
    return shuffled(usual_queries()[:COLD_QUERIES], Random(3))


@cache
def usual_queries() -> list[str]:
    """Words of usual frequency: most whole, some not typed to the end; and some names of two."""
    chance = Random(3)
    titles = (document(number)["widget"]["displayName"] for number in range(1000))
    queries = [title for title in titles if len(title.split()) == 2 and _long_enough(title)]
    queries = list(dict.fromkeys(queries))[: COLD_QUERIES * 15 // 100]
    for word in WORDS[USUAL_RANKS]:
        cut = len(word) > 5 and chance.random() < 0.2
        query = word[: 4 + int(chance.random() * 2)] if cut else word
        if _long_enough(query) and query not in queries:
            queries.append(query)
    return queries


def _long_enough(query: str) -> bool:
    return all(len(folded(word)) >= 3 for word in query.split())


def hot_searches() -> list[Request]:
    """A stream of searches among which the first few queries are asked most often."""
    chance = Random(4)
    queries = [word for word in WORDS[60:] if _long_enough(word)][:HOT_QUERIES]
    shares = list(accumulate(1 / rank for rank in range(1, HOT_QUERIES + 1)))
    drawn = chance.choices(queries, cum_weights=shares, k=5000)
    return searches(drawn)


def two_letters() -> list[str]:
    """Every two letters that stand together in some word."""
    seen = {folded(word)[at : at + 2] for word in WORDS[:2000] for at in range(len(word) - 1)}
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = {first + second for first, second in product(letters, letters)}
    return shuffled(sorted(seen & pairs), Random(5))


def everywhere(pages: int) -> list[Request]:
    """The word that is in every widget, page by page, so that no answer is asked for twice."""
    return [searches([EVERYWHERE], page=str(page))[0] for page in range(1, min(pages, 400) + 1)]


def deep_pages(pages: int) -> list[Request]:
    return [Request("GET", f"{SEARCH}?page={page}") for page in range(50, min(pages, 500) + 1)]


def last_page(widgets: int) -> int:
    return widgets // 20


def details_of(widgets: int) -> list[Request]:
    """Widgets at random, each once; not the one with the long history."""
    numbers = [number for number in range(widgets) if number != LONG_HISTORY]
    return [detail_of(number) for number in shuffled(numbers, Random(6))[:5000]]


@cache
def detail_of(number: int) -> Request:
    widget = document(number)["widget"]
    return Request("GET", f"/api/v1/widgets/{quote(widget['scope'])}/{quote(widget['name'])}")


def installs_of(widgets: int) -> list[Request]:
    return [Request("POST", request.path) for request in reversed(details_of(widgets))]


def mix(
    hot: Sequence[Request], details: Sequence[Request], installs: Sequence[Request]
) -> list[Request]:
    """Of a hundred requests: 60 searches with q, 12 without, 25 details and 3 installs."""
    chance = Random(7)
    kinds: list[Sequence[Request]] = (
        [hot] * 60 + [[Request("GET", SEARCH)]] * 12 + [details] * 25 + [installs] * 3
    )
    return [pick(chance, pick(chance, kinds)) for _ in range(5000)]


def searches(queries: Sequence[str], **parameters: str) -> list[Request]:
    return [Request("GET", f"{SEARCH}?{urlencode({'q': q, **parameters})}") for q in queries]


def folded(text: str) -> str:
    """The text as a search compares it: without case or accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def shuffled(items: Iterable[Item], chance: Random) -> list[Item]:
    """The items in an order of chance, by the one number that every Python gives alike."""
    return sorted(items, key=lambda _: chance.random())
