"""The alerts and the dashboard of deploy/monitoring: Prometheus's own tool accepts them, and each of their metrics exists."""
import json
import re
import subprocess

import pytest

import harness
from test_metrics import Metrics

PLACE = harness.ROOT / "deploy/monitoring"
# Prometheus makes these itself.
OF_PROMETHEUS = {"up", "ALERTS"}
METRIC = re.compile(r"\b(?:leasehold|process)_[a-z0-9_]+\b")
PARTS = re.compile(r"_(bucket|sum|count)$")


def promtool(*words):
    return subprocess.run(["promtool", *words], cwd=PLACE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def expressions_of_rules():
    return re.findall(r"^ +expr: (.*)$", (PLACE / "alerts.yml").read_text(), re.M)


def panels():
    return [panel for panel in json.loads((PLACE / "dashboard.json").read_text())["panels"] if panel["type"] != "row"]


def test_promtool_accepts_the_alerts_and_their_tests():
    for words in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = promtool(*words)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout


def test_each_alert_has_a_test():
    alerts = set(re.findall(r"- alert: (\w+)", (PLACE / "alerts.yml").read_text()))
    tested = set(re.findall(r'ALERTS\{alertname="(\w+)"', (PLACE / "alerts_test.yml").read_text()))
    assert len(alerts) >= 20 and alerts == tested


def test_a_test_that_does_not_fire_is_noticed(tmp_path):
    (tmp_path / "alerts.yml").write_text((PLACE / "alerts.yml").read_text().replace("leasehold_ready == 0", "leasehold_ready == 7"))
    (tmp_path / "alerts_test.yml").write_text((PLACE / "alerts_test.yml").read_text())
    done = subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert done.returncode != 0


@pytest.mark.parametrize("place", ["alerts", "dashboard"])
def test_each_metric_exists(service, place):
    found = expressions_of_rules() if place == "alerts" else [target["expr"] for panel in panels() for target in panel["targets"]]
    exported = set(Metrics(service.daemon).types)
    used = {PARTS.sub("", name) if PARTS.sub("", name) in exported else name for text in found for name in METRIC.findall(text)}
    assert len(found) >= 20 and used - exported - OF_PROMETHEUS == set()


def test_each_panel_says_what_it_shows():
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles) >= 20
    for panel in panels():
        assert panel["description"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_each_query_of_the_dashboard_is_promql(tmp_path):
    """promtool has no parser of its own for queries: as recording rules it checks them."""
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for i, expression in enumerate(expressions):
        text = expression.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
        lines += [f"      - record: panel:{i}", f"        expr: {json.dumps(text)}"]
    (tmp_path / "rules.yml").write_text("\n".join(lines) + "\n")
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
