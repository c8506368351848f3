"""Particles on a GPU: the CPU's forces to rounding, and bits that depend on nothing but a replica's own numbers.

`pytest -m cuda` runs them on a card, `make check-cuda` on the host as one.
"""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.particles import CudaParticles, Tuning
from metalforge.native.engine import Motion, ParticleState
from metalforge.plasma import (
    MASS,
    LostParticleError,
    Particles,
    PlasmaJob,
    PlasmaReplicas,
    PlasmaRun,
    PlasmaSpec,
    begin,
    length_of,
    open_box,
)
from metalforge.plasma.replicas import replicas_of, resumed
from reference.cuda_host import host_engine

ON_CARD = pytest.param("card", marks=pytest.mark.cuda)
ON_HOST = pytest.param("host", marks=pytest.mark.long)
SPEC = PlasmaSpec(gamma=30.0, kappa=3.0, particles=170)


@pytest.fixture(scope="module")
def particle_engines(tmp_path_factory):
    made = {}

    def engine(name):
        if name not in made:
            made[name] = cuda_engine(0) if name == "card" else host_engine(tmp_path_factory.mktemp("plasma"))
        return made[name]

    return engine


@pytest.fixture(params=[ON_HOST, ON_CARD])
def engine(particle_engines, request):
    """The host as a card, and a card."""
    return particle_engines(request.param)


def scattered(n, seed=1):
    random = np.random.default_rng(seed)
    length = length_of(n)
    return length, random.uniform(-0.7 * length, 1.6 * length, (n, 3)), random.normal(size=(n, 3))


def copies(replicas, spec=SPEC):
    """Replicas of a start that differ a little in place and speed."""
    start = begin(spec)
    positions = np.stack([start.positions + 0.1 * r for r in range(replicas)])
    velocities = np.stack([start.velocities * (1 + r) for r in range(replicas)])
    return positions, np.stack([start.boxes] * replicas), velocities


def moved(batch, state, motions, steps=24, **looks):
    """Copies of a state that a batch has moved, and what it saw."""
    positions, boxes, velocities = (array.copy() for array in state)
    seen = batch.advance(ParticleState(positions, boxes, velocities, [0] * len(motions)), motions, steps, **looks)
    return positions, boxes, velocities, seen


@pytest.mark.parametrize(("precision", "near"), [("f64", 1e-14), ("f32", 1e-6)])
@pytest.mark.parametrize(
    ("n", "kappa", "cutoff", "skin"), [(200, 2.0, 4.2, 0.4), (120, 1.0, 3.9, 1.0), (33, 3.0, 2.5, 0.1)]
)
def test_forces_and_sums_are_those_of_the_cpu(engine, n, kappa, cutoff, skin, precision, near):
    # Lists reach farther than half of these boxes: a particle can be near to two images of another.
    length, positions, velocities = scattered(n)
    of = (n, length, kappa, cutoff, skin, precision)
    (wanted,), (row,) = cpu_engine(threads=1).particles(1, *of).measure(positions[None], velocities[None])
    (forces,), (sums,) = engine.particles(1, *of).measure(positions[None], velocities[None])
    assert np.abs(forces - wanted).max() < near * np.abs(wanted).max()
    assert sums[1] == row[1]
    assert np.abs(sums[:8] - row[:8]).max() < near * np.abs(row[:8]).max()
    assert np.abs(sums[8:] - row[8:]).max() < 1e-11


@pytest.mark.parametrize("bath", [False, True])
def test_a_few_steps_are_those_of_the_cpu(engine, bath):
    # Also the random kicks, which are drawn at the same addresses; trajectories part later, as rounding grows.
    motion = SPEC.langevin() if bath else SPEC.nve
    ends = []
    for where in (cpu_engine(threads=1), engine):
        particles, box = begin(SPEC), open_box(SPEC, where)
        particles.step = 7
        seen = particles.advance(box, motion, 24, samples=12, frames=4)
        ends.append((particles.unwrapped, particles.velocities, seen.sums, seen.positions, seen.velocities))
    assert seen.lists > 1  # on the card; cores look further, and make lists less often
    for cpu, card in zip(*ends, strict=True):
        assert np.abs(cpu - card).max() < 1e-10


