"""A conductor over real weights: carried states, spreads, a device; and the worker with it beside a chain."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from metalforge.conductor.features import LARGEST, SCHEMA, ChainContext, FrameMaker
from metalforge.conductor.heuristics import rejection_probability
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.questions import ComingTrajectory, HeadQuestion
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.worker import Worker
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.running import predict
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice

CONTEXT = ChainContext(beta=5.2, dims=(4, 4, 4, 2), algorithm="hmc", start="cold")
COLUMNS = (
    "plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im", "delta_h", "delta_h_quarter", "accepted", "n_steps",
)  # fmt: skip
STEPS, UNTESTED = 5, 6


def network(units=48):
    """A network whose rejection head rises with dH at a quarter, as it should; the others say something."""
    rng = np.random.default_rng(3)
    made = make_esn(units, len(SCHEMA), seed=1, leak=0.3, input_scaling=0.15, dtype=np.float32, features=SCHEMA)
    w_out = 0.05 * rng.standard_normal((CONDUCTOR_11.width, units + len(SCHEMA)))
    row = CONDUCTOR_11.span("rejection").start
    w_out[row] = 0.0
    w_out[row, units + [f.name for f in SCHEMA.features].index("delta_h_quarter")] = 0.5
    bias = np.zeros(CONDUCTOR_11.width, np.float32)
    bias[row] = 0.5
    made = made.with_readout(w_out.astype(np.float32), bias, passthrough=True, heads=CONDUCTOR_11)
    return replace(made, ranges=Ranges(LARGEST, 1.0))


WEIGHTS = network()


def ran(seed, updates):
    """Rows of an HMC chain, by column, and the phases of its rows."""
    hmc = HmcSpec(tau=1.0, n_steps=STEPS, integrator="leapfrog")
    spec = ChainSpec(dims=CONTEXT.dims, beta=CONTEXT.beta, algorithm="hmc", seed=seed, start="cold", hmc=hmc)
    run = ChainRun(Chain(spec, threads=1), WarmUp(total=UNTESTED, untested=UNTESTED), COLUMNS)
    for _ in range(updates):
        run.step()
    return run.log


@pytest.fixture(scope="module")
def log():
    return ran(5, 60)


@pytest.fixture(scope="module")
def frames(log):
    maker = FrameMaker(CONTEXT)
    return np.concatenate([maker.push(s.phase, s.columns).values for s in log.segments(0)])


@pytest.fixture
def conductor():
    return NetworkConductor(WEIGHTS)


def probability(said, head="rejection"):
    return said[head][..., -1].tolist()


# --- reading ---------------------------------------------------------------------------------------------------------


def test_readings_along_a_chain_are_those_of_training(conductor, frames):
    """Block by block what a whole series gives, which is how heads are fitted."""
    outputs = predict(WEIGHTS, frames.astype(np.float32))
    found = [conductor.observe("a", frames[i : i + 7]) for i in range(0, len(frames), 7)]
    assert np.concatenate([f["deconfinement"] for f in found])[:, 0] == pytest.approx(
        _decoded(outputs, "deconfinement"), rel=1e-5, abs=1e-6
    )
    assert set(found[0]) == set(CONDUCTOR_11.names)


def _decoded(outputs, head):
    spec = CONDUCTOR_11[head]
    raw = outputs[:, CONDUCTOR_11.span(head).start].astype(np.float64)
    bent = {"identity": raw, "sigmoid": 1 / (1 + np.exp(-raw)), "relu": np.maximum(raw, 0), "tanh": np.tanh(raw)}
    return spec.offset + spec.scale * bent[spec.activation]


def test_blocks_of_any_length_are_read_alike_bit_for_bit(frames):
    whole, cut = NetworkConductor(WEIGHTS), NetworkConductor(WEIGHTS)
    alone = np.concatenate([cut.observe("a", frame[None]).vector for frame in frames])
    assert np.array_equal(whole.observe("a", frames).vector, alone)


def test_a_frame_half_way_is_read_on_top_of_the_carried_state_and_changes_nothing(conductor, frames):
    conductor.observe("a", frames[:10])
    seen, again = conductor.read("a", frames[10]), conductor.read("a", frames[10])
    alone = conductor.read("other", frames[10])
    then = conductor.observe("a", frames[10:11])
    assert probability(seen, "phase") == probability(again, "phase") == probability(then, "phase")[0]
    assert probability(seen, "phase") != probability(alone, "phase")
    assert conductor.chains == ("a",)


def test_chains_do_not_touch_each_other_and_end(conductor, frames):
    alone = [probability(conductor.observe("a", frame[None])) for frame in frames[:6]]
    conductor.end("a")
    conductor.end("never seen")
    mixed = []
    for one, other in zip(frames[:6], frames[6:12], strict=True):
        mixed.append(probability(conductor.observe("a", one[None])))
        conductor.observe("b", other[None])
    assert mixed == alone


def test_more_chains_than_there_is_room_for_are_refused_and_old_ones_go_on(frames):
    conductor = NetworkConductor(WEIGHTS, chains=2)
    conductor.observe("a", frames[:1])
    conductor.observe("b", frames[:1])
    with pytest.raises(SpecError, match="2 chains are open and `c` would be one more"):
        conductor.observe("c", frames[:1])
    conductor.observe("a", frames[1:2])
    conductor.end("b")
    conductor.observe("c", frames[:1])
    assert conductor.chains == ("a", "c")


def test_a_reading_has_the_noise_of_its_head_as_spread(log):
    question = HeadQuestion(head="rejection", chain="c", of=ComingTrajectory(phase="warmup", n_steps=STEPS))
    for spreads, wanted in (({"rejection": 0.2, "phase": float("nan")}, 0.2), ({}, None)):
        with Worker(NetworkConductor(WEIGHTS, spreads=spreads), threaded=False) as worker:
            worker.begin("c", CONTEXT)
            assert worker.ask(question).get().spread == wanted


def test_weights_that_do_not_fit_are_refused():
    other = msgspec.structs.replace(SCHEMA, name="others", version=3)
    with pytest.raises(SpecError, match=r"'others' version 3, .*'metalforge-features-2' version 2"):
        NetworkConductor(replace(WEIGHTS, features=other))
    with pytest.raises(SpecError, match="head layout"):
        NetworkConductor(make_esn(8, len(SCHEMA), seed=1, features=SCHEMA))
    with pytest.raises(UnknownNameError, match="rejektion"):
        NetworkConductor(WEIGHTS, spreads={"rejektion": 0.1})
    with pytest.raises(SpecError, match="frames"):
        NetworkConductor(WEIGHTS).observe("a", np.zeros((2, 3)))


# --- the device ------------------------------------------------------------------------------------------------------


def test_weights_without_calibration_are_refused_on_a_device():
    """Inputs reach 5; lines that end at 1 would clamp them, and readings would be off by their own spread."""
    with EmulatedDevice() as device, pytest.raises(SpecError, match="how large"):
        NetworkConductor(replace(WEIGHTS, ranges=None), device=device)
    NetworkConductor(replace(WEIGHTS, ranges=None)).close()  # software needs none


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_emulated_device_reads_as_software_does(frames, calibrated):
    """With ranges from chains, and with those that features are bounded by; blocks as one by one."""
    calibration = frames if calibrated else None
    software = NetworkConductor(WEIGHTS)
    with (
        EmulatedDevice() as device,
        NetworkConductor(WEIGHTS, device=device, calibration=calibration) as chip,
    ):
        one, other = software.observe("a", frames[:15]), chip.observe("a", frames[:15])
        assert probability(other) == pytest.approx(probability(one), abs=0.05)
        alone = np.concatenate([chip.observe("b", frame[None]).vector for frame in frames[:15]])
        assert np.array_equal(other.vector, alone)
        assert len(device.slots()) == 2
        assert chip.processor_s > 0
    assert device.slots() == ()


# --- the worker beside a real chain ----------------------------------------------------------------------------------


class Producer:
    """Runs HMC, tells the worker of every trajectory, and asks about its rejection at a quarter of its steps."""

    def __init__(self, worker, name, seed):
        self.worker, self.name, self.asked, self.answers = worker, name, None, []
        hmc = HmcSpec(tau=1.0, n_steps=STEPS, integrator="leapfrog")
        spec = ChainSpec(dims=CONTEXT.dims, beta=CONTEXT.beta, algorithm="hmc", seed=seed, start="cold", hmc=hmc)
        self.run = ChainRun(Chain(spec, threads=1), WarmUp(total=UNTESTED, untested=UNTESTED), COLUMNS)
        worker.begin(name, CONTEXT)

    def update(self):
        phase = self.run.phase
        row = self.run.step(at_quarter=lambda delta_h: self._look(phase, delta_h))
        answer = self.asked.get()
        self.answers.append(answer)
        if row.tested:
            self.worker.outcome(answer.id, 1 - row.values["accepted"])
        columns = {name: [column[-1]] for name, column in self.run.log.columns.items()}
        self.worker.tell(self.name, row.update, phase, columns)

    def _look(self, phase, delta_h):
        coming = ComingTrajectory(phase=phase, n_steps=STEPS, delta_h_quarter=delta_h)
        baseline = rejection_probability(delta_h)
        self.asked = self.worker.ask(
            HeadQuestion(head="rejection", chain=self.name, of=coming, baseline=baseline, loss="log")
        )


def test_the_worker_beside_a_real_chain_earns_trust_and_says_what_training_would(frames):
    with Worker(NetworkConductor(WEIGHTS)) as worker:
        producer = Producer(worker, "hmc", seed=5)
        for _ in range(60):
            producer.update()
        therm = worker.ask(HeadQuestion(head="thermalization", chain="hmc", of=50)).get()
        standing = worker.trust.standing("rejection")
    sources = [answer.source for answer in producer.answers]
    assert sources[:20] == ["baseline"] * 20  # nobody is believed before twenty outcomes
    assert standing.trusted
    assert sources[-1] == "head"
    assert therm.why == "untrusted: 0 of 20 pairs"
    # What the head said half way is what training would have said of the whole chain.
    offline = NetworkConductor(WEIGHTS).observe("hmc", frames)["rejection"][:, 0]
    assert [answer.said["rejection"] for answer in producer.answers] == offline.tolist()


def test_a_chain_that_is_told_again_from_its_first_row_is_read_alike_bit_for_bit(log):
    rows = range(20)

    def said(worker):
        return [worker.ask(HeadQuestion(head="phase", chain="hmc", of=row)).get().said for row in rows]

    def tell(worker, begin, end):
        for segment in log.segments(begin):
            count = min(len(segment.columns["plaquette"]), max(end - segment.first, 0))
            if count:
                columns = {name: values[:count] for name, values in segment.columns.items()}
                worker.tell("hmc", segment.first, segment.phase, columns)

    with Worker(NetworkConductor(WEIGHTS)) as worker:
        heard = []
        for cut in (0, 1, 7, 19):
            worker.begin("hmc", CONTEXT)
            tell(worker, 0, cut)
            tell(worker, cut, 20)
            heard.append(said(worker))
    assert heard[1:] == heard[:-1]
    assert len(heard[0][0]) == len(CONDUCTOR_11.names)


def test_a_chain_that_ended_is_forgotten_by_the_network_too(conductor, log):
    columns = {name: values[:1] for name, values in log.columns.items()}
    with Worker(conductor) as worker:
        for name in ("a", "b"):
            worker.begin(name, CONTEXT)
            worker.tell(name, 0, "measure", columns)
        worker.end("a")
    assert conductor.chains == ("b",)
