"""The plasma's numbers against what is published, against LAMMPS, and boxes of different sizes against each other."""

import math

import numpy as np
import pytest

from experiments.lammps import Lammps, lammps_segments
from metalforge.native import cpu_engine
from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec, begin, open_box, references, transport
from metalforge.plasma.references import einstein_frequency
from metalforge.plasma.spec import length_of

pytestmark = pytest.mark.long
SEGMENTS = 8


def followed(gamma, kappa, particles, *, segments=SEGMENTS, **more):
    spec = PlasmaSpec(gamma=gamma, kappa=kappa, particles=particles, **more)
    run = PlasmaRun(spec, PlasmaJob(warmup=100, time=segments * spec.segment_blocks * spec.block_time))
    run.run()
    return run


@pytest.mark.parametrize(
    ("kappa", "gamma", "n", "s_max", "at"), [(3, 100, 500, 1.26, 4.62), (2, 158, 500, 1.946, 4.33)]
)
def test_structure_and_energy_are_those_of_the_literature(kappa, gamma, n, s_max, at):
    """S_max of 10,000 particles: Dense Plasma Properties Database of the Murillo group."""
    run = followed(gamma, kappa, n, segments=3, seed=3)
    found = run.summary()
    k, structure = run.structure_factor
    # The largest of many noisy ones is too large: the mean of those near the peak.
    assert structure[np.abs(k - at) < 0.3].mean() == pytest.approx(s_max, rel=0.1)
    published = references(found.gamma_measured.mean, kappa)["u_over_gamma"][0].value
    assert found.u_over_gamma.mean == pytest.approx(published, rel=0.025)  # the fit's own: 1.8 % at weak coupling
    assert abs(found.energy_drift_kt) < 1e-3
    assert found.energy_rms_kt < 1e-2
    _, memory = run.correlations.means()
    one, two = ((1 - memory[i] / memory[0]) / ((0.5 * i) ** 2 / 2) for i in (1, 2))
    assert (4 * one - two) / 3 == pytest.approx(einstein_frequency(kappa, found.u_over_gamma.mean) ** 2, rel=0.02)


def test_boxes_of_different_sizes_agree_on_diffusion_without_borders():
    sizes = (170, 500, 1500)
    runs = [followed(100, 3, n, seed=n).transport() for n in sizes]
    # At one coupling: D* goes as Gamma^-1.3 here.
    scale = [(run.gamma_measured.mean / 100) ** 1.3 for run in runs]
    boxes = [run.diffusion.mean * s for run, s in zip(runs, scale, strict=True)]
    limits = [run.diffusion_infinite.mean * s for run, s in zip(runs, scale, strict=True)]
    errors = [run.diffusion_infinite.error * s for run, s in zip(runs, scale, strict=True)]
    assert boxes[0] < boxes[2]
    assert all(limit - box > 3 * error for limit, box, error in zip(limits, boxes, errors, strict=True))
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert abs(limits[i] - limits[j]) < 3 * math.hypot(errors[i], errors[j]) + 0.01 * limits[2]
    # As in a liquid, where D << nu, they would not: the eta* of long runs, docs/tables/transport.md.
    liquid = [box + 0.2101 / (100 * 0.0405 * length_of(n)) for box, n in zip(boxes, sizes, strict=True)]
    assert liquid[0] - liquid[2] > 4 * math.hypot(runs[0].diffusion.error, runs[2].diffusion.error)


def test_lammps_has_the_same_forces():
    spec = PlasmaSpec(gamma=158, kappa=2, particles=400)
    particles, box = begin(spec), open_box(spec, cpu_engine(threads=1))
    particles.advance(box, spec.langevin(), 200)
    wanted, _ = box.measure(particles.positions, particles.velocities)
    with Lammps(spec, particles) as peer:
        assert np.abs(peer.forces() - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize(("kappa", "gamma", "n"), [(2, 158, 340), (3, 100, 170)])
def test_lammps_has_the_same_transport(kappa, gamma, n):
    """From the end of the same warm-up, so at the same energy."""
    run = followed(gamma, kappa, n, segments=16, seed=5)
    start = PlasmaRun(run.spec, PlasmaJob(warmup=100, time=10))
    start.run()
    ours, theirs = run.transport(), transport(run.spec, [lammps_segments(run.spec, start.particles, 6)])
    for name in ("gamma_measured", "diffusion", "diffusion_infinite", "viscosity"):
        one, two = getattr(ours, name), getattr(theirs, name)
        assert abs(one.mean - two.mean) < 3 * math.hypot(one.error, two.error), name
