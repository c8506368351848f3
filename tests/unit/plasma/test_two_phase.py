"""Half a crystal beside half a fluid: what the stages of its warm-up do, and that they resume bit for bit."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.rows import ChainFaultError, CountedWarmUp
from metalforge.native import cpu_engine
from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec
from metalforge.plasma.box import places
from metalforge.plasma.trajectory import TrajectoryBatch, TrajectoryRun
from metalforge.plasma.two_phase import MELTING, lower_half, require_stages, stage_of

SPEC = PlasmaSpec(gamma=450.0, kappa=2.0, particles=432, start="two-phase")


def run_of(total=4):
    return TrajectoryRun(SPEC, 20.0, CountedWarmUp(total=total), engine=cpu_engine(threads=1))


def in_plane_order(run, chosen):
    """Return |sum exp(i k r)| / n of wave vectors in the plane of the interfaces, for some particles."""
    side = round((SPEC.particles / 2) ** (1 / 3))
    k = 2 * np.pi * side / SPEC.length * np.array([[1, 1, 0], [1, -1, 0]])
    return float(np.abs(np.exp(1j * run.particles.positions[chosen] @ k.T).mean(axis=0)).mean())


def test_half_is_held_while_the_other_melts_and_cools(tmp_path):
    run = run_of()
    lower = lower_half(places(SPEC), SPEC.length)
    assert lower.sum() == SPEC.particles / 2
    run.step()
    crystal = run.particles.positions.copy()
    assert in_plane_order(run, ~lower) > 0.6
    run.step()
    assert np.array_equal(run.particles.positions[lower], crystal[lower])
    run.save(tmp_path / "half.h5")
    cooled = run.step()
    assert np.array_equal(run.particles.positions[lower], crystal[lower])
    # Three cells of fluid between two faces of a crystal keep some of its order.
    assert in_plane_order(run, lower) - in_plane_order(run, ~lower) > 0.15
    again = TrajectoryRun.load(tmp_path / "half.h5", engine=cpu_engine(threads=1))
    assert again.step() == cooled
    assert again.digest() == run.digest()
    run.step()
    assert not np.array_equal(run.particles.positions[lower], crystal[lower])
    assert run.phase == "measure"
    free = run.step()
    assert free.values["energy_rms"] / SPEC.particles * SPEC.gamma < 2e-2
    assert 0.2 < free.values["order"] < 0.75


def test_stages_follow_each_other():
    seen = [stage_of(SPEC, done, 8) for done in range(8)]
    assert [holds for _, holds in seen] == [False, False, True, True, True, True, False, False]
    noise = np.array([motion.noise for motion, _ in seen])
    assert noise[2] == pytest.approx(noise[0] / np.sqrt(MELTING))
    assert set(np.flatnonzero(noise > noise[0])) == {2, 3}


@pytest.mark.parametrize("total", [0, 3, 6])
def test_a_warm_up_without_whole_stages_is_refused(total):
    with pytest.raises(SpecError, match="4 stages"):
        require_stages(total)


def test_a_single_run_says_who_makes_such_a_start():
    with pytest.raises(SpecError, match="plasma-freezing"):
        PlasmaRun(SPEC, PlasmaJob(warmup=10.0, time=10.0))


def test_halves_that_are_held_and_free_trajectories_move_in_one_batch_as_they_do_alone():
    engine = cpu_engine(threads=1)

    def runs():
        # Of the four stages one begins, one is held, one is free, and one is lost.
        made = []
        for stream, done in enumerate((0, 1, 4, 1)):
            spec = PlasmaSpec(gamma=2000.0, kappa=4.0, particles=128, start="two-phase", stream=stream)
            made.append(TrajectoryRun(spec, 10.0, CountedWarmUp(total=4, done=done), engine=engine))
        made[3].particles.velocities[0] = 1e200
        return made

    together, alone = runs(), runs()
    assert len({run.kind for run in together}) == 1
    before = together[3].digest()
    rows = TrajectoryBatch(together).step(together)
    assert isinstance(rows[3], ChainFaultError)
    assert together[3].digest() == before
    for run, row, other in zip(together[:3], rows, alone, strict=False):
        assert row == other.step()
        assert run.digest() == other.digest()
