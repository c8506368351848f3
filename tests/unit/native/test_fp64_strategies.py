"""Trajectories in doubles, in pairs of floats, or some blocks in each: the same physics, and a choice that is measured.

`make check-cuda` runs the kernels on the host as a card, `pytest -m cuda` on a card, `-m "cuda and long"` for longer.
"""

import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import Chain, ChainSpec, GaugeField, HmcSpec
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.field import Momenta
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.cuda import precision
from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.grid import measured_choice
from metalforge.native.cuda.precision import Fp64Choice, Fp64Strategy, choose
from reference.cuda_host import host_engine

ON_CARD = pytest.param("card", marks=pytest.mark.cuda)
ON_HOST = pytest.param("host", marks=pytest.mark.long)
STRATEGIES = {"hybrid": None, "concurrent": 20}
"""With the share of the blocks in double-floats."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(params=[ON_HOST, ON_CARD])
def engine(folder, request):
    """Engines of a card by strategy; the host as a card, and a card."""
    if request.param == "card":
        return lambda strategy, share=None: cuda_engine(0, strategy, share)
    return lambda strategy, share=None: host_engine(folder, strategy, share)


def spec_of(**more):
    hmc = {"dims": (4, 4, 4, 2), "beta": 5.6, "seed": 9, "stream": 2, "algorithm": "hmc", "hmc": HmcSpec(n_steps=4)}
    return ChainSpec(**hmc | more)


ACTIONS = {"wilson": {}, "symanzik": {"action": "symanzik", "beta": 4.0}}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trajectories_agree_with_those_in_doubles(engine, strategy, action):
    """Bits differ, in the last places that 48 of them leave; decisions and energies do not."""
    spec = spec_of(**ACTIONS[action])
    here, there = (Chain(spec, engine=x) for x in (cpu_engine(threads=1), engine(strategy, STRATEGIES[strategy])))
    for _ in range(2):
        one, other = here.update(), there.update()
        assert one.accepted == other.accepted
        assert one.delta_h == pytest.approx(other.delta_h, abs=1e-9)
    off = np.max(np.abs(here.field.to_links() - there.field.to_links()))
    assert 0 < off < 1e-12


@pytest.mark.parametrize("strategy", ["native", *STRATEGIES])
def test_a_trajectory_leads_back_when_its_momenta_turn(engine, strategy):
    field = GaugeField.hot((4, 4, 4, 2), seed=4, engine=engine(strategy, STRATEGIES.get(strategy)))
    grid, start, momenta = field.grid, field.copy(), Momenta(field)
    momenta.refresh(seed=3, stream=1, step=4)
    energy = momenta.kinetic() + field.action(5.6)
    stages = np.array([[1.0, 0.025], *[[0.0, 0.05], [1.0, 0.05]] * 19, [0.0, 0.05], [1.0, 0.025]])
    grid.evolve(field.links, momenta.values, 5.6, stages, None)
    assert field.distance(start) > 0.5
    assert abs(momenta.kinetic() + field.action(5.6) - energy) < 3.0
    grid.upload("momenta", momenta.values, -grid.download("momenta", momenta.values))
    grid.evolve(field.links, momenta.values, 5.6, stages, None)
    assert field.distance(start) < 1e-11
    assert momenta.kinetic() + field.action(5.6) == pytest.approx(energy, abs=1e-8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chains_of_a_batch_are_what_they_are_alone(engine, strategy):
    on = engine(strategy, STRATEGIES[strategy])
    specs = [spec_of(beta=5.4 + 0.1 * n, seed=n, hmc=HmcSpec(n_steps=2)) for n in range(3)]
    alone, together = [Chain(spec, engine=on) for spec in specs], ChainBatch([Chain(spec, engine=on) for spec in specs])
    for columns, chain in zip(together.run(2), alone, strict=True):
        assert columns["accepted"] == [chain.update().accepted for _ in range(2)]
    together.bring_back()
    for one, other in zip(alone, together.chains, strict=True):
        assert np.array_equal(one.field.to_links(), other.field.to_links())


def test_two_strategies_at_once_and_a_checkpoint_between_them(engine, tmp_path):
    """A chain goes on bit for bit with its own strategy alone, and says so elsewhere."""
    hybrid, native = engine("hybrid"), engine("native")
    assert (hybrid.name, native.name) == ("cuda:0:hybrid", "cuda:0")
    stays, other = Chain(spec_of(), engine=hybrid), Chain(spec_of(), engine=native)
    for _ in range(2):
        stays.update()
        other.update()
    moves = Chain(spec_of(), engine=pickle.loads(pickle.dumps(hybrid)))
    moves.update()
    moves.save(tmp_path / "c.h5")
    with pytest.raises(SpecError, match="hybrid"):
        Chain.load(tmp_path / "c.h5", engine=native)
    moves = Chain.load(tmp_path / "c.h5", engine=hybrid)
    moves.update()
    assert np.array_equal(moves.field.to_links(), stays.field.to_links())
    assert not np.array_equal(other.field.to_links(), stays.field.to_links())


def test_threads_on_one_card_do_not_disturb_each_other(engine):
    """Two chains by one strategy and one by another, each in a thread of its own, as lanes of a campaign are."""
    engines = [engine("native"), engine("native"), engine("hybrid")]

    def run(number):
        chain = Chain(spec_of(seed=number), engine=engines[number])
        seen = [(chain.update().delta_h, chain.measure().plaquette) for _ in range(3)]
        return seen, chain.field.to_links()

    alone = [run(number) for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(run, range(3)))
    for (seen, links), (others, their_links) in zip(alone, together, strict=True):
        assert seen == others
        assert np.array_equal(links, their_links)


def test_single_precision_has_no_strategies(engine):
    spec = spec_of(precision="f32")
    one, other = (Chain(spec, engine=x) for x in (engine("native"), engine("hybrid")))
    one.update()
    other.update()
    assert np.array_equal(one.field.to_links(), other.field.to_links())


@pytest.mark.long
def test_the_host_is_measured_as_a_card_is(folder):
    choice = measured_choice(host_engine(folder).card, "auto", (4, 4, 4, 2))
    assert set(choice.seconds) == {"native", "hybrid", "concurrent"}
    assert choice.seconds[choice.strategy] == min(choice.seconds.values())


def measured(monkeypatch, asked, took):
    """Choose where a walk with n of 64 blocks in double-floats takes took(n) seconds."""
    now = [0.0]
    monkeypatch.setattr(precision.time, "perf_counter", lambda: now[0])

    def walk_with(choice):
        def walk():
            now[0] += took(choice.pair_share)

        return walk

    return choose(asked, walk_with)


def test_a_choice_is_the_fastest_and_says_what_it_rests_on(monkeypatch):
    data_centre, consumer = (lambda n: 1e-3 * (1 + n / 4)), (lambda n: 9e-3 - 8e-3 * n / 64)
    in_between = lambda n: 1e-3 * (1 + abs(n - 16) / 16)  # noqa: E731
    chosen = measured(monkeypatch, "auto", data_centre)
    assert (chosen.strategy, chosen.pair_share, chosen.asked) == ("native", 0, "auto")
    assert "native 1 ms, concurrent 1.25 ms, hybrid 17 ms" in chosen.line
    assert measured(monkeypatch, "auto", consumer)[:2] == ("hybrid", 64)
    assert measured(monkeypatch, "auto", in_between)[:2] == ("concurrent", 16)
    asked = measured(monkeypatch, "concurrent", data_centre)
    assert asked[:2] == ("concurrent", 1)
    assert asked.seconds["native"] < asked.seconds["concurrent"]
    assert "1/64" in asked.line


def test_what_is_asked_for_by_name_needs_no_measurement():
    assert Fp64Choice.of("hybrid").line == "hybrid, as asked"
    assert Fp64Choice.of("concurrent", 3).suffix == ":concurrent-3"
    assert Fp64Choice.of("auto") is Fp64Choice.of("concurrent") is None


@pytest.mark.parametrize(
    "wrong", [("fast", None), ("", None), ("hybrid", 3), ("concurrent", 0), ("concurrent", 64), ("auto", 2)]
)
def test_strategies_and_shares_that_do_not_exist_are_refused(wrong):
    with pytest.raises(SpecError, match="strategy"):
        cuda_engine(0, *wrong)


@pytest.mark.cuda
def test_a_card_chooses_by_measurement_and_reopens_by_name():
    """On cards whose doubles run at half the rate of floats, nothing gains over them."""
    engine = cuda_engine(0, "auto")
    choice = engine.fp64
    assert choice.seconds[choice.strategy] == min(choice.seconds.values())
    if engine.card.architecture in ("sm_80", "sm_90"):
        assert choice.strategy == Fp64Strategy.NATIVE
    text = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).name)"
    other = subprocess.run([sys.executable, "-c", text], input=pickle.dumps(engine), capture_output=True, check=True)
    assert other.stdout.decode().strip() == engine.name


def runs(strategy, share, dims, beta, chains, warm, updates):
    """Plaquettes and dH of batches, (updates, chains)."""
    specs = [
        ChainSpec(dims=dims, beta=beta, seed=n, start="cold", algorithm="hmc", hmc=HmcSpec(n_steps=10))
        for n in range(chains)
    ]
    batch = ChainBatch([Chain(spec, engine=cuda_engine(0, strategy, share)) for spec in specs])
    batch.run(10, accept_always=True)
    parts = [batch.run(10) for _ in range((warm + updates) // 10)]
    plaquettes, delta_h = (
        np.concatenate([[chain[name] for chain in part] for part in parts], axis=1).T[warm:]
        for name in ("plaquette", "delta_h")
    )
    return plaquettes, delta_h


def mean_and_error(values):
    """Of numbers whose columns are independent."""
    means = values.mean(axis=0)
    return means.mean(), means.std(ddof=1) / math.sqrt(len(means))


@pytest.mark.cuda
def test_plaquettes_do_not_depend_on_the_strategy():
    figures = {s: runs(s, STRATEGIES.get(s), (4, 4, 4, 4), 5.7, 24, 40, 60) for s in ("native", *STRATEGIES)}
    native, error = mean_and_error(figures["native"][0])
    for strategy in STRATEGIES:
        plaquette, its_error = mean_and_error(figures[strategy][0])
        assert abs(plaquette - native) < 4 * math.hypot(error, its_error)
        weight, weight_error = mean_and_error(np.exp(-figures[strategy][1]))
        assert abs(weight - 1) < 4 * weight_error


@pytest.mark.cuda
@pytest.mark.long
@pytest.mark.parametrize("strategy", ["native", *STRATEGIES])
def test_every_strategy_finds_the_plaquette_of_8_4(strategy):
    """Against the value of the CPU's long runs (tests/statistical/test_quenched.py), and <exp(-dH)> = 1."""
    plaquettes, delta_h = runs(strategy, STRATEGIES.get(strategy), (8, 8, 8, 8), 5.7, 32, 150, 300)
    plaquette, error = mean_and_error(plaquettes)
    assert error < 2e-4
    assert abs(plaquette - 0.549220) < 4 * math.hypot(error, 0.000173)
    weight, weight_error = mean_and_error(np.exp(-delta_h))
    assert weight_error < 0.02
    assert abs(weight - 1) < 4 * weight_error
