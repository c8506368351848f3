"""Chains with sea quarks: what they accept, how they continue, what they do when something fails."""

import itertools
import json
import subprocess
import sys
import tracemalloc

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.cli.lattice import app
from metalforge.core import MetalforgeError, SpecError
from metalforge.lattice import Chain, ChainSpec, FermionSpec, GaugeField, HmcSpec, hmc_trajectory, scheme, warm_up
from metalforge.lattice.eigenvalues import LARGEST_POSSIBLE
from metalforge.lattice.field import Momenta
from metalforge.lattice.generate import SEA_SERIES, Generation, Job
from metalforge.lattice.hmc import EnergyProbe
from metalforge.lattice.integrators import nested
from metalforge.lattice.observables import COLUMNS, pion_correlator
from metalforge.lattice.sea import RANGE_MARGIN, Sea, SpectralRangeError
from metalforge.lattice.solvers import Inverter, SolverError

SEAS = {
    "four": {"flavors": (4,), "masses": (0.2,)},
    "hasenbusch": {"flavors": (4,), "masses": (0.2,), "preconditioners": (0.6,)},
    "chronological": {"flavors": (4,), "masses": (0.2,), "chronological": 3, "force_tolerance": 1e-9},
    "mixed": {"flavors": (4,), "masses": (0.2,), "mixed_precision": True},
    "one": {"flavors": (1,), "masses": (0.2,)},
    "two plus one": {"flavors": (2, 1), "masses": (0.2, 0.5)},
}


def spec_of(name, *, dims=(4, 4, 2, 4), hmc=None, **more):
    fermions = FermionSpec(**SEAS[name] | {"noise_vectors": 2} | more)
    return ChainSpec(
        dims=dims,
        beta=5.2,
        seed=9,
        stream=2,
        algorithm="hmc" if fermions.exact else "rhmc",
        fermions=fermions,
        hmc=hmc or HmcSpec(tau=0.5, n_steps=2),
    )


def thermalised(spec, quenched=3):
    chain = Chain(spec)
    for _ in range(quenched):
        chain.quenched_update()
    return chain


@pytest.mark.parametrize("name", SEAS)
def test_a_saved_chain_continues_bit_for_bit(tmp_path, name):
    """Two updates, save, load, two updates: with one and two threads in any order."""
    results = []
    for first, second in itertools.product((1, 2), repeat=2):
        chain = Chain(spec_of(name), threads=first)
        chain.quenched_update()
        infos = [chain.update() for _ in range(2)]
        chain.save(tmp_path / "c.h5")
        chain = Chain.load(tmp_path / "c.h5", threads=second)
        assert chain.step == 3
        infos += [chain.update() for _ in range(2)]
        results.append((infos, chain.measure(), chain.field.links.copy()))
    infos, observed, links = results[0]
    for other in results[1:]:
        assert other[0] == infos
        assert other[1] == observed
        assert np.array_equal(other[2], links)
    assert all(info.cg_iterations > 10 for info in infos)


@pytest.mark.parametrize("name", ["four", "two plus one"])
def test_a_chain_is_named_by_seed_and_stream(name):
    def first(**more):
        chain = Chain(msgspec.structs.replace(spec_of(name), start="cold", **more))
        info = chain.update(adapting=True)
        return info.delta_h, chain.measure().condensate

    assert first() == first()
    assert len({first(), first(seed=10), first(stream=3)}) == 3


def test_trajectories_with_a_sea_follow_their_plan():
    """dH of the same trajectory walked by hand, kick by kick."""
    spec = spec_of("hasenbusch")
    chain = thermalised(spec)
    field = chain.field.copy()
    info = chain.update()
    field.reunitarise()
    sea, momenta = Sea(field, spec.fermions), Momenta(field)
    address = {"seed": spec.seed, "stream": spec.stream, "step": 4}
    momenta.refresh(**address)
    sea.begin(**address)
    before = field.action(spec.beta) + momenta.kinetic() + sea.action()
    plan = nested(spec.hmc.tau, sea.levels(scheme("omelyan2"), spec.hmc.n_steps))
    assert {part for run in plan.kicks for part, _ in run} == {1, 2, 3}
    for place, run in enumerate(plan.kicks):
        for part, coefficient in run:
            if part == 1:
                momenta.kick(coefficient * spec.beta)
            else:
                sea.kick(part, momenta, coefficient)
        for move in plan.moves[place : place + 1]:
            momenta.move_links(move)
            sea.inverter.links_moved()
    after = field.action(spec.beta) + momenta.kinetic() + sea.action()
    # Kicks in another order round otherwise, and a solve may then stop an iteration earlier.
    assert info.delta_h == pytest.approx(after - before, abs=1e-6)
    assert abs(info.delta_h) > 1e-4