def test_replicas_have_the_bits_that_they_have_alone(engine):
    motions = [SPEC.langevin(), SPEC.nve, SPEC.langevin(0.3, 90.0)._replace(seed=5, stream=9)]
    state = copies(3)
    of = (SPEC.particles, SPEC.length, SPEC.kappa, SPEC.cutoff, 0.5, "f64")
    together = moved(engine.particles(3, *of), state, motions, samples=6, frames=2)
    assert len({seen.lists for seen in together[3]}) > 1  # they need new lists at other steps
    alone = engine.particles(1, *of)
    for r, motion in enumerate(motions):
        *own, (seen,) = moved(alone, [array[r : r + 1] for array in state], [motion], samples=6, frames=2)
        for one, other in zip(own, together, strict=False):
            assert np.array_equal(one[0], other[r])
        assert all(np.array_equal(a, b) for a, b in zip(seen, together[3][r], strict=True))


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_one_launch_and_three_a_step_give_the_same_bits(engine, precision):
    state, motions = copies(2), [SPEC.langevin(), SPEC.nve]
    ends = []
    for tuning in (Tuning(walk_rounds=1e9), Tuning(walk_rounds=0), Tuning(walk_rounds=0, unroll=4, fine=3)):
        of = (2, SPEC.particles, SPEC.length, SPEC.kappa, SPEC.cutoff, 0.5, precision)
        batch = CudaParticles(engine.card, *of, tuning)
        assert batch.walks == (tuning.walk_rounds > 0)
        *end, seen = moved(batch, state, motions, samples=6)
        ends.append([*end, *(one.sums for one in seen)])
    # Other cells give the same neighbours in another order; nothing else may change a bit.
    assert all(np.array_equal(a, b) for a, b in zip(ends[0], ends[1], strict=True))
    assert all(np.abs(a - b).max() < (1e-9 if precision == "f64" else 1e-3) for a, b in zip(*ends[1:], strict=True))


def test_blocks_of_steps_have_the_bits_wherever_a_run_was_interrupted(engine):
    ends = []
    for again in (False, True):
        particles, box = begin(SPEC), open_box(SPEC, engine)
        for _ in range(3):
            if again:
                box = open_box(SPEC, engine)
            particles.advance(box, SPEC.langevin(), 10)
        ends.append((particles.positions, particles.boxes, particles.velocities))
    assert all(np.array_equal(a, b) for a, b in zip(*ends, strict=True))


def test_time_runs_backwards_on_a_card(engine):
    start, box = begin(SPEC), open_box(SPEC, engine)
    start.advance(box, SPEC.langevin(), 20)
    start.stop_drifting()
    state = Particles(start.positions.copy(), start.boxes.copy(), start.velocities.copy(), start.length)
    state.advance(box, SPEC.nve, 30)
    assert np.abs(state.velocities.sum(axis=0)).max() < 1e-12
    assert np.abs(state.unwrapped - start.unwrapped).max() > 0.1
    state.velocities *= -1
    state.advance(box, SPEC.nve, 30)
    assert np.abs(state.unwrapped - start.unwrapped).max() < 1e-10


def test_crowds_get_longer_lists(engine):
    # All particles in a corner: lists are several times as long as those of an even fluid.
    length, positions, velocities = scattered(120)
    of = (120, length, 2.0, 1.5, 0.1, "f64")
    positions *= 0.25
    (wanted,), _ = cpu_engine(threads=1).particles(1, *of).measure(positions[None], velocities[None])
    (forces,), _ = engine.particles(1, *of).measure(positions[None], velocities[None])
    assert np.abs(forces - wanted).max() < 1e-12 * np.abs(wanted).max()


