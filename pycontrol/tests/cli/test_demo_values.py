"""What the demo expects, and how it draws: pure."""

import json
from dataclasses import replace

import pytest

from rowpost.cli.demo.display import chart_lines, resample
from rowpost.cli.demo.scenario import Scenario


@pytest.mark.parametrize("orders", [1, 2, 9, 10, 500])
def test_as_many_orders_fail_as_the_scenario_expects(orders: int):
    scenario = Scenario(orders)

    amounts = [json.loads(body)["Amount"] for body in scenario.bodies()]

    assert len(amounts) == orders
    assert sum(amount <= 0 for amount in amounts) == len(scenario.failing) == min(5, orders // 2)
    assert scenario.expected.burst_handled == orders - len(scenario.failing)


def test_whatever_is_put_in_is_accounted_for():
    scenario = Scenario(1000)
    expected = scenario.expected

    assert expected.handled + expected.in_error + expected.in_audit + expected.expired == scenario.sent


def test_every_count_that_differs_is_named():
    scenario = Scenario(10)
    result = replace(scenario.expected, handled=99, waiting=1)

    assert scenario.differences(scenario.expected) == []
    assert scenario.differences(result) == [
        f"handled: 99, expected {scenario.expected.handled}",
        "waiting: 1, expected 0",
    ]


def test_a_chart_keeps_every_peak_when_it_is_narrower_than_its_values():
    assert resample([0, 0, 9, 0, 0, 0, 1, 0], 2) == [9, 1]


def test_a_chart_is_as_high_as_its_scale_and_draws_eighths():
    assert chart_lines([0, 1, 2, 4], width=10, height=2, top=4) == ["   █", " ▄██"]
    assert chart_lines([], width=10, height=1, top=4) == [""]
