"""The words in a generated catalog: made of syllables, always the same, most frequent first."""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import TypeVar

Item = TypeVar("Item")

SIZE = 6000
# The word that every description contains.
EVERYWHERE = "dashboard"

_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p ph pl pr qu r s sc sh sk sl sm sn sp "
    "st str t th tr tw v w z"
).split() + [""] * 4
_VOWELS = "a a a e e e e i i i o o o u u ai ea ee ia io oa oo ou y".split()
_CODAS = "b ck ct d ft g l ld ll m mp n n nd ng nt p r r rd rk rm rn rt s ss st t t th x".split()
_ACCENTS = str.maketrans("aeioucn", "áéîöüçñ")
_IDEOGRAPHS = "天気時計予定表示地図写真音楽電力水道交通新聞記事検索翻訳健康運動睡眠料理"

# The percentages of words that have at most one, two, three … syllables.
_SYLLABLE_COUNTS = (8, 48, 85, 98, 100)


def pick(rng: Random, choices: Sequence[Item]) -> Item:
    # Random.random() is the only method that returns the same numbers in every Python version.
    return choices[int(rng.random() * len(choices))]


def _word(rng: Random, rank: int) -> str:
    if rank % 89 == 88:
        return "".join(pick(rng, _IDEOGRAPHS) for _ in range(2 + int(rng.random() * 3)))
    # Frequent words are short in every language.
    candidates = [_syllables(rng) for _ in range(5 if rank < 150 else 1)]
    word = min(candidates, key=len)
    return word.translate(_ACCENTS) if rank % 31 == 30 else word


def _syllables(rng: Random) -> str:
    count = 1 + bisect(_SYLLABLE_COUNTS, rng.random() * 100)
    word = "".join(pick(rng, _ONSETS) + pick(rng, _VOWELS) for _ in range(count))
    return word + pick(rng, _CODAS) if count == 1 or rng.random() < 0.6 else word


def _vocabulary() -> tuple[str, ...]:
    rng = Random(1)
    words: dict[str, None] = {}
    while len(words) < SIZE:
        word = _word(rng, len(words))
        if len(word) <= 16 and word not in EVERYWHERE:
            words.setdefault(word)
    return tuple(words)


WORDS = _vocabulary()

# Cumulative frequencies by the Zipf-Mandelbrot law, which makes the first few words less frequent
# than Zipf's 1/rank.
_CUMULATIVE = tuple(accumulate(1 / (rank + 3.7) for rank in range(SIZE)))


def some_words(rng: Random, count: int, first_rank: int = 0) -> list[str]:
    """Return random words, frequent ones more often, but none that ranks before first_rank."""
    low = _CUMULATIVE[first_rank - 1] if first_rank else 0.0
    span = _CUMULATIVE[-1] - low
    return [WORDS[bisect(_CUMULATIVE, low + rng.random() * span)] for _ in range(count)]
