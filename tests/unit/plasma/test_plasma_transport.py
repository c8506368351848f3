"""Transport: exact currents, sums that can be put together, what is published, and what must be caught."""

import json
import math

import msgspec
import numpy as np
import pytest
from scipy.signal import lfilter

from metalforge.campaign.store.directory import DirectoryLock, DirectoryLockedError
from metalforge.cli.main import app
from metalforge.core.errors import SpecError
from metalforge.native import cpu_engine
from metalforge.native.engine import Motion
from metalforge.plasma import (
    MASS,
    Correlations,
    PlasmaJob,
    PlasmaRun,
    PlasmaSpec,
    begin,
    merged,
    open_box,
    references,
    transport,
)
from metalforge.plasma.observables import STRESSES, energy_tail, series_of
from metalforge.plasma.references import einstein_frequency, melting_gamma
from metalforge.plasma.replicas import read_replicas
from metalforge.plasma.spec import DENSITY
from metalforge.plasma.spectrum import plateau
from metalforge.plasma.transport import left_out

TIME, SPACING, BINS = 200.0, 0.5, 20


def current(tau, segments, seed):
    """Five Ornstein-Uhlenbeck currents of unit variance, (5 segments, samples), and the exact S(0) of their samples."""
    random, keep = np.random.default_rng(seed), math.exp(-SPACING / tau)
    noise = math.sqrt(1 - keep**2) * random.normal(size=(5, segments * round(TIME / SPACING)))
    noise[:, 0] = random.normal(size=5)
    series = lfilter([1.0], [1.0, -keep], noise, axis=1)
    return series.reshape(5 * segments, -1), SPACING * (1 + keep) / (1 - keep)


def power_of(series):
    return (np.abs(np.fft.rfft(series, axis=1)[:, :BINS]) ** 2).mean(axis=0) * SPACING / series.shape[1]


@pytest.fixture(scope="module")
def run():
    """A fluid, followed for a while."""
    made = PlasmaRun(PlasmaSpec(gamma=20, kappa=3, particles=170, seed=4), PlasmaJob(warmup=40, time=800), threads=1)
    made.run()
    return made


@pytest.mark.parametrize("tau", [1.0, 4.0, 8.0])
def test_the_integral_of_an_exact_current_is_found(tau):
    series, exact = current(tau, 40, seed=2)
    found = plateau(power_of(series), len(series), 2 * math.pi / TIME, TIME)
    assert abs(found.log - math.log(exact)) < 3 * found.error
    assert found.error < 0.12


def test_short_segments_are_given_back_what_they_do_not_see():
    # Correlations of 8 in segments of 60 lose 8/60: seen on many of them, of which the noise is 1.4 %.
    series, exact = current(8.0, 1500, seed=3)
    series = series[:, :120]
    power = (np.abs(np.fft.rfft(series, axis=1)[:, :8]) ** 2).mean(axis=0) * SPACING / 120
    found = plateau(power, len(series), 2 * math.pi / 60, 60.0)
    unaware = plateau(power, len(series), 2 * math.pi / 60, 1e9)
    assert found.log == pytest.approx(math.log(exact), abs=0.05)  # what is left is of second order
    assert unaware.log < math.log(exact) - 0.1