@pytest.mark.parametrize("name", ["four", "hasenbusch", "chronological", "two plus one"])
def test_a_trajectory_runs_back_to_where_it_came_from(name):
    """Momenta reversed at its end; solves of the force at their usual tolerance."""
    spec = spec_of(name, dims=(4, 4, 4, 4))
    field = thermalised(spec).field
    field.reunitarise()
    start = field.copy()
    sea, momenta = Sea(field, spec.fermions), Momenta(field)
    address = {"seed": 1, "stream": 0, "step": 1}
    momenta.refresh(**address)
    sea.begin(**address)
    plan = nested(0.5, sea.levels(scheme("omelyan2"), 6))

    def walk():
        for place, run in enumerate(plan.kicks):
            for part, coefficient in run:
                momenta.kick(coefficient * spec.beta) if part == 1 else sea.kick(part, momenta, coefficient)
            for move in plan.moves[place : place + 1]:
                momenta.move_links(move)
                sea.inverter.links_moved()

    before = field.action(spec.beta) + momenta.kinetic() + sea.action()
    walk()
    assert np.max(np.abs(field.links - start.links)) > 0.1
    momenta.values *= -1
    walk()
    assert np.max(np.abs(field.links - start.links)) < 1e-8
    # Far below the 1e-2 by which dH decides, far above the rounding of H ~ 1e4.
    assert abs(field.action(spec.beta) + momenta.kinetic() + sea.action() - before) < 1e-6


@pytest.mark.parametrize("name", ["hasenbusch", "chronological", "two plus one"])
def test_energies_on_the_way_change_no_bit(name):
    plain, watched = (thermalised(spec_of(name, hmc=HmcSpec(tau=0.4, n_steps=4))) for _ in range(2))
    seen = []
    info = plain.update()
    assert watched.update(probe=EnergyProbe((0.0, 0.5, 1.0), seen.append)) == info
    assert np.array_equal(plain.field.links, watched.field.links)
    assert [e.step for e in seen] == [0, 2, 4]
    assert seen[0].delta_h == pytest.approx(0.0, abs=1e-7)
    assert seen[2].delta_h == pytest.approx(info.delta_h, abs=1e-7)
    # Half the trajectory has the energy of a trajectory of half the length.
    half = thermalised(spec_of(name, hmc=HmcSpec(tau=0.2, n_steps=2))).update()
    assert seen[1].delta_h == pytest.approx(half.delta_h, abs=1e-6)


class TestSpectralRange:
    def test_it_is_rigorous_in_the_warm_up_and_measured_then(self, tmp_path):
        chain = thermalised(spec_of("two plus one"))
        chain.update(adapting=True)
        assert chain.sea.bound == LARGEST_POSSIBLE
        seen = chain.sea.seen
        assert 4 < seen < 7
        chain.update()
        bound = chain.sea.bound
        assert bound >= RANGE_MARGIN * seen
        chain.update()
        assert chain.sea.bound == bound
        chain.save(tmp_path / "c.h5")
        loaded = Chain.load(tmp_path / "c.h5")
        assert (loaded.sea.bound, loaded.sea.seen) == (bound, chain.sea.seen)
        low, high = loaded.spec.fermions.masses[1] ** 2, loaded.spec.fermions.masses[1] ** 2 + bound
        loaded.update()
        root = loaded.sea.terms[1]
        assert (root.for_action.low, root.for_action.high) == (low, high)
        assert root.for_action.error < 1e-10
        assert root.for_force.error < 1e-6

    def test_to_leave_it_is_an_error_and_the_chain_stays(self):
        """From a cold start (-H^2 <= 2.5 here) the first trajectory leaves a range that was measured there."""
        chain = Chain(msgspec.structs.replace(spec_of("two plus one"), start="cold"))
        links = chain.field.links.copy()
        with pytest.raises(SpectralRangeError, match=r"<= 2\.75.* step 1\nhint: warm"):
            chain.update()
        assert chain.step == 0
        assert np.array_equal(chain.field.links, links)
        warm_up(chain, 3)
        chain.update()
        assert chain.step == 4

    def test_exact_flavours_have_none(self):
        chain = thermalised(spec_of("four"))
        chain.update()
        assert chain.sea.seen == 0


