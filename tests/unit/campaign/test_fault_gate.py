"""What no sound chain gives is not written: a campaign with faults has the bits of one without."""

import json

import msgspec
import numpy as np
import pytest

from metalforge.campaign.report.result import Results
from metalforge.campaign.report.sections_of_run import decisions_section
from metalforge.campaign.running import point
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from metalforge.core.errors import InternalError
from metalforge.lattice import GaugeField
from metalforge.lattice.campaign import point as lattice_point
from metalforge.lattice.run import ChainRun
from metalforge.plasma.campaign import point as plasma_point
from reference.command_line import call
from reference.small_campaigns import FREEZES, PARTICLES, QUICK, ROUNDS, run_until
from reference.spoiled_chains import faults_at, inject, particle_faults_at
from reference.wide_engine import WideEngine, with_cards

SPEC = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=500))
FEW = msgspec.structs.replace(PARTICLES, budget=Budget(trajectories=26))


def run(spec, path, faults=None, seed=0):
    with faults_at(faults or {}, seed=seed) as left, np.errstate(all="ignore"), Campaign.open(spec, path) as campaign:
        state = campaign.run()
    assert not left
    return state


def faults_of(state):
    return [(d.chain, d.by, d.done.partition(":")[0].partition(",")[0]) for d in state.decisions if d.what == "fault"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return run(SPEC, tmp_path_factory.mktemp("sound") / "run")


def test_a_sound_campaign_has_no_faults(sound):
    assert faults_of(sound) == []
    assert sound.finished is not None


def test_faults_in_two_chains_leave_no_trace_in_what_is_measured(sound, tmp_path):
    state = run(SPEC, tmp_path / "run", {(0, 40): "nan", (1, 77): "nan"})
    assert state.digest() == sound.digest()
    assert sorted(faults_of(state)) == [
        ("c0000", "rule:finite", "replaced"),
        ("c0000", "rule:finite", "thrown away"),
        ("c0001", "rule:finite", "replaced"),
        ("c0001", "rule:finite", "thrown away"),
    ]
    assert not any(chain.abandoned for chain in state.chains.values())
    summary = json.loads(call("replay", "run", "--json", cwd=tmp_path).stdout)
    assert {(f["chain"], f["step"], f["by"]) for f in summary["faults"]} == {
        ("c0000", 40, "rule:finite"),
        ("c0001", 77, "rule:finite"),
    }
    page = decisions_section(Results(state), {})
    assert "Blocks that were computed again" in page


def test_links_off_the_group_and_bits_that_flip_are_found_where_the_block_ends(sound, tmp_path):
    faults = {(0, 65): "lost_reunitarisation", (1, 100): "flip_exponent"}
    state = run(SPEC, tmp_path / "run", faults, seed=5)
    assert state.digest() == sound.digest()
    assert ("c0000", "rule:unitarity", "replaced") in faults_of(state)
    assert ("c0001", "rule:finite", "replaced") in faults_of(state)


def test_a_campaign_that_is_stopped_at_a_fault_goes_on_as_if_there_was_none(sound, tmp_path):
    with faults_at({(0, 40): "nan"}), np.errstate(all="ignore"), Campaign.open(SPEC, tmp_path / "run") as campaign:
        write = campaign.book.write

        def writing(*records):
            write(*records)
            if any(getattr(record, "what", "") == "fault" for record in records):
                campaign.interrupt("test")

        campaign.book.write = writing
        assert campaign.run().finished is None
    with Campaign.resume(tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.digest() == sound.digest()
    assert faults_of(state) == [("c0000", "rule:finite", "thrown away")]


def test_what_fails_again_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setitem(lattice_point.OFF_GROUP, "f64", 1e-30)
    spec = msgspec.structs.replace(SPEC, budget=Budget(trajectories=200))
    with Campaign.open(spec, tmp_path / "run") as campaign, pytest.raises(InternalError, match="abandoned"):
        campaign.run()  # nothing was measured
    state = campaign.state
    given_up = [d for d in state.decisions if d.what == "abandoned"]
    assert given_up
    assert {d.by for d in given_up} == {"validator"}
    assert "off SU(3)" in given_up[0].reason
    assert not any(chain.rows for chain in state.chains.values() if chain.abandoned)


def test_a_chain_that_jumps_to_another_phase_is_not_at_fault(tmp_path, monkeypatch):
    """After 400 measured updates the links are replaced by others of the group: the plaquette moves by 12 spreads."""
    step = ChainRun.step
    jumped = []

    def jumping(run, **options):
        if run.log.end == 440 and run.chain.spec.stream == 0:
            jumped.append(run.chain.spec.stream)
            run.chain.field.assign(GaugeField(run.chain.field.dims, engine=run.chain.field.engine))
        return step(run, **options)

    monkeypatch.setattr(ChainRun, "step", jumping)
    steering = msgspec.structs.replace(SPEC.steering, visit=500, initial=2, points=(5.0,))
    running = msgspec.structs.replace(SPEC.running, producers=1)
    spec = msgspec.structs.replace(SPEC, steering=steering, running=running, budget=Budget(trajectories=3 * 560))
    state = run(spec, tmp_path / "run")
    assert jumped == [0]
    plaquette = state.chains["c0000"].column("plaquette")
    assert max(plaquette) - np.mean(plaquette[:300]) > 10 * np.std(plaquette[:300])
    assert faults_of(state) == []


@pytest.mark.parametrize("fault", ["wrong_beta", "stuck_stream"])
def test_a_chain_whose_written_rows_do_not_come_out_again_is_given_up(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(point.PointChain, "witness_every", 30)
    state = run(SPEC, tmp_path / "run", {(0, 75): fault})
    flagged = [d.by for d in state.chains["c0000"].decisions if d.what == "fault"]
    assert flagged == ["rule:witness", "rule:journal"]
    assert [chain.id for chain in state.chains.values() if chain.abandoned] == ["c0000"]
    assert state.finished is not None


def test_a_witness_that_errs_costs_no_row(sound, tmp_path, monkeypatch):
    """A second computation that differs once: the block comes out as it was, and the journal says so."""
    witnessed, erred = point.PointChain.witnessed, []

    def erring(self):
        if not erred and self.id == "c0001" and self.run.phase == "measure":
            erred.append(self.rows)
            return self.rows - 1, "plaquette"
        return witnessed(self)

    monkeypatch.setattr(point.PointChain, "witnessed", erring)
    state = run(SPEC, tmp_path / "run")
    assert erred
    assert state.digest() == sound.digest()
    done = [d.done for d in state.decisions if d.what == "fault"]
    assert len(done) == 2
    assert done[1].startswith("kept: ")


def test_a_fault_that_a_witness_meets_first_is_a_fault_of_its_chain(sound, tmp_path, monkeypatch):
    """Links are spoiled between two blocks; the first update of the next one is made twice."""
    monkeypatch.setattr(point.PointChain, "witness_every", 30)
    begin, spoiled = point.PointChain.begin, []

    def spoil(chain, *order):
        if chain.id == "c0000" and chain.rows >= 60 and chain.run.phase == "measure" and not spoiled:
            spoiled.append(chain.rows)
            inject(chain.run.chain, "nan", np.random.default_rng(1))
        begin(chain, *order)

    monkeypatch.setattr(point.PointChain, "begin", spoil)
    state = run(SPEC, tmp_path / "run")
    assert len(spoiled) == 1
    assert state.digest() == sound.digest()
    assert faults_of(state) == [("c0000", "rule:finite", "thrown away"), ("c0000", "rule:finite", "replaced")]


@pytest.mark.parametrize("wide", [False, True])
def test_rows_that_cannot_be_reproduced_end_their_chain_and_not_the_campaign(tmp_path, monkeypatch, wide):
    """On resume a recorded row comes out with other bits: the chain is abandoned, and never opened again."""
    running = msgspec.structs.replace(QUICK.running, substrate="cuda:0" if wide else "cpu")
    spec = msgspec.structs.replace(QUICK, running=running, budget=Budget(trajectories=2400))
    if wide:
        with_cards(monkeypatch, WideEngine(busy_sites=512))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = run_until(campaign, 300)
    victim = max((state.visits[n].chain for n in state.open_visits), key=lambda name: state.chains[name].rows)
    assert state.chains[victim].rows > 0
    opened = []
    take_up = point.PointChain._take_up

    def other_bits(chain, run):
        opened.append((chain.id, resumed.state.chains[chain.id].abandoned))
        # A coupling that is off by 1e-3: the spec is that of the recorded chain, and its rows are not.
        if chain.id == victim:
            run.chain.spec = msgspec.structs.replace(run.chain.spec, beta=run.chain.spec.beta + 1e-3)
        take_up(chain, run)

    monkeypatch.setattr(point.PointChain, "_take_up", other_bits)
    for file in (tmp_path / "run").glob(f"**/{victim}*"):
        file.unlink()
    with Campaign.resume(tmp_path / "run") as resumed:
        state = resumed.run()
    assert state.finished is not None
    assert [chain.id for chain in state.chains.values() if chain.abandoned] == [victim]
    abandoned = next(i for i, d in enumerate(state.decisions) if d.what == "abandoned")
    assert not any(d.chain == victim for d in state.decisions[abandoned + 1 :])
    assert opened.count((victim, False)) >= 2  # as it was resumed, and from its start
    assert (victim, True) not in opened


def test_chains_of_a_batch_have_the_gate_too(tmp_path, monkeypatch):
    running = msgspec.structs.replace(SPEC.running, substrate="cuda:0")
    lattice = msgspec.structs.replace(SPEC.theory, volumes=((2, 2, 2, 2),))
    spec = msgspec.structs.replace(SPEC, theory=lattice, running=running, budget=Budget(trajectories=250))
    states = []
    for name, faults in (("sound", {}), ("faulty", {(0, 40): "nan", (1, 40): "nan"})):
        with_cards(monkeypatch, WideEngine(busy_sites=32))
        states.append(run(spec, tmp_path / name, faults))
    sound, faulty = states
    assert faulty.digest() == sound.digest()
    assert {found[:2] for found in faults_of(faulty)} == {("c0000", "rule:finite"), ("c0001", "rule:finite")}


@pytest.mark.parametrize(
    "lattice",
    [
        {"precision": "f32"},
        {"algorithm": "hmc", "integrator": "leapfrog"},
        {"algorithm": "hmc", "action": "symanzik", "beta_min": 3.0, "beta_max": 3.6},
        {"observables": ("wilson_loop",)},
    ],
)
def test_witnesses_agree_with_sound_chains_of_every_kind(tmp_path, monkeypatch, lattice):
    called = []
    call_witness = point.PointChain._call_witness
    monkeypatch.setattr(point.PointChain, "witness_every", 5)
    monkeypatch.setattr(point.PointChain, "_call_witness", lambda self: (called.append(self.id), call_witness(self)))
    kind = msgspec.structs.replace(SPEC.theory, volumes=((4, 2, 2, 2),), **lattice)
    running = msgspec.structs.replace(SPEC.running, block=10)
    state = run(
        msgspec.structs.replace(SPEC, theory=kind, running=running, budget=Budget(trajectories=200)), tmp_path / "run"
    )
    assert called
    assert faults_of(state) == []


@pytest.fixture(scope="module")
def sound_particles(tmp_path_factory):
    with Campaign.open(FEW, tmp_path_factory.mktemp("sound-particles") / "run") as campaign:
        return campaign.run()


@pytest.mark.parametrize(
    ("fault", "by"), [("nan", "rule:finite"), ("kick", "rule:drift"), ("pair", "rule:drift"), ("swap", "rule:witness")]
)
def test_faults_of_particles_leave_no_trace_in_what_is_measured(sound_particles, tmp_path, monkeypatch, fault, by):
    if fault == "swap":
        # Every block's first segment is made twice: nothing that is conserved tells of this one.
        monkeypatch.setattr(plasma_point.PlasmaPoint, "witness_every", 1)
    assert not any(d.what == "fault" for d in sound_particles.decisions)
    with particle_faults_at({(1, 8): fault}) as left, Campaign.open(FEW, tmp_path / "run") as campaign:
        state = campaign.run()
    assert not left
    # The swap meets the second computation, which is made first: the trajectory itself was sound.
    ended = "kept" if fault == "swap" else "replaced"
    assert faults_of(state) == [("c0001", by, "thrown away"), ("c0001", by, ended)]
    assert state.digest() == sound_particles.digest()


@pytest.mark.parametrize("spec", [FEW, FREEZES], ids=["map", "freezing"])
def test_single_precision_is_not_called_a_fault(spec, tmp_path):
    # A pair's two forces are rounded apart, and the total momentum walks away from zero.
    single = msgspec.structs.replace(spec, theory=msgspec.structs.replace(spec.theory, precision="f32"))
    with Campaign.open(single, tmp_path / "run") as campaign:
        state = campaign.run()
    measured = [value for chain in state.chains.values() for value in chain.column("momentum")]
    assert max(measured) > 1e-9
    assert faults_of(state) == []
    assert not any(chain.abandoned for chain in state.chains.values())