def test_a_running_maximum_would_be_caught():
    """The largest value that the running integral ever has is biased; the estimator is not."""
    ours, theirs = [], []
    for seed in range(60):
        series, exact = current(4.0, 1, seed)
        spectrum = (np.abs(np.fft.rfft(series, axis=1)) ** 2).mean(axis=0)
        correlation = np.fft.irfft(spectrum)[: series.shape[1] // 2] / series.shape[1]
        integral = SPACING * (2 * np.cumsum(correlation) - correlation[0])
        ours.append(plateau(power_of(series), len(series), 2 * math.pi / TIME, TIME).log - math.log(exact))
        theirs.append(math.log(integral.max() / exact))
    for biases, fair in ((ours, True), (theirs, False)):
        mean, error = np.mean(biases), np.std(biases) / math.sqrt(len(biases))
        assert bool(abs(mean) < 3 * error) is fair
    assert np.mean(theirs) > 0.2


def test_records_can_be_put_together_in_any_way(run):
    segments = run.segments()
    assert len(segments) == 2
    assert segments[0].time == pytest.approx(380)
    one, two = merged(segments[:1]), merged(segments[::-1])
    assert one == segments[0]
    assert two.segments == 2
    assert transport(run.spec, [[two]]).viscosity.mean == pytest.approx(run.transport().viscosity.mean, rel=1e-12)
    with pytest.raises(SpecError, match="one length"):
        transport(run.spec, [segments, [msgspec.structs.replace(segments[0], time=2 * segments[0].time)]])
    with pytest.raises(SpecError, match="Got none"):
        transport(run.spec, [])


def test_a_jackknife_over_runs_is_that_of_its_definition(run):
    segments = run.segments()
    shifted = [[msgspec.structs.replace(segments[0], diffusion_msd=0.1 + 0.01 * i)] for i in range(9)]
    found = transport(run.spec, shifted)
    wanted = np.std([0.01 * i for i in range(9)], ddof=1) / 3
    assert found.diffusion.error == pytest.approx(wanted, rel=1e-12)
    assert found.runs == 9
    assert transport(run.spec, shifted[:3]).diffusion.error is None
    assert transport(run.spec, shifted[:3]).viscosity.error > 0
    part = (found.diffusion_infinite.mean - found.diffusion.mean) / (
        found.viscosity.mean + found.diffusion_infinite.mean
    )
    assert found.diffusion_infinite.error >= math.hypot(wanted, part * found.viscosity.error) * (1 - 1e-12)


def test_what_a_box_and_its_lags_leave_out_is_that_of_viscous_flow():
    """Yeh and Hummer's where D << nu and momentum has gone round; in large boxes the tail of an endless memory."""
    assert left_out(1e-2, 0.5, 1e-6, 9.0, 4e3, 1e4) == pytest.approx(0.2101 * 1e-2 / (0.5 * 9.0), rel=2e-3)
    temperature, nu, diffusion, length, early, late = 0.01, 0.0405, 0.032, 130.0, 400.0, 410.0
    found = left_out(temperature, nu, diffusion, length, early, late)
    # The memory (2/3) kT/(m n) (4 pi g t)^(-3/2) has a known integral.
    amplitude = 2 / 3 * temperature / (MASS * DENSITY) * (4 * math.pi * (nu + diffusion + found)) ** -1.5
    assert found == pytest.approx(amplitude * 4 / (math.sqrt(early) + math.sqrt(late)), rel=0.01)


def test_displacements_and_velocities_give_one_diffusion_and_wrapped_positions_do_not(run):
    found = run.transport()
    assert found.diffusion.mean == pytest.approx(found.diffusion_vacf.mean, rel=0.05)
    spec, particles = run.spec, begin(run.spec)
    box, wrapped = open_box(spec, cpu_engine(threads=1)), Correlations(spec.particles)
    true = Correlations(spec.particles)
    for _ in range(30):
        seen = particles.advance(box, spec.nve, spec.block_steps, frames=spec.block_frames)
        for x, v in zip(seen.positions, seen.velocities, strict=True):
            true.add(x[None], v[None])
            wrapped.add(x[None] % spec.length, v[None])
    slopes = []
    for kept in (true, wrapped):
        displacement, memory = kept.means()
        slope = (displacement[150] - displacement[50]) / (6 * 50)
        integral = 0.5 * (np.cumsum(memory) - memory / 2 - memory[0] / 2) / 3
        slopes.append(slope / integral[50:151].mean())
    assert slopes[0] == pytest.approx(1, abs=0.1)
    assert not 0.5 < slopes[1] < 1.5


def einstein2(correlations, frame):
    """omega_E^2 from VACF(t)/VACF(0) = 1 - omega_E^2 t^2/2 + ..., at two times."""
    _, memory = correlations.means()
    one, two = ((1 - memory[i] / memory[0]) / ((frame * i) ** 2 / 2) for i in (1, 2))
    return (4 * one - two) / 3


def test_the_curvature_of_the_memory_is_the_energy(run):
    wanted = einstein_frequency(3.0, run.summary().u_over_gamma.mean) ** 2
    assert einstein2(run.correlations, 0.5) == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize(("mass", "cutoff"), [(1.0, None), (MASS, 1e-3)])
def test_a_wrong_mass_and_zero_forces_are_caught_by_it(mass, cutoff):
    """Both conserve energy; zero forces do so best of all."""
    spec = PlasmaSpec(gamma=20, kappa=3, particles=170)
    engine, particles = cpu_engine(threads=1), begin(spec)
    particles.advance(open_box(spec, engine), spec.langevin(), 1000)
    box = engine.particles(1, spec.particles, spec.length, spec.kappa, cutoff or spec.cutoff, 0.5, "f64")
    kept, phi = Correlations(spec.particles), []
    for _ in range(15):
        seen = particles.advance(box, Motion(spec.step_time, mass), spec.block_steps, samples=2, frames=20)
        for x, v in zip(seen.positions, seen.velocities, strict=True):
            kept.add(x[None], v[None])
        _, (sums,) = open_box(spec, engine).measure(particles.positions[None], particles.velocities[None])
        phi.append(sums[0] / spec.particles + energy_tail(spec))
    wanted = einstein_frequency(3.0, np.mean(phi)) ** 2
    found = einstein2(kept, 0.5)
    assert abs(found / wanted - 1) > 0.5
    assert found / wanted == pytest.approx(3.0 if cutoff is None else 0.0, abs=0.6)


def test_the_stress_has_its_sum_rule_and_neither_part_alone_has(run):
    """V <P_xy^2> = n kT^2 + (n kT / 15) <sum_pairs (4 r phi' + r^2 phi'')> / N, of each of the five components."""
    spec, particles, (first, second) = run.spec, run.particles, np.triu_indices(run.spec.particles, 1)
    powers, pairs, temperatures, box = [], [], [], open_box(spec, cpu_engine(threads=1))
    for _ in range(90):
        seen = particles.advance(box, spec.nve, spec.block_steps, samples=100, frames=2)
        series = series_of(spec, seen.sums, 0.0)
        powers.append(np.mean([(series[f"stress_{name}"] ** 2).mean() for name in STRESSES]))
        temperatures.append(2 * series["kinetic"].mean() / (3 * spec.particles - 3))
        for x in seen.positions:
            apart = x[first] - x[second]
            apart -= spec.length * np.round(apart / spec.length)
            r = np.sqrt((apart**2).sum(axis=1))
            r = r[r < spec.cutoff]
            phi = np.exp(-3 * r) / r
            pairs.append((phi * (-4 * (3 * r + 1) + (9 * r**2 + 6 * r + 2))).sum() / spec.particles)
    temperature = np.mean(temperatures)
    kinetic = DENSITY * temperature**2
    wanted = kinetic + DENSITY * temperature / 15 * np.mean(pairs)
    found = spec.length**3 * np.mean(powers)
    error = spec.length**3 * np.std(powers) / math.sqrt(len(powers))
    assert abs(found - wanted) < 3 * error
    assert abs(found - kinetic) > 3 * error  # a stress without its virial
    assert abs(found - (wanted - kinetic)) > 3 * error  # or without its kinetic part


def test_a_crystal_is_not_passed_off_as_a_fluid(tmp_path):
    spec = PlasmaSpec(gamma=1500, kappa=2, particles=432, start="bcc")
    run = PlasmaRun(spec, PlasmaJob(warmup=20, time=60, out=str(tmp_path)), threads=1)
    run.run()
    assert run.crystalline
    assert run.summary().crystalline
    with pytest.raises(SpecError, match="crystal"):
        read_replicas([tmp_path])


def test_a_fluid_is_not_called_a_crystal(run):
    assert not run.crystalline


def test_a_nominal_coupling_is_not_the_measured_one():
    """Without a warm-up the energy of the start goes into heat; what is published is looked up where the run is."""
    run = PlasmaRun(PlasmaSpec(gamma=60, kappa=3, particles=170), PlasmaJob(warmup=0, time=40), threads=1)
    run.run()
    found = run.summary()
    assert abs(found.gamma_measured.mean - 60) > 10 * found.gamma_measured.error
    assert found.references == references(found.gamma_measured.mean, 3.0)
    assert found.references != references(60.0, 3.0)


@pytest.mark.parametrize(
    ("kappa", "gamma", "energy", "diffusion", "viscosity"),
    [
        (1, 14, 1.0733, 0.0957, 0.079),
        (1, 72, 1.0277, 0.0152, 0.112),
        (2, 31, 0.1356, 0.073, 0.055),
        (3, 100, 0.0253, 0.033, 0.034),
    ],
)
def test_published_fits_give_the_published_numbers(kappa, gamma, energy, diffusion, viscosity):
    found = references(gamma, kappa)
    assert found["u_over_gamma"][0].value == pytest.approx(energy, rel=1e-4 if kappa == 1 else 0.007)
    assert found["diffusion_infinite"][0].value == pytest.approx(diffusion, rel=0.02)
    assert found["viscosity"][0].value == pytest.approx(viscosity, rel=0.02)


def test_fits_are_silent_where_they_do_not_hold():
    assert [melting_gamma(k) for k in (0, 1, 2, 3, 4)] == pytest.approx([171.8, 217.4, 440.1, 1185, 3837])
    assert all(one.source != "Caplan, Bauer, Freeman 2022" for one in references(158.0, 2.0)["diffusion_infinite"])
    assert references(476.0, 2.0)["viscosity"] == ()
    assert references(476.0, 2.0)["diffusion_infinite"] == ()


@pytest.mark.parametrize(
    ("start", "side", "kappa", "energy"),
    [
        ("bcc", 7, 3.0, 0.015523),
        ("fcc", 6, 3.0, 0.015473),
        ("bcc", 10, 2.0, 0.105974),
        ("fcc", 8, 2.0, 0.105921),
        ("bcc", 18, 1.0, 1.003294),
    ],
)
def test_lattices_have_their_sums(start, side, kappa, energy):
    particles = {"bcc": 2, "fcc": 4}[start] * side**3
    spec = PlasmaSpec(gamma=1, kappa=kappa, particles=particles, start=start, tol=1e-4)
    box = cpu_engine(threads=1).particles(1, particles, spec.length, kappa, 0.499 * spec.length, 0.1, "f64")
    placed = begin(spec)
    _, (sums,) = box.measure(placed.positions[None], placed.velocities[None])
    assert sums[0] / particles == pytest.approx(energy, abs=1e-6)


def test_the_verb_joins_runs_of_one_point_alone(tmp_path, capsys):
    def kept(name, **changes):
        spec = PlasmaSpec(**{"gamma": 150.0, "kappa": 3.0, "particles": 170, "seed": 1} | changes)
        PlasmaRun(spec, PlasmaJob(warmup=10, time=40, out=str(tmp_path / name)), threads=1).run()
        return str(tmp_path / name)

    one, two, other = kept("one"), kept("two", seed=2), kept("other", gamma=170.0)
    app(["plasma", "transport", one, two, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["transport"]["runs"] == 2
    for name in ("gamma_measured", "diffusion", "diffusion_infinite", "viscosity"):
        assert found["transport"][name]["mean"] > 0
    assert found["references"]["viscosity"][0]["source"]
    for wrong, word in ((other, "gamma"), (one, "same run")):
        with pytest.raises(SpecError, match=word):
            app(["plasma", "transport", one, wrong], standalone_mode=False)


def test_a_folder_has_one_process_and_a_trace_each_sample_once(tmp_path):
    command = ["plasma", "run", "--gamma", "60", "--kappa", "3", "--particles", "170", "--warmup", "10", "--time", "20"]
    trace, out = tmp_path / "trace.jsonl", tmp_path / "run"
    app([*command, "--out", str(out), "--trace", str(trace), "--threads", "1"], standalone_mode=False)
    whole = trace.read_text()
    with DirectoryLock(out), pytest.raises(DirectoryLockedError):
        app(["plasma", "run", "--resume", str(out)], standalone_mode=False)
    with open(trace, "a") as file:  # as a process that was killed after its checkpoint
        file.write(whole.splitlines()[-1] + "\n" + '{"phase": "mea')
    app(["plasma", "run", "--resume", str(out), "--time", "30", "--threads", "1"], standalone_mode=False)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    times = [line["time"] for line in lines if line["phase"] == "measure"]
    assert times == pytest.approx([0.1 * (i + 1) for i in range(300)])
    assert trace.read_text().startswith(whole)


def test_a_trace_is_of_one_run_and_a_resumed_run_of_its_checkpoint(tmp_path):
    command = [
        "plasma",
        "run",
        "--kappa",
        "3",
        "--particles",
        "170",
        "--warmup",
        "10",
        "--time",
        "10",
        "--threads",
        "1",
    ]
    trace, other = tmp_path / "trace.jsonl", tmp_path / "letters.txt"
    app([*command, "--gamma", "60", "--out", str(tmp_path / "a"), "--trace", str(trace)], standalone_mode=False)
    with pytest.raises(SpecError, match="trace"):
        app([*command, "--gamma", "50", "--out", str(tmp_path / "b"), "--trace", str(trace)], standalone_mode=False)
    with pytest.raises(SpecError, match="has --gamma, --out from its checkpoint"):
        app(["plasma", "run", "--resume", str(tmp_path / "a"), "--gamma", "50", "--out", "c"], standalone_mode=False)
    # A checkpoint may name any file: one that is not the run's trace stays as it is.
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    of_another = "".join(json.dumps(line | {"kinetic": 2 * line["kinetic"]}) + "\n" for line in lines)
    for text in ("to whom it may concern\n" * 900, of_another):
        other.write_text(text)
        run = PlasmaRun.resume(tmp_path / "a", threads=1)
        run.job = msgspec.structs.replace(run.job, trace=str(other))
        run.save()
        with pytest.raises(SpecError, match="trace"):
            app(["plasma", "run", "--resume", str(tmp_path / "a"), "--time", "20"], standalone_mode=False)
        assert other.read_text() == text


def test_a_run_says_what_to_doubt_and_a_peak_of_noise_is_not_one_of_structure():
    run = PlasmaRun(PlasmaSpec(gamma=100, kappa=3, particles=200, seed=4), PlasmaJob(warmup=20, time=50), threads=1)
    run.run()
    found = run.summary()
    assert any("shorter than a segment of 380/omega_p" in doubt for doubt in found.doubts)
    # Published 1.26 at 4.62; the largest of single lengths of k is above 2 here.
    assert found.s_max.mean == pytest.approx(1.26, abs=4 * found.s_max.error)
    assert found.s_max.error < 0.3
    assert run.structure_factor[1].max() > 2
    assert references(0.01, 2.0) == {"u_over_gamma": (), "diffusion_infinite": (), "viscosity": ()}
