"""Gauge actions beyond Wilson's: kernels against the NumPy twin, forces, dynamics, and an action of one's own."""

import json
import math

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.campaign.chain_log import series_of
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from metalforge.cli.lattice import app
from metalforge.core import SpecError, UnknownNameError
from metalforge.lattice import Chain, ChainSpec, GaugeField, scheme
from metalforge.lattice.actions import ACTIONS, SYMANZIK, WILSON, Action, action
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.field import Momenta
from metalforge.lattice.generate import Generation
from metalforge.lattice.observables import Look, named
from reference import gauge, rectangle
from reference.small_campaigns import ROUNDS

SHAPES = [(2, 2, 2, 2), (4, 4, 4, 4), (6, 4, 2, 8), (4, 8, 4, 2)]
BETA = 4.0
ZERO = Action(name="plaquettes_by_rectangles", loops="rectangle", coefficients=(0.0,))
ACTIONS[ZERO.name] = ZERO
"""An action as a user adds one: rectangles with weight zero are Wilson's action by other kernels."""


def sample(dims, roughness=0.3):
    return gauge.random_links(np.random.default_rng(sum(dims)), dims, roughness)


def force_of(field, which=SYMANZIK):
    momenta = Momenta(field)
    momenta.kick(-1.0, keep=0.0, action=which)
    return field.grid.download("momenta", momenta.values)


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize(("precision", "error"), [("f64", 1e-13), ("f32", 1e-5)])
def test_energy_and_force_equal_the_twin(isa, dims, precision, error):
    links = sample(dims)
    field = GaugeField.from_links(links, precision=precision, threads=1)
    assert SYMANZIK.energy(field) == pytest.approx(rectangle.energy(links), rel=error)
    wanted = rectangle.force(links, 1.0)
    assert np.max(np.abs(force_of(field) - wanted)) <= 10 * error * np.max(np.abs(wanted))


def test_the_force_is_the_derivative_of_the_action():
    field = GaugeField.from_links(sample((4, 4, 4, 4), roughness=0.5))
    force = force_of(field)
    for step in range(3):
        direction = Momenta(field)
        direction.refresh(seed=1, stream=0, step=step)
        there = field.grid.download("momenta", direction.values)
        eps, values = 1e-4, []
        for sign in (1, -1):
            moved = field.copy()
            other = Momenta(moved)
            other.assign(direction)
            other.move_links(sign * eps)
            values.append(moved.action(1.0, SYMANZIK))
        assert (values[0] - values[1]) / (2 * eps) == pytest.approx(np.sum(force * there), rel=1e-7)


def test_gauge_transformations_leave_the_action_and_rotate_the_force():
    links = sample((4, 4, 4, 2))
    turned = gauge.transform(links, gauge.random_transformation(np.random.default_rng(5), (4, 4, 4, 2)))
    here, there = GaugeField.from_links(links), GaugeField.from_links(turned)
    assert SYMANZIK.energy(there) == pytest.approx(SYMANZIK.energy(here), rel=1e-13)
    assert np.sum(force_of(there) ** 2, axis=-1) == pytest.approx(np.sum(force_of(here) ** 2, axis=-1), rel=1e-10)


def test_a_cold_field_has_no_action_and_no_force():
    field = GaugeField((4, 4, 4, 4))
    assert SYMANZIK.energy(field) == pytest.approx(0, abs=1e-12)
    assert np.max(np.abs(force_of(field))) <= 1e-14


def thermalised(dims):
    chain = Chain(ChainSpec(dims=dims, beta=BETA, algorithm="hmc", action="symanzik", start="cold"), threads=1)
    for _ in range(15):
        chain.update(accept_always=True)
    return chain.field


def energy(field, momenta):
    return field.action(BETA, SYMANZIK) + momenta.kinetic()


def test_a_trajectory_runs_back_to_where_it_came_from(isa):
    start = thermalised((4, 4, 4, 4))
    field = start.copy()
    momenta = Momenta(field)
    momenta.refresh(seed=7, stream=1, step=1)
    before, stages = energy(field, momenta), scheme("omelyan2").stages(1.0, 10)
    momenta.evolve(BETA, stages, SYMANZIK)
    assert field.distance(start) > 0.1
    momenta.grid.upload("momenta", momenta.values, -momenta.grid.download("momenta", momenta.values))
    momenta.evolve(BETA, stages, SYMANZIK)
    assert field.distance(start) <= 1e-10
    assert abs(energy(field, momenta) - before) <= 1e-9


