"""Quality of the results: the expected widgets of the demo catalog come first."""

import pytest
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
