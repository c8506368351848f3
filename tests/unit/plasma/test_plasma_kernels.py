"""Pair forces, sums and motion, against all pairs and what mechanics says."""

import math

import numpy as np
import pytest

from metalforge.native import available_levels, cpu_engine
from metalforge.native.engine import PARTICLE_SUMS, Motion, ParticleState
from metalforge.plasma import MASS, Particles, PlasmaSpec, begin, length_of, open_box
from reference.plasma_pairs import forces_and_sums

TENSOR = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "yz": (1, 2), "zx": (2, 0)}


def scattered(n, seed=1):
    random = np.random.default_rng(seed)
    length = length_of(n)
    return length, random.uniform(-0.7 * length, 1.6 * length, (n, 3)), random.normal(size=(n, 3))


def cloud(**changes):
    spec = PlasmaSpec(**{"gamma": 100.0, "kappa": 3.0, "particles": 250} | changes)
    particles = begin(spec)
    box = open_box(spec, cpu_engine(threads=1))
    particles.advance(box, spec.langevin(), 200)
    particles.stop_drifting()
    return spec, particles, box


def energy(spec, particles, box):
    _, (sums,) = box.measure(particles.positions[None], particles.velocities[None])
    row = dict(zip(PARTICLE_SUMS, sums, strict=True))
    shift = math.exp(-spec.kappa * spec.cutoff) / spec.cutoff
    return row["phi"] - shift * row["pairs"] + MASS / 2 * (row["v_xx"] + row["v_yy"] + row["v_zz"])


@pytest.mark.parametrize("build", available_levels())
@pytest.mark.parametrize(
    ("n", "kappa", "cutoff", "skin"), [(500, 2.0, 5.6, 0.4), (200, 1.0, 4.7, 1.0), (33, 3.0, 2.5, 0.1)]
)
def test_lists_give_what_all_pairs_give(build, n, kappa, cutoff, skin):
    length, positions, velocities = scattered(n)
    box = cpu_engine(build, threads=2).particles(1, n, length, kappa, cutoff, skin, "f64")
    (forces,), (sums,) = box.measure(positions[None], velocities[None])
    row = dict(zip(PARTICLE_SUMS, sums, strict=True))
    wanted, phi, pairs, virial = forces_and_sums(positions, length, kappa, cutoff)
    assert np.abs(forces - wanted).max() < 1e-13 * np.abs(wanted).max()
    assert np.abs(forces.sum(axis=0)).max() < 1e-13 * np.abs(wanted).sum()
    assert row["phi"] == pytest.approx(phi, rel=1e-13)
    assert row["pairs"] == pairs
    for name, (a, b) in TENSOR.items():
        assert row[f"w_{name}"] == pytest.approx(virial[a, b], abs=1e-12 * np.abs(virial).max())
        assert row[f"v_{name}"] == pytest.approx(velocities[:, a] @ velocities[:, b], abs=1e-11)
    for a, b in ((0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)):
        current = (velocities[:, b] * np.exp(2j * np.pi / length * positions[:, a])).sum()
        found = row[f"current_{'xyz'[a]}{'xyz'[b]}_re"] + 1j * row[f"current_{'xyz'[a]}{'xyz'[b]}_im"]
        assert found == pytest.approx(current, abs=1e-10)


def test_single_precision_forces_are_near():
    length, positions, velocities = scattered(300)
    (forces,), _ = (
        cpu_engine(threads=1).particles(1, 300, length, 2.0, 5.0, 0.4, "f32").measure(positions[None], velocities[None])
    )
    wanted, *_ = forces_and_sums(positions, length, 2.0, 5.0)
    assert 1e-12 < np.abs(forces - wanted).max() / np.abs(wanted).max() < 1e-4


def test_a_force_is_minus_the_gradient_of_the_energy():
    n, kappa, cutoff = 40, 2.0, 2.7
    length, positions, velocities = scattered(n, seed=3)
    box = cpu_engine(threads=1).particles(1, n, length, kappa, cutoff, 0.3, "f64")
    (forces,), _ = box.measure(positions[None], velocities[None])
    shift, h = math.exp(-kappa * cutoff) / cutoff, 1e-5
    for who, axis in ((0, 0), (7, 1), (21, 2)):
        around = []
        for sign in (1, -1):
            moved = positions.copy()
            moved[who, axis] += sign * h
            _, (sums,) = box.measure(moved[None], velocities[None])
            around.append(sums[0] - shift * sums[1])
        assert forces[who, axis] == pytest.approx((around[1] - around[0]) / (2 * h), rel=1e-5, abs=1e-6)


