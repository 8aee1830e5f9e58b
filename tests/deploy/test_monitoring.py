"""deploy/monitoring: alert rules, dashboard and scrape configuration fit the metrics."""

import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from scrapes import documented, run_promtool

DEPLOY = ROOT / "deploy" / "monitoring"
# What an alert or a panel may name besides metrics.
WORDS = {
    *("sum", "min", "count", "rate", "histogram_quantile", "by", "or", "ignoring", "group_left"),
    *("up", "time", "instance", "job", "le", "__rate_interval", "m"),
    # Of node_exporter.
    *("node_systemd_unit_state", "name", "state"),
}


def alert_rules() -> list[dict[str, str]]:
    (group,) = yaml.safe_load((DEPLOY / "widget-catalog-alerts.yml").read_text(encoding="utf-8"))[
        "groups"
    ]
    return list(group["rules"])


def panels() -> list[dict[str, object]]:
    return list(json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))["panels"])


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]  # type: ignore[attr-defined]


def unknown_words(expression: str) -> set[str]:
    """Return the words of an expression that are no part of PromQL, no metric and no label."""
    metrics = documented()
    names, labels = set(), set()
    for name, (kind, own_labels) in metrics.items():
        suffixes = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
        names |= {name + suffix for suffix in suffixes.get(kind, ("",))}
        labels |= set(own_labels)
    without_strings = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"[A-Za-z_]\w*", without_strings)) - names - labels - WORDS


def test_the_dashboard_has_eight_panels_with_titles_and_descriptions() -> None:
    assert len(panels()) == 8
    assert all(panel["title"] and panel["description"] for panel in panels())
    assert len({panel["id"] for panel in panels()}) == 8


@pytest.mark.parametrize("expression", panel_expressions())
def test_a_panel_names_only_metrics_that_exist(expression: str) -> None:
    assert unknown_words(expression) == set()


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_only_metrics_that_exist(rule: dict[str, str]) -> None:
    assert unknown_words(rule["expr"]) == set()


def test_the_page_explains_every_alert() -> None:
    page = (ROOT / "docs/operate/metrics.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(WidgetCatalog\w+)` \|", page, re.MULTILINE)
    assert named == [rule["alert"] for rule in alert_rules()]


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    run_promtool("check", "config", DEPLOY / "prometheus.yml")


def test_each_alert_fires_at_its_fault_only() -> None:
    run_promtool("test", "rules", ROOT / "tests" / "data" / "alerts_test.yml")


def test_promtool_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [each.replace("$__rate_interval", "5m") for each in panel_expressions()]
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run_promtool("check", "rules", file)