class TestFailures:
    def test_a_solve_that_does_not_converge_leaves_the_chain_where_it_was(self):
        chain = thermalised(spec_of("four", max_iterations=5))
        links = chain.field.links.copy()
        with pytest.raises(SolverError, match="5 iterations"):
            chain.update()
        assert chain.step == 3
        assert np.max(np.abs(chain.field.links - links)) < 1e-14  # reunitarised, no more

    def test_a_tolerance_below_rounding_is_an_error(self):
        chain = thermalised(spec_of("four", tolerance=1e-17))
        with pytest.raises(SolverError, match=r"f64(.|\n)*hint: raise `tolerance`"):
            chain.update()
        assert chain.step == 3

    def test_a_force_that_fails_on_the_way_restores_the_links(self, monkeypatch):
        chain = thermalised(spec_of("four"))
        before = chain.field.copy()
        before.reunitarise()
        kicks = []

        def fail_at_third(self, part, momenta, coefficient, **options):
            kicks.append(part)
            if len(kicks) == 3:
                raise MetalforgeError("stopped on the way")

        monkeypatch.setattr(Sea, "kick", fail_at_third)
        with pytest.raises(MetalforgeError, match="on the way"):
            chain.update()
        assert np.array_equal(chain.field.links, before.links)
        assert chain.step == 3

    def test_links_that_are_not_numbers_are_refused(self):
        chain = thermalised(spec_of("four"))
        chain.field.links[0, 0, 0, 0] = np.nan
        with pytest.raises((SolverError, SpecError), match="finite"):
            chain.update()

    @pytest.mark.parametrize("out", [True, False])
    def test_a_run_keeps_its_last_good_checkpoint(self, tmp_path, out, monkeypatch):
        monkeypatch.chdir(tmp_path)
        job = Job(warmup=2, quenched=2, trajectories=20, out=str(tmp_path / "run") if out else None)
        run = Generation(Chain(spec_of("four")), job)

        def fail_at_seven(row):
            if row.update + 1 == 7:
                run.chain.sea.inverter._max_iterations = 2

        with pytest.raises(SolverError):
            run.run(on_update=fail_at_seven)
        assert (tmp_path / "run" / "checkpoint.h5").exists() == out
        if out:
            resumed = Generation.resume(tmp_path / "run")
            assert resumed.chain.step == 7
            assert resumed.series == run.series
            assert np.array_equal(resumed.chain.field.links, run.chain.field.links)
            resumed.job = msgspec.structs.replace(job, trajectories=5)
            assert resumed.run()

    def test_a_trajectory_far_too_long_is_rejected_or_refused_but_never_accepted(self):
        chain = thermalised(spec_of("four", hmc=HmcSpec(tau=5.0, n_steps=1)))
        before = chain.field.copy()
        before.reunitarise()
        assert not chain.update().accepted
        assert np.array_equal(chain.field.links, before.links)


@pytest.mark.parametrize("accept", [True, False])
def test_whoever_asks_after_an_update_sees_the_links_of_the_chain(accept):
    """Accepted or rejected, and after a quenched update: the inverter solves on what the field holds."""
    chain = thermalised(spec_of("four", hmc=HmcSpec(tau=0.5 if accept else 4.0, n_steps=3 if accept else 1)))
    chain.measure()
    for update in (chain.update, chain.quenched_update):
        info = update()
        assert info.accepted in (accept, None)
        there = pion_correlator(chain.sea.inverter, 0.2)
        assert there == pytest.approx(pion_correlator(Inverter(chain.field, 0.2), 0.2), rel=1e-12)


