"""The words of a generated catalog: made from syllables, always the same, most frequent first."""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import TypeVar

Item = TypeVar("Item")

SIZE = 6000
EVERYWHERE = "dashboard"  # is in every description

_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p ph pl pr qu r s sc sh sk sl sm sn sp "
    "st str t th tr tw v w z"
).split() + [""] * 4
_VOWELS = "a a a e e e e i i i o o o u u ai ea ee ia io oa oo ou y".split()
_CODAS = "b ck ct d ft g l ld ll m mp n n nd ng nt p r r rd rk rm rn rt s ss st t t th x".split()
_ACCENTS = str.maketrans("aeioucn", "áéîöüçñ")
_IDEOGRAPHS = "天気時計予定表示地図写真音楽電力水道交通新聞記事検索翻訳健康運動睡眠料理"

# Of a hundred words, how many have at most one, two, three … syllables.
_SYLLABLES = (8, 48, 85, 98, 100)


def pick(chance: Random, choices: Sequence[Item]) -> Item:
    # Random.random() alone is promised to give the same numbers in every version of Python.
    return choices[int(chance.random() * len(choices))]


def _word(chance: Random, rank: int) -> str:
    if rank % 89 == 88:
        return "".join(pick(chance, _IDEOGRAPHS) for _ in range(2 + int(chance.random() * 3)))
    # Words in frequent use are short in every language.
    drawn = [_spoken(chance) for _ in range(5 if rank < 150 else 1)]
    word = min(drawn, key=len)
    return word.translate(_ACCENTS) if rank % 31 == 30 else word


def _spoken(chance: Random) -> str:
    count = 1 + bisect(_SYLLABLES, chance.random() * 100)
    word = "".join(pick(chance, _ONSETS) + pick(chance, _VOWELS) for _ in range(count))
    return word + pick(chance, _CODAS) if count == 1 or chance.random() < 0.6 else word


def _vocabulary() -> tuple[str, ...]:
    chance = Random(1)
    words: dict[str, None] = {}
    while len(words) < SIZE:
        word = _word(chance, len(words))
        if len(word) <= 16 and word not in EVERYWHERE:
            words.setdefault(word)
    return tuple(words)


WORDS = _vocabulary()

# Zipf's law as Mandelbrot put it: the first few words are less frequent than 1/rank would have it.
_UP_TO_RANK = tuple(accumulate(1 / (rank + 3.7) for rank in range(SIZE)))


def some_words(chance: Random, count: int, first_rank: int = 0) -> list[str]:
    """So many words, each as often as its rank says; none more frequent than the first rank."""
    low = _UP_TO_RANK[first_rank - 1] if first_rank else 0.0
    span = _UP_TO_RANK[-1] - low
    return [WORDS[bisect(_UP_TO_RANK, low + chance.random() * span)] for _ in range(count)]