@pytest.mark.parametrize(("name", "steps"), [("leapfrog", (16, 24, 36)), ("omelyan2", (8, 12, 16))])
def test_the_energy_error_shrinks_with_the_order_of_the_scheme(name, steps):
    start = thermalised((4, 4, 4, 4))

    def delta_h(n, step):
        field = start.copy()
        momenta = Momenta(field)
        momenta.refresh(seed=7, stream=1, step=step)
        before = energy(field, momenta)
        momenta.evolve(BETA, scheme(name).stages(0.5, n), SYMANZIK)
        return energy(field, momenta) - before

    rms = [math.sqrt(np.mean([delta_h(n, step) ** 2 for step in range(5)])) for n in steps]
    assert -np.polyfit(np.log(steps), np.log(rms), 1)[0] == pytest.approx(2, abs=0.3)


class TestRegistered:
    def test_an_action_is_added_in_one_place_and_runs_by_its_name(self, isa):
        """Weight zero on the rectangles: the chain is Wilson's, bit for bit, by the kernels of the rectangles."""
        assert ZERO.name in ACTIONS
        spec = ChainSpec(dims=(4, 4, 4, 2), beta=5.5, algorithm="hmc", seed=3)
        plain, other = Chain(spec), Chain(msgspec.structs.replace(spec, action=ZERO.name))
        for _ in range(4):
            assert plain.update().accepted == other.update().accepted
        assert plain.field.distance(other.field) == 0
        assert ZERO.energy(plain.field) == pytest.approx(WILSON.energy(plain.field), rel=1e-13)

    def test_names_are_known(self):
        with pytest.raises(UnknownNameError, match="symanzik"):
            action("symanzick")
        with pytest.raises(UnknownNameError, match="action"):
            ChainSpec(dims=(4, 4, 4, 4), beta=4.0, algorithm="hmc", action="iwasaki")

    def test_reweighting_reads_the_variable_of_the_action(self):
        chain = Chain(ChainSpec(dims=(4, 4, 4, 4), beta=4.0, algorithm="hmc", action="symanzik"))
        (density,) = named([SYMANZIK.variable])
        assert density.measure(Look(chain)) == pytest.approx(SYMANZIK.energy(chain.field) / 256, rel=1e-14)
        assert WILSON.variable == "plaquette"


class TestChain:
    spec = ChainSpec(dims=(4, 4, 4, 2), beta=BETA, algorithm="hmc", action="symanzik", seed=9)

    def test_sweeps_are_refused_with_what_to_do(self):
        with pytest.raises(SpecError, match=r"hint: .*hmc"):
            ChainSpec(dims=(4, 4, 4, 4), beta=4.0, action="symanzik")
        with pytest.raises(SpecError, match="symanzik"):
            Chain(self.spec).quenched_update()

    def test_it_continues_from_a_checkpoint_bit_for_bit(self, tmp_path):
        chain = Chain(self.spec)
        for _ in range(3):
            chain.update()
        chain.save(tmp_path / "chain.h5")
        again = Chain.load(tmp_path / "chain.h5")
        assert again.spec == self.spec
        for _ in range(3):
            assert again.update() == chain.update()
        assert again.field.distance(chain.field) == 0

    def test_a_spec_without_an_action_means_wilson(self):
        plain = msgspec.to_builtins(ChainSpec(dims=(4, 4, 4, 4), beta=5.7))
        del plain["action"]
        assert msgspec.convert(plain, ChainSpec).action == "wilson"


def test_a_run_from_the_command_line_has_the_action_and_its_variable(tmp_path):
    arguments = ["generate", "--dims", "4", "4", "4", "2", "--beta", "4", "--action", "symanzik", "--warmup", "4"]
    trace = tmp_path / "trace.jsonl"
    options = ["--trajectories", "12", "--out", str(tmp_path / "run"), "--trace", str(trace), "--json"]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["spec"]["action"], summary["spec"]["algorithm"]) == ("symanzik", "hmc")
    assert 0 < summary["observables"]["action_density"]["mean"] < 20
    assert all("action_density" in json.loads(line) for line in trace.read_text().splitlines())
    again = Generation.resume(tmp_path / "run", trajectories=14)
    again.run()
    assert len(again.series["action_density"]) == again.measured == 14


def test_a_campaign_reweights_by_the_variable_of_its_action(tmp_path):
    lattice = Lattice(
        volumes=((4, 4, 4, 2),), beta_min=3.2, beta_max=3.8, algorithm="hmc", action="symanzik", n_steps=5
    )
    spec = msgspec.structs.replace(ROUNDS, theory=lattice, budget=Budget(trajectories=200))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        campaign.run()
        chain = next(iter(campaign.book.state.chains.values()))
        point = series_of(spec.theory, chain)
    assert point.energy == pytest.approx(128 * chain.column("action_density"))
    assert np.corrcoef(point.energy, chain.column("plaquette"))[0, 1] < -0.9
    with pytest.raises(SpecError, match="beta_min"):
        Lattice(algorithm="hmc", action="symanzik")
    assert spec.sha256 != ROUNDS.sha256