def test_phases_of_a_run_and_what_is_tuned_when():
    run = Generation(Chain(spec_of("two plus one")), Job(warmup=14, quenched=4, trajectories=6))
    rows, tuned = [], []

    def note(row):
        rows.append(row)
        tuned.append(run.chain.spec.hmc.n_steps)

    run.run(on_update=note)
    assert [row.phase for row in rows] == ["quench"] * 4 + ["warmup"] * 14 + ["measure"] * 6
    assert [row.update for row in rows] == list(range(24))
    assert run.chain.step == 24
    assert all("cg_total" not in row.values and "accepted" not in row.values for row in rows[:4])
    assert all(row.values["cg_total"] > 0 for row in rows[4:])
    assert all(("condensate" in row.values) == (row.phase == "measure") for row in rows)
    assert len(set(tuned[-6:])) == 1
    summary = run.summary()
    assert summary.condensate.mean == pytest.approx(np.mean(run.series["condensate"]))
    assert summary.cg_iterations.mean == np.mean(run.series["cg_total"])
    assert summary.chiral_susceptibility_connected.mean > 0


@pytest.mark.parametrize("stop_after", [2, 9, 15])
def test_an_interrupted_run_gives_the_numbers_of_an_uninterrupted_one(tmp_path, stop_after):
    """Stopped in the quenched phase, in the warm-up and in the measurement."""
    spec = spec_of("one")
    whole = Generation(Chain(spec), Job(warmup=8, quenched=4, trajectories=6))
    assert whole.run()
    part = Generation(Chain(spec), Job(warmup=8, quenched=4, trajectories=6, out=str(tmp_path / "run")))
    seen = []
    assert not part.run(should_stop=lambda: len(seen) >= stop_after, on_update=lambda *row: seen.append(row))
    resumed = Generation.resume(tmp_path / "run")
    assert resumed.remaining == 18 - stop_after
    assert resumed.run()
    assert resumed.series == whole.series
    assert set(resumed.series) == {*COLUMNS, *SEA_SERIES}
    assert resumed.chain.spec == whole.chain.spec
    assert resumed.chain.sea.bound == whole.chain.sea.bound
    assert np.array_equal(resumed.chain.field.links, whole.chain.field.links)


def test_without_noise_vectors_there_is_no_condensate():
    run = Generation(Chain(spec_of("four", noise_vectors=0)), Job(warmup=0, quenched=2, trajectories=5))
    run.run()
    assert run.summary().condensate is None
    assert run.summary().chiral_susceptibility is None
    assert run.summary().cg_iterations.mean > 0