def test_the_pressure_is_minus_the_derivative_by_volume():
    n, kappa, cutoff = 60, 1.0, 2.6
    length, positions, velocities = scattered(n, seed=4)
    sums, volumes, h = {}, {}, 1e-5
    for scale in (1 - h, 1.0, 1 + h):
        # The cut-off grows with the box, so that the same pairs are within it.
        box = cpu_engine(threads=1).particles(1, n, scale * length, kappa, scale * cutoff, 0.2, "f64")
        _, (sums[scale],) = box.measure(scale * positions[None], velocities[None])
        volumes[scale] = (scale * length) ** 3
    slope = (sums[1 + h][0] - sums[1 - h][0]) / (volumes[1 + h] - volumes[1 - h])
    assert sums[1.0][2:5].sum() / (3 * volumes[1.0]) == pytest.approx(-slope, rel=1e-6)


def test_the_error_of_the_energy_falls_with_the_square_of_the_step():
    spec, start, box = cloud()
    errors = []
    for dt in (0.08, 0.04, 0.02):
        state = Particles(start.positions.copy(), start.boxes.copy(), start.velocities.copy(), start.length)
        before = energy(spec, state, box)
        seen = []
        for _ in range(8):
            state.advance(box, Motion(dt, MASS), round(0.4 / dt))
            seen.append(energy(spec, state, box) - before)
        errors.append(np.abs(seen).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.3)


def test_time_runs_backwards_and_momentum_stays():
    spec, start, box = cloud()
    state = Particles(start.positions.copy(), start.boxes.copy(), start.velocities.copy(), start.length)
    state.advance(box, spec.nve, 100)
    assert np.abs(state.velocities.sum(axis=0)).max() < 1e-12
    assert np.abs(state.unwrapped - start.unwrapped).max() > 0.1
    state.velocities *= -1
    state.advance(box, spec.nve, 100)
    assert np.abs(state.unwrapped - start.unwrapped).max() < 1e-8


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_the_same_bits_for_any_number_of_threads(precision):
    spec = PlasmaSpec(gamma=30.0, kappa=3.0, particles=700, precision=precision)
    ends = []
    for threads in (1, 2, 5):
        particles, box = begin(spec), open_box(spec, cpu_engine(threads=threads))
        seen = particles.advance(box, spec.langevin(), 120, samples=6, frames=3)
        assert seen.lists > 2
        ends.append((particles.unwrapped, particles.velocities, seen.sums, seen.positions, seen.velocities))
    for end in ends[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(end, ends[0], strict=True))


def test_two_particles_on_a_line_keep_to_their_orbit():
    # Head on, in a box in which nothing else is: energy gives the distance of closest approach.
    kappa, length, speed = 1.0, 20.0, 0.4
    box = cpu_engine(threads=1).particles(1, 2, length, kappa, 9.5, 0.5, "f64")
    places = np.array([[5.0, 5.0, 5.0], [11.0, 5.0, 5.0]])
    state = Particles(places, np.zeros((2, 3), np.int32), np.array([[speed, 0, 0], [-speed, 0, 0]]), length)
    energy = math.exp(-kappa * 6) / 6 + MASS * speed**2
    nearest = 1e9
    for _ in range(120):
        state.advance(box, Motion(0.01, MASS), 10)
        nearest = min(nearest, abs(state.unwrapped[1, 0] - state.unwrapped[0, 0]))
    low, high = 1e-3, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if math.exp(-kappa * middle) / middle < energy else (middle, high)
    assert nearest == pytest.approx(low, rel=2e-3)
    assert state.velocities[0, 0] < -0.3  # it came back


def test_a_bath_has_its_temperature():
    spec = PlasmaSpec(gamma=4.0, kappa=3.0, particles=400)
    particles, box = begin(spec), open_box(spec, cpu_engine(threads=1))
    seen = particles.advance(box, spec.langevin(), 600, samples=60)
    kinetic = MASS * seen.sums[20:, 8:11].sum(axis=1) / (3 * spec.particles)
    assert 1 / kinetic.mean() == pytest.approx(spec.gamma, rel=0.05)
    # Without a bath a start that is out of equilibrium finds another temperature, which is why it is measured.
    particles = begin(spec)
    seen = particles.advance(box, spec.nve, 600, samples=60)
    assert MASS * seen.sums[20:, 8:11].sum(axis=1).mean() / (3 * spec.particles) != pytest.approx(
        1 / spec.gamma, rel=0.05
    )


def test_wrong_arguments_are_named():
    box = cpu_engine(threads=1).particles(1, 40, 6.0, 1.0, 2.9, 0.2, "f64")
    places, zeros = np.zeros((1, 40, 3)), np.zeros((1, 40, 3))
    with pytest.raises(ValueError, match="positions"):
        box.measure(np.full((1, 40, 3), np.nan), zeros)
    with pytest.raises(ValueError, match="velocities"):
        box.measure(places, np.zeros((1, 39, 3)))
    with pytest.raises(ValueError, match="cutoff"):
        cpu_engine(threads=1).particles(1, 40, 6.0, 1.0, 3.1, 0.2, "f64")
    with pytest.raises(ValueError, match="dt"):
        box.advance(ParticleState(places, np.zeros((1, 40, 3), np.int32), zeros, [0]), [Motion(-0.1, 3.0)], 1)
