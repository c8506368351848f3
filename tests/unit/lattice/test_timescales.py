"""Nested integrators: what is kicked when, and energies on the way that cost the trajectory nothing."""

import math

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import SCHEMES, GaugeField, hmc_trajectory, scheme
from metalforge.lattice.hmc import EnergyProbe
from metalforge.lattice.integrators import GAUGE, Level, nested

LIGHT, HEAVY = 2, 3
every_scheme = pytest.mark.parametrize("name", list(SCHEMES))


def levels(name, *n_steps):
    parts = (LIGHT, HEAVY, GAUGE)[-len(n_steps) :]
    return [Level(scheme(name), n, part) for n, part in zip(n_steps, parts, strict=True)]


@every_scheme
@pytest.mark.parametrize("n_steps", [(3,), (2, 3), (2, 1, 3)])
def test_every_part_is_kicked_for_the_whole_length_and_the_way_back_is_the_same(name, n_steps):
    plan = nested(0.7, levels(name, *n_steps))
    for part in {LIGHT, HEAVY, GAUGE} & {part for run in plan.kicks for part, _ in run}:
        assert math.fsum(c for run in plan.kicks for p, c in run if p == part) == pytest.approx(0.7, abs=1e-14)
    assert math.fsum(plan.moves) == pytest.approx(0.7, abs=1e-14)
    assert len(plan.kicks) == len(plan.moves) + 1
    for there, back in zip(plan.kicks, reversed(plan.kicks), strict=True):
        assert dict(there) == pytest.approx(dict(back), rel=1e-13)
    assert plan.moves == pytest.approx(plan.moves[::-1], rel=1e-13)


@every_scheme
def test_the_inner_scheme_fills_every_move_of_the_outer_one(name):
    outer, inner, n_outer, n_inner = scheme(name), scheme("leapfrog"), 3, 4
    plan = nested(1.0, [Level(outer, n_outer, LIGHT), Level(inner, n_inner, GAUGE)])
    moves_of_outer = [c / n_outer for kind, c in outer.step if kind == "U"] * n_outer
    assert plan.moves == pytest.approx(np.repeat(np.array(moves_of_outer) / n_inner, n_inner).tolist())
    light = [place for place, run in enumerate(plan.kicks) if LIGHT in dict(run)]
    assert light == list(range(0, len(plan.moves) + 1, n_inner))
    # Gauge kicks on both sides of a fermion kick are one: as many forces as places.
    assert all(list(dict(run)).count(GAUGE) == 1 for run in plan.kicks)


def test_leapfrog_in_leapfrog():
    plan = nested(1.0, [Level(scheme("leapfrog"), 1, LIGHT), Level(scheme("leapfrog"), 2, GAUGE)])
    assert [dict(run) for run in plan.kicks] == [{LIGHT: 0.5, GAUGE: 0.25}, {GAUGE: 0.5}, {GAUGE: 0.25, LIGHT: 0.5}]
    assert plan.moves == (0.5, 0.5)


@every_scheme
def test_one_level_is_the_list_of_stages_bit_for_bit(name):
    """Kernels walk `stages`; trajectories walk plans."""
    plan = nested(0.7, levels(name, 5))
    flat = []
    for place, run in enumerate(plan.kicks):
        flat += [[float(GAUGE), c] for _, c in run] + [[0.0, move] for move in plan.moves[place : place + 1]]
    assert np.array_equal(scheme(name).stages(0.7, 5), flat)


@every_scheme
def test_borders_cut_a_trajectory_into_its_steps(name):
    """What lies before border k, with its part of the kicks there, is a trajectory of k steps."""
    plan = nested(1.2, levels(name, 4, 2))
    for k in range(1, 5):
        place, part = plan.borders[k]
        short = nested(1.2 * k / 4, levels(name, k, 2))
        assert place == len(short.moves)
        assert dict(part) == pytest.approx(dict(short.kicks[-1]), rel=1e-13)
        assert plan.moves[:place] == pytest.approx(short.moves, rel=1e-13)
    assert plan.borders[0] == (0, ())


@pytest.mark.parametrize("n_steps", [(0,), (3, 0), (0, 3)])
def test_levels_without_steps_are_refused(n_steps):
    with pytest.raises(SpecError, match=r"`n_steps`.*Got 0"):
        nested(1.0, levels("leapfrog", *n_steps))


class TestEnergyOnTheWay:
    options = {"beta": 5.7, "seed": 5, "stream": 2, "step": 1, "integrator": scheme("omelyan2")}  # noqa: RUF012

    def field(self):
        field = GaugeField.hot((4, 4, 4, 4), seed=7)
        for step in range(1, 11):
            field.heatbath(5.7, seed=7, stream=0, step=step)
        return field

    def test_looking_changes_no_bit(self):
        plain, watched, seen = self.field(), self.field(), []
        info = hmc_trajectory(plain, **self.options, tau=1.0, n_steps=8)
        probe = EnergyProbe((0.0, 0.3, 0.5, 0.52, 1.0), seen.append)
        assert hmc_trajectory(watched, **self.options, tau=1.0, n_steps=8, probe=probe) == info
        assert np.array_equal(plain.links, watched.links)
        # To the nearest step, each once: 0.3 is step 2 of 8, 0.5 and 0.52 are step 4.
        assert [(e.step, e.fraction) for e in seen] == [(0, 0.0), (2, 0.25), (4, 0.5), (8, 1.0)]
        assert seen[0].delta_h == 0.0
        assert seen[-1].delta_h == info.delta_h

    def test_the_energy_at_half_way_is_that_of_half_a_trajectory(self):
        seen = []
        hmc_trajectory(self.field(), **self.options, tau=1.0, n_steps=8, probe=EnergyProbe((0.5,), seen.append))
        half = hmc_trajectory(self.field(), **self.options, tau=0.5, n_steps=4)
        assert seen[0].delta_h == pytest.approx(half.delta_h, abs=1e-10)
        assert abs(half.delta_h) > 1e-4

    @pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
    def test_fractions_are_between_zero_and_one(self, fraction):
        with pytest.raises(SpecError, match=r"fractions.*\[0, 1\]"):
            hmc_trajectory(
                self.field(), **self.options, tau=1.0, n_steps=2, probe=EnergyProbe((fraction,), lambda energy: None)
            )