def test_a_lost_particle_loses_its_replica_alone(engine):
    positions, boxes, velocities = copies(2)
    velocities[1, 0] = 1e6
    of = (SPEC.particles, SPEC.length, SPEC.kappa, SPEC.cutoff, 0.5, "f64")
    motions = [SPEC.nve, SPEC.nve]
    *end, seen = moved(engine.particles(2, *of), (positions, boxes, velocities), motions, 10)
    assert seen[0].lists > 0
    assert seen[1].lists == -1
    assert np.array_equal(end[0][1], positions[1])
    with pytest.raises(LostParticleError, match="dt"):
        Particles(positions[1], boxes[1], velocities[1], SPEC.length).advance(engine.particles(1, *of), SPEC.nve, 10)


def test_wrong_arguments_of_a_card_are_named(engine):
    box = engine.particles(1, 40, 6.0, 1.0, 2.9, 0.2, "f64")
    places, zeros = np.zeros((1, 40, 3)), np.zeros((1, 40, 3))
    with pytest.raises(ValueError, match="positions"):
        box.measure(np.full((1, 40, 3), np.nan), zeros)
    with pytest.raises(ValueError, match="velocities"):
        box.measure(places, np.zeros((1, 39, 3)))
    with pytest.raises(ValueError, match="cutoff"):
        engine.particles(1, 40, 6.0, 1.0, 3.1, 0.2, "f64")
    with pytest.raises(ValueError, match="dt"):
        box.advance(ParticleState(places, np.zeros((1, 40, 3), np.int32), zeros, [0]), [Motion(-0.1, MASS)], 1)


def test_replicas_of_runs_on_a_card_resume_bit_for_bit(engine, tmp_path):
    spec = PlasmaSpec(gamma=60.0, kappa=3.0, particles=170)
    job = PlasmaJob(warmup=0, time=10, out=str(tmp_path))
    runs = [PlasmaRun(one, files, engine=engine) for one, files in replicas_of(spec, job, 2)]
    PlasmaReplicas(runs).run()
    longer = PlasmaReplicas(resumed(tmp_path, time=20, engine=lambda began_on: engine))
    assert {run.engine.name for run in longer.runs} == {"cuda:0"}
    longer.run()
    alone = PlasmaRun(longer.runs[1].spec, PlasmaJob(warmup=0, time=20), engine=engine)
    alone.run()
    assert np.array_equal(alone.particles.unwrapped, longer.runs[1].particles.unwrapped)
    assert all(np.array_equal(column, longer.runs[1].series[name]) for name, column in alone.series.items())
    assert abs(alone.summary().energy_drift_kt) < 1e-2
    with pytest.raises(SpecError, match="cuda:0"):
        PlasmaRun.resume(tmp_path / "replica-0000", threads=1)


@pytest.mark.cuda
def test_a_card_repeats_its_bits_and_keeps_its_energy():
    spec = PlasmaSpec(gamma=158.0, kappa=2.0, particles=4096)
    start, box = begin(spec), open_box(spec, cuda_engine(0))
    start.advance(box, spec.langevin(), 400)
    start.stop_drifting()
    ends = []
    for _ in range(3):
        state = Particles(start.positions.copy(), start.boxes.copy(), start.velocities.copy(), start.length)
        seen = state.advance(box, spec.nve, 400, samples=200)
        ends.append((state.unwrapped, state.velocities, seen.sums))
    for end in ends[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(end, ends[0], strict=True))
    shift = np.exp(-spec.kappa * spec.cutoff) / spec.cutoff
    sums = ends[0][2]
    energy = (sums[:, 0] - shift * sums[:, 1] + MASS / 2 * sums[:, 8:11].sum(axis=1)) / spec.particles * spec.gamma
    assert np.ptp(energy) < 1e-2
