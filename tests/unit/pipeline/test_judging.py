"""Silicon efficiency, calibration, percentiles, the endpoint: figures with their source, ties called ties."""

import random
import urllib.request

import numpy as np
import pytest

from metalforge.core import Measured, MetalforgeError, Modelled
from metalforge.pipeline import (
    Chain,
    Collect,
    EfficiencyWindow,
    ManualClock,
    PipelineBuilder,
)
from metalforge.pipeline.judging import judge, take_turns
from metalforge.pipeline.metrics import Histogram
from metalforge.pipeline.prometheus_ import MetricsEndpoint
from reference.pipeline_stages import MeteredChip, Numbers


class Chip(MeteredChip):
    """Its meter counts `watts` on a clock."""

    def __init__(self, name, clock, watts, kind=Measured):
        super().__init__(name, reason="no counter here" if watts is None else None)
        self.clock, self.watts, self.kind = clock, watts, kind

    def total(self):
        joules = self.watts * self.clock.now_ns() * 1e-9
        if self.kind is Measured:
            return Measured(value=joules, unit="J", how="a test")
        return Modelled(value=joules, unit="J", profile="a test")


def run_window(first, second, quality=None):
    clock = ManualClock()

    def work(x):
        clock.advance(10_000_000)
        return x

    builder = PipelineBuilder().stage("in", first(clock), Numbers(40)).stage("work", second(clock), work)
    sink = Collect()
    run = (
        builder.stage("out", first(clock), sink)
        .topology(Chain("in", "work", "out"))
        .build()
        .start("inline", clock=clock)
    )
    with EfficiencyWindow(run, quality=quality) as window:
        run.wait_until(lambda: len(sink.items) >= 20)
    run.wait()
    return window.result


def test_all_measured_gives_totals():
    result = run_window(lambda c: Chip("gpu", c, 100.0), lambda c: Chip("npu", c, 1.0), quality=lambda: 8.0)
    assert result.results == 20
    assert result.throughput_per_s == pytest.approx(20 / result.window_s)
    assert isinstance(result.total_energy, Measured)
    assert result.total_power.value == pytest.approx(101.0)
    assert result.energy_per_result.value == pytest.approx(101.0 * result.window_s / 20)
    assert result.quality_per_joule == pytest.approx(8.0 / (101.0 * result.window_s))
    assert result.utilization["npu"] > 0.9
    assert result.reason == ""


def test_mixed_sources_have_entries_and_no_total():
    result = run_window(lambda c: Chip("gpu", c, 100.0), lambda c: Chip("npu", c, 1.0, Modelled), quality=lambda: 8.0)
    assert {(e.substrate, e.source) for e in result.energy} == {("gpu", "measured"), ("npu", "modelled")}
    assert (result.total_energy, result.total_power, result.energy_per_result, result.quality_per_joule) == (None,) * 4
    assert "gpu measured, npu modelled" in result.reason
    assert result.quality == 8.0


def test_an_unreadable_meter_is_unknown_and_never_zero():
    result = run_window(lambda c: Chip("gpu", c, None), lambda c: Chip("npu", c, 1.0))
    assert [(e.source, e.energy is None) for e in result.energy] == [("unknown", True), ("measured", False)]
    assert result.total_energy is None
    assert "no counter here" in result.reason


def test_a_window_is_read_after_it_ended():
    with pytest.raises(MetalforgeError, match="has not ended"):
        _ = EfficiencyWindow(PipelineBuilder().stage("a", None, Numbers(1)).stage("b", None, print).edge("a", "b")
                             .build().start("inline")).result  # fmt: skip


def test_the_best_in_turns_is_named_with_its_gain_and_a_tie_is_a_tie():
    rng, costs = random.Random(2), {"a": 2.0, "b": 1.0, "c": 3.0}
    order = []

    def measure(name):
        order.append(name)
        return 1 / (costs[name] * (1 + 0.05 * rng.gauss(0, 1)))

    outcome = judge(take_turns(list(costs), measure, 6))
    assert "".join(order[:6]) == "abccba"
    assert (outcome.best, outcome.ties) == ("b", ())
    assert outcome.confidence > 0.99
    assert outcome.gain == pytest.approx(1.0, rel=0.2)
    assert "is better than `a`" in outcome.words
    outcome = judge({name: [rng.gauss(1, 0.2) for _ in range(5)] for name in "ab"})
    assert len(outcome.ties) == 1
    assert "cannot be told apart" in outcome.words


def test_ties_are_called_as_often_as_promised():
    rng = np.random.default_rng(11)
    drift = np.linspace(1.0, 2.0, 6)
    wrong = sum(
        not judge({"a": list(drift + rng.normal(0, 0.1, 6)), "b": list(drift + rng.normal(0, 0.1, 6))}, seed=i).ties
        for i in range(200)
    )
    # 95 % sure in one direction, best chosen after the fact: 10 % false alarms, and few rounds make it a little worse
    assert wrong < 200 * 0.2
    right = sum(
        not judge({"a": list(drift + rng.normal(0, 0.1, 6)), "b": list(drift + 0.3 + rng.normal(0, 0.1, 6))}).ties
        for _ in range(50)
    )
    assert right > 45  # the drift, which is larger than the difference, cancels in the pairs


def test_percentiles_are_within_a_bucket_of_the_exact_ones():
    rng = np.random.default_rng(3)
    durations = rng.lognormal(12, 2, 4000).astype(int)
    histogram = Histogram()
    for d in durations:
        histogram.add(int(d))
    for percent in (1, 50, 90, 99):
        exact = np.percentile(durations, percent, method="inverted_cdf")
        assert histogram.percentile(percent) == pytest.approx(exact, rel=0.13)
    assert Histogram().percentile(50) is None
    histogram.add(0)
    assert histogram.percentile(0) == 0.0


def test_the_endpoint_serves_the_runs_own_counters_on_loopback():
    sink = Collect()
    builder = PipelineBuilder("served").stage("in", None, Numbers(30)).stage("out", None, sink).edge("in", "out")
    run = builder.build().run()
    with MetricsEndpoint(run) as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(endpoint.url) as answer:
            text = answer.read().decode()
    assert 'pipe_items_total{run="served",stage="out"} 30.0' in text
    assert 'pipe_queue_depth{edge="in -> out",run="served"} 0.0' in text
    assert 'side="put"' in text