def test_trajectories_with_a_sea_allocate_nothing_large():
    chain = thermalised(spec_of("two plus one", dims=(8, 8, 8, 4), noise_vectors=0))
    chain.update()
    field_bytes = chain.sea.inverter.fresh().values.nbytes
    tracemalloc.start()
    chain.update()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < field_bytes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flavors": ()}, "every entry of `flavors` needs a mass"),
        ({"masses": (0.1, 0.2)}, "every entry of `flavors` needs a mass"),
        ({"flavors": (5,)}, r"must be 1, 2, 3 or 4 for each field\. Got \(5,\)\nhint: more flavours"),
        ({"masses": (0.0,)}, "`masses` must be finite numbers > 0"),
        ({"masses": (-0.1,)}, "`masses` must be finite numbers > 0"),
        ({"masses": (float("nan"),)}, "`masses` must be finite numbers > 0"),
        ({"masses": (float("inf"),)}, "`masses` must be finite numbers > 0"),
        ({"preconditioners": (0.05,)}, "ascending masses above the quark's"),
        ({"preconditioners": (0.5, 0.3)}, "ascending masses above the quark's"),
        ({"preconditioners": (float("nan"),)}, "ascending masses above the quark's"),
        ({"flavors": (2,), "preconditioners": (0.5,)}, "for one field of four flavours"),
        ({"n_inner": 0}, "`n_inner` must be at least 1"),
        ({"chronological": -1}, "`chronological` must be at least 0"),
        ({"tolerance": 0.0}, r"`tolerance` must be > 0 and in \[0, 0.01\]\. Got 0"),
        ({"force_error": 1.0}, r"`force_error` must be > 0 and in \[1e-12, 0.01\]\. Got 1"),
        ({"action_error": 1e-14}, r"`action_error` must be > 0 and in \[1e-12, 0.01\]"),
        ({"force_tolerance": float("nan")}, r"`force_tolerance` must be > 0 and in \[0, 0.01\]"),
        ({"chronological": 2}, r"need `force_tolerance` <= 1e-09, or trajectories are not reversible"),
    ],
)
def test_bad_fermions(fields, message):
    with pytest.raises(SpecError, match=message):
        FermionSpec(**{"flavors": (4,), "masses": (0.1,)} | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"algorithm": "heatbath"}, "need `algorithm` hmc or rhmc. Got heatbath"),
        ({"algorithm": "hmc", "fermions": FermionSpec(flavors=(2,), masses=(0.1,))}, "fewer flavours are a root"),
        ({"algorithm": "rhmc", "fermions": None}, "rhmc needs `fermions`"),
        ({"precision": "f32"}, "need `precision` f64"),
        ({"dims": (4, 4, 4, 5)}, "four even integers"),
    ],
)
def test_bad_chains(fields, message):
    common = {
        "dims": (4, 4, 4, 4),
        "beta": 5.2,
        "algorithm": "hmc",
        "fermions": FermionSpec(flavors=(4,), masses=(0.1,)),
    }
    with pytest.raises(SpecError, match=message):
        ChainSpec(**common | fields)


def test_quenched_updates_of_a_quenched_run_are_refused():
    with pytest.raises(SpecError, match=r"none.*Got 5"):
        Generation(Chain(ChainSpec(dims=(4, 4, 4, 4), beta=5.2)), Job(warmup=1, quenched=5, trajectories=1))


def test_a_sea_needs_double_precision():
    with pytest.raises(SpecError, match=r"links.*f64"):
        Sea(GaugeField((4, 4, 4, 4), precision="f32"), FermionSpec(flavors=(4,), masses=(0.1,)))


def test_checkpoints_of_quenched_chains_from_before_are_read(tmp_path):
    """A specification without fermions and a state without a spectrum, as the first release wrote them."""
    chain = Chain(ChainSpec(dims=(4, 4, 4, 4), beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(n_steps=4)))
    chain.update()
    spec = json.loads(msgspec.json.encode(chain.spec))
    del spec["fermions"]
    assert msgspec.json.decode(json.dumps(spec), type=ChainSpec) == chain.spec
    chain.save(tmp_path / "c.h5")
    assert Chain.load(tmp_path / "c.h5").update() == chain.update()


def test_a_pure_gauge_trajectory_does_not_see_the_sea():
    """The same bits with and without the machinery: a trajectory by stages, and one by the plan."""
    field = GaugeField.hot((4, 4, 4, 4), seed=3)
    copy = field.copy()
    info = hmc_trajectory(
        field, beta=5.6, tau=0.5, n_steps=5, integrator=scheme("omelyan4"), seed=1, stream=0, step=1, accept_always=True
    )
    copy.reunitarise()
    momenta = Momenta(copy)
    momenta.refresh(seed=1, stream=0, step=1)
    momenta.evolve(5.6, scheme("omelyan4").stages(0.5, 5))
    assert np.array_equal(field.links, copy.links)
    assert info.cg_iterations is None


