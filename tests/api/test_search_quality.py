"""Quality of the results: the expected widgets come first, in the demo catalog and a larger one."""

from collections.abc import Callable
from itertools import product

import pytest
from builders import Json, document
from flask.testing import FlaskClient

# The query, the number of results, and the first of them.
EXPECTED = [
    ("clock", 1, ["clock"]),
    ("CLOCK world", 1, ["clock"]),
    ("weather", 4, ["weather", "air-quality", "meteo-marine", "rain-radar"]),
    ("rain", 4, ["rain-radar", "weather"]),
    ("forecast", 2, ["weather", "giessplan"]),
    ("meteo", 1, ["meteo-marine"]),
    ("MÉTÉO", 1, ["meteo-marine"]),
    ("天気", 1, ["tenki-yoho"]),
    ("天", 1, ["tenki-yoho"]),
    ("予報", 1, ["tenki-yoho"]),
    ("giessplan", 1, ["giessplan"]),
    ("GIESSPLAN", 1, ["giessplan"]),
    ("gießplan", 1, ["giessplan"]),
    ("مواقيت", 1, ["prayer-times"]),
    ("🍅", 1, ["focus-timer"]),
    ("timer", 2, ["focus-timer", "gesture-pad"]),
    ("lights", 2, ["lights", "log-tail"]),
    ("metric", 2, ["metrics-graph", "weather"]),
    ("log", 2, ["log-tail", "clock"]),
    ("up", 3, ["uptime", "clock", "lights"]),
    ("power grid", 1, ["energy-meter"]),
    ("status build", 1, ["build-status"]),
    ("currency convert", 1, ["currency-converter"]),
    ("air pollen", 1, ["air-quality"]),
    ("<b>", 1, ["recipe-box"]),
    ('"nuts', 1, ["recipe-box"]),
    ("nuts & bolts", 1, ["recipe-box"]),
    ("OR NOT", 3, ["notes", "market-ticker", "gesture-pad"]),
    ("clock-classic", 0, []),
    ("clock*", 0, []),
]


@pytest.mark.parametrize(("q", "total", "first"), EXPECTED, ids=[q for q, _, _ in EXPECTED])
def test_demo_catalog_gives_the_expected_results(
    demo: FlaskClient, q: str, total: int, first: list[str]
) -> None:
    body = demo.get("/api/v1/widgets/search", query_string={"q": q}).json
    assert body["total"] == total
    assert [widget["name"] for widget in body["widgets"]][: len(first)] == first


ADJECTIVES = ["Simple", "Live", "Café", "Tiny", "World", "Élan", "東京", "Team"]
THINGS = ["Clock", "Weather", "Notes", "Radar", "Timer", "Board", "時計", "Kalender"]


def larger_catalog() -> list[Json]:
    """Return a widget for each pair of words, with a word of another pair in its description."""
    pairs = list(product(ADJECTIVES, THINGS))
    return [
        document(
            f"s{number % 3}/w{number}",
            displayName=f"{adjective} {thing}",
            description=f"Goes well with {pairs[(number * 7 + 3) % len(pairs)][1]} displays.",
            downloadCount=(number * 37) % 101,
        )
        for number, (adjective, thing) in enumerate(pairs)
    ]


LARGER = [
    ("world clock", "World Clock"),
    ("clock world", "World Clock"),
    ("cafe notes", "Café Notes"),
    # The one with the most downloads of eight.
    ("elan", "Élan 時計"),
    ("東京", "東京 Weather"),
    ("京 時", "東京 時計"),
    ("tiny dar", "Tiny Radar"),
]


@pytest.mark.parametrize(("q", "first"), LARGER, ids=[q for q, _ in LARGER])
def test_larger_catalog_shows_the_expected_name_first(
    client_with: Callable[..., FlaskClient], q: str, first: str
) -> None:
    client = client_with(*larger_catalog())
    body = client.get("/api/v1/widgets/search", query_string={"q": q}).json
    assert body["widgets"][0]["displayName"] == first
