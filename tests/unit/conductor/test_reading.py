"""A conductor over real weights: carried states, spreads, a device; and the worker with it beside a chain."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.corpus import build_corpus
from metalforge.conductor.corpus_spec import CorpusGrid, CorpusSpec
from metalforge.conductor.features import FEATURES, LARGEST, ChainContext, FrameBuilder, ObservedUpdate
from metalforge.conductor.heads_training import reservoir, train_heads
from metalforge.conductor.heuristics import rejection_probability
from metalforge.conductor.labels import examples, frames_of, meta_rows
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.predicting import values_of
from metalforge.conductor.questions import HeadQuestion
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.worker import Worker
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.hmc import EnergyProbe
from metalforge.substrates.npu import EmulatedDevice

SPEC = CorpusSpec(
    grids=(
        CorpusGrid(
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


def test_a_reading_has_the_noise_of_its_head_as_spread(trained, frames):
    noise = {name: fit.noise for name, fit in trained[0].fits.items()}
    found = NetworkConductor(trained[0].weights, spreads=noise).read(frames[0])
    assert found["rejection"].spread == noise["rejection"]
    assert NetworkConductor(trained[0].weights).read(frames[0])["rejection"].spread is None


def test_weights_that_do_not_fit_are_refused(trained):
    weights = trained[0].weights
    other = msgspec.structs.replace(FEATURES, name="others", version=2)
    with pytest.raises(SpecError, match=r"'others' version 2, .*'metalforge-features-1' version 1"):
        NetworkConductor(replace(weights, features=other))
    with pytest.raises(SpecError, match="head layout"):
        NetworkConductor(reservoir(1, units=8))
    with pytest.raises(UnknownNameError, match="rejektion"):
        NetworkConductor(weights, spreads={"rejektion": 0.1})
    with pytest.raises(UnknownNameError, match="polyakov"):
        NetworkConductor(weights).read({"polyakov": 0.3})


# --- the device ------------------------------------------------------------------------------------------------------


def test_weights_without_calibration_are_refused_on_a_device(trained):
    """Inputs reach 5; lines that end at 1 would clamp them, and readings would be off by their own spread."""
    assert trained[0].weights.ranges.u == LARGEST
    with EmulatedDevice() as device, pytest.raises(SpecError, match="how large"):
        NetworkConductor(replace(trained[0].weights, ranges=None), device=device)
    NetworkConductor(replace(trained[0].weights, ranges=None)).close()  # software needs none


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_emulated_device_reads_as_software_does(trained, learn, frames, calibrated):
    """With ranges from training chains, and with those that features are bounded by."""
    weights = trained[0].weights
    calibration = np.concatenate([e.inputs for e in learn]) if calibrated else None
    software = NetworkConductor(weights)
    with (
        EmulatedDevice() as device,
        NetworkConductor(weights, device=device, calibration=calibration) as chip,
    ):
        for frame in frames[:15]:
            one, other = software.observe("a", frame), chip.observe("a", frame)
            assert abs(probability(one) - probability(other)) < 0.05
        assert len(device.slots()) == 2
        assert chip.processor_s > 0
    assert device.slots() == ()


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
        self.rows, self.frames, self.answers = [], [], []
        self.phase = "warmup"
        worker.begin(name, CONTEXT)
        for _ in range(UNTESTED):
            self.update()
        self.phase = "measure"

    def _trajectory(self, quarter, **more):
        spatial, temporal = self.plaquettes
        return ObservedUpdate(
            phase=self.phase,
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
        testing = self.phase == "measure"  # from a cold start hardly anything would be accepted
        info = self.chain.update(accept_always=not testing, probe=EnergyProbe((0.25,), lambda at: self._look(at, mid)))
        seen = self._trajectory(mid[0], delta_h=info.delta_h, accepted=info.accepted if testing else None)
        if testing:
            answer = self.asked.get()
            self.answers.append(answer)
            self.worker.outcome(answer.id, float(not info.accepted))
        self.rows.append((len(self.rows), seen))
        self.frames.append(self.builder.push(seen))
        self.worker.tell(self.name, self.rows[-1:])

    def _look(self, at, mid):
        mid.append(at.delta_h)
        if self.phase == "measure":
            coming = self._trajectory(at.delta_h)
            baseline = rejection_probability(at.delta_h)
            self.asked = self.worker.ask(
                HeadQuestion(head="rejection", chain=self.name, of=coming, baseline=baseline, loss="log")
            )


def test_the_worker_beside_a_real_chain_earns_trust_and_says_what_training_would(trained):
    conductor = NetworkConductor(trained[0].weights)
    with Worker(conductor) as worker:
        producer = Producer(worker, "hmc", seed=5)
        for _ in range(45):
            producer.update()
        therm = worker.ask(HeadQuestion(head="thermalization", chain="hmc", of=50)).get()
        standing = worker.trust.standing("rejection")
    sources = [answer.source for answer in producer.answers]
    assert sources[:20] == ["baseline"] * 20  # nobody is believed before twenty outcomes
    assert standing.trusted
    assert sources[-1] == "head"
    assert therm.why == "untrusted: 0 of 20 pairs"
    # What the head said half way is what training would have said of the whole chain.
    own = NetworkConductor(trained[0].weights)
    offline = [own.observe("hmc", frame)["rejection"].value[0] for frame in producer.frames]
    assert [answer.said["rejection"] for answer in producer.answers] == offline[UNTESTED:]


def test_a_chain_that_is_told_again_from_its_first_row_is_read_alike_bit_for_bit(trained):
    conductor = NetworkConductor(trained[0].weights)

    def said(worker, name, rows):
        return [worker.ask(HeadQuestion(head="phase", chain=name, of=row)).get().said for row, _ in rows]

    with Worker(conductor) as worker:
        producer = Producer(worker, "hmc", seed=6)
        for _ in range(5):
            producer.update()
        live = said(worker, "hmc", producer.rows)
        for cut in range(len(producer.rows)):
            worker.begin("hmc", CONTEXT)
            worker.tell("hmc", producer.rows[:cut])
            for row in producer.rows[cut:]:
                worker.tell("hmc", [row])
            assert said(worker, "hmc", producer.rows) == live


def test_a_chain_that_ended_is_forgotten_by_the_network_too(conductor, frames):
    with Worker(conductor) as worker:
        for name in ("a", "b"):
            worker.begin(name, CONTEXT)
            worker.tell(name, [(0, ObservedUpdate(phase="measure", plaquette_spatial=0.5, plaquette_temporal=0.5))])
        worker.end("a")
    assert conductor.chains == ("b",)