def call(*arguments, code=0):
    """The command in this process: a new one would take longer than the run."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    if code == 0:
        assert done.exit_code == 0, (done.output, done.exception)
    else:
        assert isinstance(done.exception, SpecError)  # which `main` turns into exit code 2
    return done


SMALL = ("generate", "--dims", 4, 4, 2, 2, "--beta", 5.2, "--warmup", 6, "--trajectories", 6, "--tau", 0.5)


@pytest.mark.parametrize(
    ("options", "algorithm", "flavors", "masses"),
    [
        (("--algorithm", "hmc", "--flavors", 4, "--mass", 0.1), "hmc", [4], [0.1]),
        (("--algorithm", "rhmc", "--flavors", 2, "--mass", 0.05), "rhmc", [2], [0.05]),
        (("--flavors", "2+1", "--mass", 0.1, "--mass", 0.3), "rhmc", [2, 1], [0.1, 0.3]),
        (("--flavors", 2, "--flavors", 1, "--mass", 0.1, "--mass", 0.3), "rhmc", [2, 1], [0.1, 0.3]),
        (("--flavors", "2+2", "--mass", 0.2), "rhmc", [2, 2], [0.2, 0.2]),
        (("--flavors", 4, "--mass", 0.1, "--hasenbusch", 0.5, "--inner-steps", 2), "hmc", [4], [0.1]),
    ],
)
def test_generate_with_sea_quarks(tmp_path, monkeypatch, options, algorithm, flavors, masses):
    monkeypatch.chdir(tmp_path)
    record = json.loads(call(*SMALL, *options, "--json").stdout)
    assert record["spec"]["algorithm"] == algorithm
    assert record["spec"]["fermions"]["flavors"] == flavors
    assert record["spec"]["fermions"]["masses"] == masses
    assert set(record["condensate"]) == set(record["cg_iterations"]) == {"mean", "error", "tau_int"}
    assert 0 < record["condensate"]["mean"] < 3
    assert record["cg_iterations"]["mean"] > 50
    assert not list(tmp_path.iterdir())


def test_the_table_shows_the_sea_and_a_quenched_record_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = call(*SMALL, "--flavors", 4, "--mass", 0.1, "--trace", "trace.jsonl", "--out", "run").stdout
    assert "4 flavours of am 0.1" in shown
    assert all(name in shown for name in ("condensate", "chiral_susceptibility", "cg_iterations"))
    trace = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in trace] == ["quench"] * 20 + ["warmup"] * 6 + ["measure"] * 6
    assert trace[-1]["condensate"] > 0
    assert trace[-1]["cg_iterations"] > 0
    call("generate", "--resume", "run", "--trajectories", 8)
    assert Generation.resume(tmp_path / "run").measured == 8
    quenched = json.loads(call(*SMALL, "--json").stdout)
    assert quenched["condensate"] is None
    assert quenched["cg_iterations"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--flavors", 4), "hint: add `--mass 0.1`"),
        (("--mass", 0.1), "hint: add `--flavors 4`"),
        (("--flavors", "two", "--mass", 0.1), "must be numbers, e.g. 4, 2 or 2+1. Got two"),
        (("--flavors", 4, "--mass", 0), "`masses` must be finite numbers > 0"),
        (("--flavors", 2, "--mass", 0.1, "--algorithm", "hmc"), "hint: fewer flavours are a root, which rhmc takes"),
        (("--flavors", "2+1", "--mass", 0.1, "--mass", 0.1, "--mass", 0.1), "every entry of `flavors` needs a mass"),
        (("--flavors", 4, "--mass", 0.1, "--precision", "f32"), "need `precision` f64"),
        (("--quenched", 5), "this chain has none"),
    ],
)
def test_wrong_input_says_what_was_wanted(options, message):
    assert message in str(call(*SMALL, *options, code=2).exception)


def test_a_solve_that_fails_on_the_command_line_is_an_error_with_its_reason(tmp_path):
    """Too small a budget of iterations: exit 2, a message, and the checkpoint of the updates before."""
    command = [sys.executable, "-W", "error", "-c", "from metalforge.cli import main; main()", "lattice"]
    options = (*SMALL, "--flavors", 4, "--mass", 0.1, "--max-iterations", 5, "--out", "run")
    done = subprocess.run([*command, *map(str, options)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "the solve must reach a relative residual" in done.stderr
    assert "Traceback" not in done.stderr
    assert Generation.resume(tmp_path / "run").progress.warmup.done == 20
