"""A conductor over real weights: carried states, spreads, retraining, files; and the worker with it beside a chain."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.chains import save_corpus
from metalforge.conductor.corpus import build_corpus
from metalforge.conductor.corpus_spec import CorpusSpec, Grid
from metalforge.conductor.dataset import examples, frames_of, meta_rows
from metalforge.conductor.ensemble import values_of
from metalforge.conductor.events import ChainEnded, Outcome, TrajectoryEvent
from metalforge.conductor.features import FEATURES, ChainContext, FrameBuilder, Trajectory
from metalforge.conductor.heads_training import reservoir, train_heads
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.reading import NetworkConductor, read_corpus
from metalforge.conductor.requests import (
    BootstrapFromLog,
    BootstrapFromWeights,
    PhaseClassify,
    RejectPredict,
    Retrain,
    ThermCheck,
)
from metalforge.conductor.worker import Worker, WorkerError
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.hmc import EnergyProbe
from metalforge.reservoir.files import load_weights
from metalforge.substrates.npu import EmulatedDevice

SPEC = CorpusSpec(
    grids=(
        Grid(
            dims=(4, 4, 4, 2),
            train=(4.6, 4.9, 5.6),
            test=(5.5,),
            far=(4.6, 5.6),
            steps=((1.0, 5),),
            trajectories=40,
            seeds=2,
            faults=(),
        ),
    ),
    reference=30,
)
LONG = 30.0


@pytest.fixture(scope="module")
def corpus():
    return build_corpus(SPEC)


@pytest.fixture(scope="module")
def learn(corpus):
    return examples(corpus, "train")


@pytest.fixture(scope="module")
def trained(learn):
    return tuple(train_heads(learn, weights=reservoir(seed, units=48)) for seed in (1, 2, 3))


@pytest.fixture(scope="module")
def frames(corpus):
    chain = corpus.part("test")[0]
    return frames_of(chain, meta_rows(corpus, chain))


@pytest.fixture
def conductor(trained):
    return NetworkConductor(trained[0].weights, spreads={n: f.noise for n, f in trained[0].fits.items()})


def probability(readings, head="rejection"):
    return readings[head].value[-1]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_readings_along_a_chain_are_those_of_training(conductor, trained, corpus, frames):
    held_out = examples(corpus, "test")[0]
    wanted = values_of(trained[0], held_out.inputs)
    found = [conductor.observe("a", frame) for frame in frames]
    for head in wanted:
        assert np.allclose([reading[head].value[-1] for reading in found], wanted[head], rtol=1e-5, atol=1e-6), head
    assert set(found[0]) == set(CONDUCTOR_11.names)


def test_a_frame_half_way_is_read_on_top_of_the_carried_state_and_changes_nothing(conductor, frames):
    for frame in frames[:10]:
        conductor.observe("a", frame)
    seen = conductor.read(frames[10], chain="a")
    again = conductor.read(frames[10], chain="a")
    alone = conductor.read(frames[10])
    then = conductor.observe("a", frames[10])
    assert probability(seen) == probability(again) == probability(then)
    assert probability(seen) != probability(alone)
    assert conductor.chains == ("a",)


def test_a_chain_of_which_nothing_was_seen_is_at_rest(conductor, frames):
    first = conductor.read(frames[0], chain="new")
    assert probability(first) == probability(conductor.read(frames[0]))
    assert conductor.chains == ()


def test_chains_do_not_touch_each_other_and_end(conductor, frames):
    alone = [probability(conductor.observe("a", frame)) for frame in frames[:6]]
    conductor.end("a")
    conductor.end("never seen")
    mixed = []
    for one, other in zip(frames[:6], frames[6:12], strict=True):
        mixed.append(probability(conductor.observe("a", one)))
        conductor.observe("b", other)
    assert mixed == alone


def test_more_chains_than_there_is_room_for_are_refused_and_old_ones_go_on(trained, frames):
    conductor = NetworkConductor(trained[0].weights, chains=2)
    conductor.observe("a", frames[0])
    conductor.observe("b", frames[0])
    with pytest.raises(SpecError, match="2 chains are open and `c` would be one more"):
        conductor.observe("c", frames[0])
    conductor.observe("a", frames[1])
    conductor.end("b")
    conductor.observe("c", frames[0])
    assert conductor.chains == ("a", "c")


def test_an_ensemble_reads_the_mean_and_its_spread(trained, corpus, frames):
    members = [t.weights for t in trained]
    noise = {name: float(np.mean([t.fits[name].noise for t in trained])) for name in trained[0].fits}
    conductor = NetworkConductor(members, spreads=noise)
    inputs = examples(corpus, "test")[0].inputs
    each = [values_of(t, inputs) for t in trained]
    found = [conductor.observe("a", frame) for frame in frames]
    for head in ("rejection", "deconfinement", "phase"):
        stack = np.stack([answer[head] for answer in each])
        spread = np.sqrt(stack.var(axis=0) + noise[head] ** 2)
        assert np.allclose([r[head].value[-1] for r in found], stack.mean(axis=0), rtol=1e-5, atol=1e-6)
        assert np.allclose([r[head].spread for r in found], spread, rtol=1e-5)
    bare = NetworkConductor(members).read(frames[0])["rejection"].spread
    assert 0 < bare < conductor.read(frames[0])["rejection"].spread
    assert NetworkConductor(members[0]).read(frames[0])["rejection"].spread is None


def test_weights_that_do_not_fit_are_refused(trained):
    weights = trained[0].weights
    other = msgspec.structs.replace(FEATURES, name="others", version=2)
    with pytest.raises(SpecError, match=r"'others' version 2, not 'metalforge-features-1' version 1"):
        NetworkConductor(replace(weights, features=other))
    with pytest.raises(SpecError, match="readout and a head layout"):
        NetworkConductor(reservoir(1, units=8))
    with pytest.raises(SpecError, match="at least one network"):
        NetworkConductor(())
    with pytest.raises(UnknownNameError, match="rejektion"):
        NetworkConductor(weights, spreads={"rejektion": 0.1})
    renamed = msgspec.structs.replace(weights.heads, name="mine")
    with pytest.raises(SpecError, match=r"the same heads\. Got `conductor-11`"):
        NetworkConductor([weights, replace(weights, heads=renamed)])
    with pytest.raises(UnknownNameError, match="polyakov"):
        NetworkConductor(weights).read({"polyakov": 0.3})


# --- the device ------------------------------------------------------------------------------------------------------


def test_the_emulated_device_reads_as_software_does_and_is_retrained_to_its_own_states(trained, learn, frames):
    weights = trained[0].weights
    calibration = np.concatenate([e.inputs for e in learn])
    software = NetworkConductor(weights)
    with (
        EmulatedDevice() as device,
        NetworkConductor(weights, device=device, calibration=calibration) as chip,
    ):
        for frame in frames[:15]:
            one, other = software.observe("a", frame), chip.observe("a", frame)
            assert abs(probability(one) - probability(other)) < 0.05
        chip.retrain(learn[:8])
        software.retrain(learn[:8])
        for frame in frames[15:30]:
            one, other = software.observe("a", frame), chip.observe("a", frame)
            assert abs(probability(one) - probability(other)) < 0.05
        assert len(device.slots()) == 2
        with pytest.raises(SpecError, match=r"a device takes one network\. Got 2"):
            NetworkConductor([weights, weights], device=device)
    assert device.slots() == ()


# --- retraining ------------------------------------------------------------------------------------------------------


def test_retraining_replaces_the_heads_with_labels_and_keeps_the_others(trained, learn, frames):
    conductor = NetworkConductor(trained[0].weights)
    before = conductor.read(frames[0])
    for frame in frames[:3]:
        conductor.observe("a", frame)
    only = [replace(e, labels=replace(e.labels, values={"rejection": 1 - e.labels.values["rejection"]})) for e in learn]
    conductor.retrain(only)
    after = conductor.read(frames[0])
    assert probability(after) != probability(before)
    assert after["deconfinement"].value == before["deconfinement"].value
    assert conductor.spreads.keys() == {"rejection"}
    # The negated label: what was likely is unlikely, on average over a chain.
    told = [probability(conductor.read(f)) for f in frames[8:]]
    old = [probability(NetworkConductor(trained[0].weights).read(f)) for f in frames[8:]]
    assert np.corrcoef(told, old)[0, 1] < -0.9
    assert conductor.chains == ("a",)


def test_untrained_heads_become_trained(learn):
    untrained = msgspec.structs.replace(
        CONDUCTOR_11, heads=tuple(msgspec.structs.replace(h, trained=False) for h in CONDUCTOR_11.heads)
    )
    start = reservoir(5, units=16).with_readout(np.zeros((12, 16), np.float32), heads=untrained)
    conductor = NetworkConductor(start)
    with Worker(conductor) as worker:
        assert worker.trust.marked("rejection") == "untrained"
        worker.ask(Retrain(records=tuple(learn))).get(timeout=LONG)
        assert worker.trust.marked("rejection") is None
        assert worker.trust.marked("cg_estimate") == "untrained"  # quenched chains solve nothing
        assert worker.trust.marked("transport_D") == "unavailable: nothing feeds its inputs"
    assert conductor.layout["rejection"].trained


def test_a_retraining_that_fails_leaves_everything_as_it_was(conductor, learn, frames):
    before, spreads = conductor.read(frames[0]), conductor.spreads
    for records in ([], ["a line of a log"], [replace(learn[0], inputs=learn[0].inputs[:, :49])]):
        with pytest.raises((SpecError, ValueError)):
            conductor.retrain(records)
    after = conductor.read(frames[0])
    assert all(np.array_equal(before[head].value, after[head].value) for head in before)
    assert conductor.spreads == spreads


# --- files -----------------------------------------------------------------------------------------------------------


def test_one_network_and_its_noise_come_back_from_a_file_that_others_read_too(conductor, frames, tmp_path):
    path = tmp_path / "one.safetensors"
    conductor.export(path)
    again = NetworkConductor.load(path)
    assert again.spreads == conductor.spreads
    assert again.layout == conductor.layout
    one, other = conductor.read(frames[3]), again.read(frames[3])
    assert all(np.array_equal(one[h].value, other[h].value) and one[h].spread == other[h].spread for h in one)
    assert np.array_equal(load_weights(path).w_out, conductor.members[0].w_out)
    with pytest.raises(SpecError, match=r"written as \.safetensors"):
        conductor.export(tmp_path / "one.json")


def test_an_ensemble_comes_back_whole_and_leaves_no_old_members_behind(trained, frames, tmp_path):
    path = tmp_path / "all.safetensors"
    ensemble = NetworkConductor([t.weights for t in trained], spreads={"rejection": 0.25})
    ensemble.export(path)
    again = NetworkConductor.load(path)
    assert len(again.members) == 3
    assert probability(again.read(frames[0])) == probability(ensemble.read(frames[0]))
    assert again.read(frames[0])["rejection"].spread == ensemble.read(frames[0])["rejection"].spread
    assert len(list(tmp_path.iterdir())) == 3
    NetworkConductor([t.weights for t in trained[:2]]).export(path)
    assert len(list(tmp_path.iterdir())) == 2
    sibling = next(p for p in tmp_path.iterdir() if p != path)
    sibling.write_bytes(path.read_bytes())
    with pytest.raises(SpecError, match=r"not the network that .* names as its member"):
        NetworkConductor.load(path)
    sibling.unlink()
    with pytest.raises(SpecError, match=sibling.name):
        NetworkConductor.load(path)


def test_a_file_cannot_name_members_elsewhere(trained, tmp_path):
    path, other = tmp_path / "a.safetensors", tmp_path / "folder" / "b.safetensors"
    other.parent.mkdir()
    NetworkConductor([t.weights for t in trained[:2]]).export(path)
    sibling = next(p for p in tmp_path.iterdir() if p.is_file() and p != path)
    evil = f"../{'x' * (len(sibling.name) - 3)}".encode()
    path.write_bytes(path.read_bytes().replace(sibling.name.encode(), evil))
    with pytest.raises(SpecError, match="members lie in the same folder"):
        NetworkConductor.load(path)


def test_writing_over_a_damaged_or_a_forged_file_removes_nothing_else(trained, tmp_path):
    path, precious = tmp_path / "a.safetensors", tmp_path / "a-precious0000.safetensors"
    precious.write_bytes(b"mine")
    NetworkConductor([t.weights for t in trained[:2]]).export(path)
    sibling = next(p for p in tmp_path.iterdir() if p not in (path, precious))
    assert len(sibling.name) == len(precious.name)
    path.write_bytes(path.read_bytes().replace(sibling.name.encode(), precious.name.encode()))
    NetworkConductor(trained[0].weights).export(path)
    assert precious.read_bytes() == b"mine"
    for damage in (b"", b"\xff" * 40, (20).to_bytes(8, "little") + b"\xff" * 20, (2).to_bytes(8, "little") + b"{}"):
        path.write_bytes(damage)
        with pytest.raises(SpecError, match=r"a\.safetensors"):
            NetworkConductor.load(path)
        NetworkConductor(trained[0].weights).export(path)
        assert len(NetworkConductor.load(path).members) == 1


# --- the worker beside a real chain ----------------------------------------------------------------------------------

CONTEXT = ChainContext(beta=5.2, dims=(4, 4, 4, 2))
TAU, STEPS, UNTESTED = 1.0, 5, 6


class Producer:
    """Runs HMC, tells the worker of every trajectory, and asks about its rejection at a quarter of its steps."""

    def __init__(self, worker, name, seed):
        self.worker, self.name = worker, name
        self.builder = FrameBuilder(CONTEXT)
        hmc = HmcSpec(tau=TAU, n_steps=STEPS, integrator="leapfrog")
        self.chain = Chain(
            ChainSpec(dims=CONTEXT.dims, beta=CONTEXT.beta, algorithm="hmc", seed=seed, start="cold", hmc=hmc),
            threads=1,
        )
        self.frames, self.answers = [], []
        self.stage = "warmup"
        for _ in range(UNTESTED):
            self.update()
        self.stage = "measure"

    def _trajectory(self, quarter, **more):
        spatial, temporal = self.plaquettes
        return Trajectory(
            stage=self.stage,
            plaquette_spatial=spatial,
            plaquette_temporal=temporal,
            delta_h_quarter=quarter,
            step_size=TAU / STEPS,
            n_steps=STEPS,
            **more,
        )

    def update(self):
        self.plaquettes = tuple(s / (3 * self.chain.field.volume) for s in self.chain.field.plaquette_sums())
        mid = []
        testing = self.stage == "measure"  # from a cold start hardly anything would be accepted
        info = self.chain.update(accept_always=not testing, probe=EnergyProbe((0.25,), lambda at: self._look(at, mid)))
        seen = self._trajectory(mid[0], delta_h=info.delta_h, accepted=info.accepted if testing else None)
        if testing:
            response = self.asked.get(timeout=LONG)
            assert not response.act  # in measurement a prediction is scored, never acted on
            self.answers.append(response)
            self.worker.submit_event(Outcome(id=response.id, value=float(not info.accepted)))
        self.frames.append(self.builder.push(seen))
        self.worker.submit_event(TrajectoryEvent(chain=self.name, frame=self.frames[-1]))

    def _look(self, at, mid):
        mid.append(at.delta_h)
        if self.stage == "measure":
            question = RejectPredict(
                beta=CONTEXT.beta,
                dims=CONTEXT.dims,
                chain=self.name,
                phase="measure",
                delta_h_quarter=at.delta_h,
                features=self.builder.midway(self._trajectory(at.delta_h)),
            )
            self.asked = self.worker.ask(question)


def test_the_worker_beside_a_real_chain_earns_trust_and_keeps_it_over_a_restart(trained, tmp_path):
    conductor = NetworkConductor(trained[0].weights)
    with Worker(conductor, load_weights=NetworkConductor.load, read_log=read_corpus) as worker:
        producer = Producer(worker, "hmc", seed=5)
        for _ in range(45):
            producer.update()
        therm = worker.ask(
            ThermCheck(beta=CONTEXT.beta, window=tuple(f["plaquette"] for f in producer.frames[-20:]), chain="hmc")
        ).get(timeout=LONG)
        phase = worker.ask(PhaseClassify(beta=CONTEXT.beta, plaquette=0.5, chain="hmc")).get(timeout=LONG)
        standing = worker.trust.standing("rejection")
        state = worker.state(tmp_path / "weights.safetensors")
    sources = [answer.source for answer in producer.answers]
    assert sources[:20] == ["heuristic"] * 20  # nobody is believed before twenty outcomes
    assert standing.trusted
    assert sources[-1] == "head"
    assert {answer.head for answer in producer.answers} == {"rejection"}
    assert therm.why == "untrusted: 0 of 20 pairs"
    assert phase.head == "phase"
    # What the head said half way is what training would have said of the whole chain.
    own = NetworkConductor(trained[0].weights)
    offline = [own.observe("hmc", frame)["rejection"].value[0] for frame in producer.frames][UNTESTED:]
    for answer, wanted in zip(producer.answers, offline, strict=True):
        if answer.source == "head":
            assert answer.answer.probability == pytest.approx(wanted, abs=1e-6)

    record = msgspec.json.decode(msgspec.json.encode(state), type=type(state))
    with Worker.restore(record, load_weights=NetworkConductor.load) as restarted:
        assert restarted.trust.standing("rejection") == standing
        again = Producer(restarted, "second", seed=6)
        for _ in range(3):
            again.update()
    assert [answer.source for answer in again.answers] == ["head"] * 3
    assert again.answers[0].id == state.next_id
    wanted = [own.observe("second", frame)["rejection"].value[0] for frame in again.frames][UNTESTED:]
    assert [answer.answer.probability for answer in again.answers] == pytest.approx(wanted, abs=1e-6)


def test_a_chain_that_was_under_way_at_a_restart_is_told_again_from_its_first_trajectory(conductor, frames):
    """Its carried state is gone: readings from rest in the middle of it would be wrong without saying so."""
    ask = PhaseClassify(beta=5.5, plaquette=0.5, chain="a")
    with Worker(conductor) as worker:
        for frame in frames[:5]:
            worker.submit_event(TrajectoryEvent(chain="a", frame=frame))
        worker.ask(ask).get(timeout=LONG)
        state = worker.state()
    assert state.chains == ("a",)
    fresh = NetworkConductor(conductor.members)
    with Worker.restore(state, fresh) as worker:
        worker.submit_event(TrajectoryEvent(chain="a", frame=frames[5]))
        response = worker.ask(ask).get(timeout=LONG)
        assert response.why == "unavailable: chain a was under way when the worker was restarted"
        worker.submit_event(ChainEnded(chain="a"))
        for frame in frames[:6]:
            worker.submit_event(TrajectoryEvent(chain="a", frame=frame))
        assert worker.ask(ask).get(timeout=LONG).why == "untrusted: 0 of 20 pairs"  # asked, and not told any outcome
    whole = NetworkConductor(conductor.members)
    for frame in frames[:6]:
        whole.observe("a", frame)
    assert probability(fresh.read(frames[6], chain="a")) == probability(whole.read(frames[6], chain="a"))


def test_commands_read_real_files(corpus, trained, frames, tmp_path):
    log, weights = tmp_path / "corpus.h5", tmp_path / "other.safetensors"
    save_corpus(corpus, log)
    NetworkConductor(trained[1].weights, spreads={"rejection": 0.2}).export(weights)
    conductor = NetworkConductor(trained[0].weights)
    with Worker(conductor, load_weights=NetworkConductor.load, read_log=read_corpus) as worker:
        learned = worker.ask(BootstrapFromLog(path=str(log))).get(timeout=LONG)
        assert learned.answer.records == len(corpus.part("train"))
        assert np.allclose(conductor.members[0].w_out, trained[0].weights.w_out, rtol=1e-3, atol=1e-4)
        worker.submit_event(TrajectoryEvent(chain="a", frame=frames[0]))
        worker.ask(BootstrapFromWeights(path=str(weights))).get(timeout=LONG)
        state = worker.state(tmp_path / "kept.safetensors")
        with pytest.raises(WorkerError, match="nowhere"):
            worker.ask(BootstrapFromWeights(path=str(tmp_path / "nowhere.safetensors"))).get(timeout=LONG)
        with pytest.raises(WorkerError, match=r"other\.safetensors"):
            worker.ask(BootstrapFromLog(path=str(weights))).get(timeout=LONG)
    kept = NetworkConductor.load(state.weights)
    assert np.array_equal(kept.members[0].w_res, trained[1].weights.w_res)
    assert kept.spreads == {"rejection": 0.2}


def test_a_chain_that_ended_is_forgotten_by_the_network_too(conductor, frames):
    with Worker(conductor) as worker:
        worker.submit_event(TrajectoryEvent(chain="a", frame=frames[0]))
        worker.submit_event(TrajectoryEvent(chain="b", frame=frames[0]))
        worker.submit_event(ChainEnded(chain="a"))
    assert conductor.chains == ("b",)
