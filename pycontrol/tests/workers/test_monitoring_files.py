"""Alert rules and the Grafana dashboard of deploy/monitoring use what a running supervisor exports, and lead to sections that exist."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta

import promql_parser as promql
import pytest
import yaml

from rowpost.database.connection import connect
from rowpost.deploy.entries import describe_schedule
from rowpost.endpoint.hosting import with_endpoints
from rowpost.settings.due_times import DueTimes
from rowpost.settings.environment import ScheduleSettings, SupervisorSettings
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.queue import Queue
from rowpost.workers import events
from tests.support.documents import ROOT
from tests.support.scraped import Scrape, scrape
from tests.support.traced import Order, sales
from tests.support.workers import Running

FOLDER = ROOT / "deploy" / "monitoring"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
#: labels that Prometheus adds to each sample, and its own metric
ADDED = {"job", "instance"}
OWN = {"up": ADDED}


class Used:
    """The metrics and the labels in an expression."""

    def __init__(self, text: str) -> None:
        #: label names of the matchers, by metric
        self.matched: dict[str, set[str]] = {}
        #: labels by which it groups and joins
        self.grouped = {
            name for part in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", text) for name in re.split(r",\s*", part)
        }
        promql.walk(promql.parse(text), self._visit)

    def _visit(self, node) -> bool:
        node = node.vector_selector if isinstance(node, promql.MatrixSelector) else node
        if isinstance(node, promql.VectorSelector):
            self.matched.setdefault(node.name, set()).update(matcher.name for matcher in node.matchers.matchers)
        return True


def used_by(text: str) -> Used:
    """Parse an expression of a rule or a panel. Grafana puts an interval in the place of its variable."""
    return Used(text.replace("$__rate_interval", "5m"))


def labels_of(used: Used, exported: Scrape) -> set[str]:
    return ADDED.union(*(OWN.get(name) or exported.labels(name) for name in used.matched))


def check(text: str, exported: Scrape) -> None:
    """Check that each metric is exported, and has the labels."""
    used = used_by(text)
    assert used.matched, text
    for name, labels in used.matched.items():
        known = OWN.get(name) or exported.labels(name) | ADDED
        assert name in exported.names or name in OWN, f"{name} is not exported: {text}"
        assert labels <= known, f"{name} has no label {labels - known}: {text}"
    assert used.grouped <= labels_of(used, exported), text


@pytest.fixture(scope="module")
def exported(target) -> Scrape:
    """What two endpoints export that have handled messages, with a delayed message that is not due yet."""
    settings = replace(
        target.settings, supervisor=SupervisorSettings(idle_timeout=0.3, delayed_lateness=0.1, metrics=0)
    )
    settings = with_endpoints(settings, ["tests.support.traced:sales", "tests.support.traced:billing"])
    nightly = ScheduleSettings("nightly", "Sales", "Sales", "Shop.Count", DueTimes("0 2 1 1 *"), body="{}")
    settings = replace(settings, schedules=(nightly,))
    with connect(target.settings) as database:
        database.call("register_schedule", **describe_schedule(nightly).record)
        for name in ("Sales", "Billing"):
            Queue(name, database).purge()
        with sales.open(database) as bus:
            bus.send(Order(1), to="Sales")
            bus.send(Order(2), to="Sales", delay=timedelta(hours=1))
        with Running(settings) as supervisor:
            supervisor.until(
                lambda: sum(event.count for event in supervisor.seen(events.Handled)) >= 3, "all are handled"
            )
            url = supervisor.seen(events.MetricsServed)[0].url
            due = "rowpost_queue_delayed_next_due_timestamp_seconds"
            supervisor.until(lambda: scrape(url).value(due, queue="Sales") is not None, "the delayed message is seen")
            due = "rowpost_schedule_next_due_timestamp_seconds"
            supervisor.until(lambda: scrape(url).value(due, schedule="nightly") is not None, "the schedule is seen")
            found = scrape(url)
        database.call("unregister_schedule", schedule_name="nightly")
        waiting = DelayedMessages("Sales", database)
        for each in waiting.browse(10):
            waiting.cancel(each.key)
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_uses_exported_metrics_and_labels(rule, exported):
    check(rule["expr"], exported)

    texts = " ".join(rule["annotations"].values())
    used = set(re.findall(r"\$labels\.(\w+)", texts))
    expression = used_by(rule["expr"])
    kept = expression.grouped if " by (" in rule["expr"] else labels_of(expression, exported)
    assert used <= kept, f"its texts use {used - kept}, which the expression drops"
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert {"summary", "description", "runbook"} <= set(rule["annotations"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_a_section_of_the_runbook(rule):
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)

    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_prometheus_is_told_when_each_alert_fires_and_when_not():
    cases = [
        case
        for test in yaml.safe_load((FOLDER / "alerts.test.yml").read_text(encoding="utf-8"))["tests"]
        for case in test["alert_rule_test"]
    ]
    fires, silent = (
        {case["alertname"] for case in cases if bool(case["exp_alerts"]) is expected} for expected in (True, False)
    )

    assert fires == silent == {rule["alert"] for rule in RULES}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus")
def test_promtool_finds_the_alerts_as_they_are_told():
    done = subprocess.run(["promtool", "test", "rules", "alerts.test.yml"], cwd=FOLDER, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_names_of_alerts_are_unique():
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10


@pytest.mark.parametrize(("title", "query"), TARGETS, ids=[f"{title} {target['refId']}" for title, target in TARGETS])
def test_a_panel_uses_exported_metrics_and_labels(title, query, exported):
    check(query["expr"], exported)

    shown = set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
    used = used_by(query["expr"])
    assert shown <= (used.grouped if " by (" in query["expr"] else labels_of(used, exported))
    assert set(re.findall(r'~"\$(\w+)"', query["expr"])) <= VARIABLES.keys()


def test_the_dashboards_choices_come_from_exported_labels(exported):
    chosen = {
        name: re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
        for name, each in VARIABLES.items()
        if each["type"] == "query"
    }

    assert set(chosen) == {"job", "instance", "queue"}
    for name, found in chosen.items():
        check(found[1], exported)
        assert found[2] == name


def test_the_dashboards_panels_do_not_overlap_and_have_titles():
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in DASHBOARD["panels"]]
    cells = [(column, line) for x, y, w, h in places for column in range(x, x + w) for line in range(y, y + h)]

    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["title"] for panel in DASHBOARD["panels"])


def test_every_exported_metric_is_on_the_dashboard_or_in_an_alert(exported):
    texts = [rule["expr"] for rule in RULES] + [target["expr"] for _, target in TARGETS]
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for text in texts for name in used_by(text).matched}
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported.names if name.startswith("rowpost_")}

    assert ours - shown <= {
        "rowpost_supervisor_start_timestamp_seconds",
        "rowpost_supervisor_reloads_total",
        "rowpost_message_type_info",
    }


def test_a_metric_or_a_label_that_does_not_exist_is_found(exported):
    for wrong in ("rowpost_nothing", 'rowpost_workers{queues="x"}', "sum by (kind) (rowpost_workers)"):
        with pytest.raises(AssertionError):
            check(wrong, exported)
