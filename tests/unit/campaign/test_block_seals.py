"""Blocks carry a digest from the gate on: every answer of a producer is taken as it is, none that was touched is."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from chaos.campaigns import CAMPAIGNS
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.orders import Volley
from metalforge.campaign.running.producer import Producer
from metalforge.campaign.running.seals import doubt, seal_of, sealed
from metalforge.campaign.spec import Budget
from reference.small_campaigns import ROUNDS
from reference.spoiled_chains import faults_at


@pytest.fixture
def answers(monkeypatch):
    """What producers were asked and answered."""
    seen = []
    step = Producer.step

    def stepping(self, state, item):
        state, made = step(self, state, item)
        seen.append((item, made))
        return state, made

    monkeypatch.setattr(Producer, "step", stepping)
    return seen


def run(spec, folder, updates=400, faults=None):
    spec = msgspec.structs.replace(spec, budget=Budget(trajectories=updates))
    with faults_at(faults or {}), np.errstate(all="ignore"), Campaign.open(spec, folder) as campaign:
        return campaign.run()


@pytest.mark.parametrize("name", ["heatbath", "scout", "check-all", "hmc", "ladders"])
def test_what_a_producer_answers_is_taken(name, tmp_path, answers):
    run(CAMPAIGNS[name], tmp_path / "run", 300, {(0, 40): "nan"} if name == "heatbath" else None)
    assert sum(made.payload.rows for _, answer in answers for made in answer) >= 200
    assert [doubt(asked, answer) for asked, answer in answers if doubt(asked, answer)] == []


def with_rows(answer, changed):
    """Return an answer whose first row of the first block with rows is another one."""
    at = next(i for i, made in enumerate(answer) if made.payload.rows)
    block = answer[at].payload
    first, *rest = block.segments
    columns = changed(dict(first.columns))
    other = answer[at]._replace(payload=replace(block, segments=[first._replace(columns=columns), *rest]))
    return [*answer[:at], other, *answer[at + 1 :]]


@pytest.fixture
def answer(tmp_path, answers):
    """A question and the answer to it, which has rows."""
    run(ROUNDS, tmp_path / "run", 200)
    return next((asked, made) for asked, made in answers if made[0].payload.rows)


def test_a_number_that_differs_by_its_last_bit_is_not_taken(answer):
    asked, made = answer
    for name, values in made[0].payload.segments[0].columns.items():
        for at in (0, len(values) - 1):

            def changed(columns, name=name, values=values, at=at):
                other = math.nextafter(values[at], math.inf)
                return columns | {name: (*values[:at], other, *values[at + 1 :])}

            assert "is not what passed the gate" in doubt(asked, with_rows(made, changed)), name
    assert doubt(asked, made) == ""


def test_rows_that_are_lost_doubled_or_of_another_chain_are_not_taken(answer):
    asked, made = answer
    cut = with_rows(made, lambda columns: {name: values[:-1] for name, values in columns.items()})
    renamed = [made[0]._replace(payload=replace(made[0].payload, chain="c9999"))]
    ended = [made[0]._replace(payload=replace(made[0].payload, done=not made[0].payload.done))]
    for wrong in (cut, renamed, ended, [*made, *made], [], ["rows"], None):
        assert doubt(asked, wrong), wrong
    other = Volley(tuple(replace(order, visit=order.visit + 1) for order in asked.orders))
    assert "other orders" in doubt(other, made)


def test_what_is_no_number_is_not_taken_whoever_sealed_it(answer):
    asked, made = answer
    spoiled = with_rows(made, lambda columns: columns | {"plaquette": (math.nan,) * len(columns["plaquette"])})
    spoiled = [one._replace(payload=sealed(one.payload)) for one in spoiled]
    assert spoiled[0].payload.seal == seal_of(spoiled[0].payload)
    assert "`plaquette` is not finite" in doubt(asked, spoiled)
