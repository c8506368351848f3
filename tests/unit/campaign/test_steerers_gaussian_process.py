"""The Gaussian process: its paths against the closed form, its choice against brute force, its worth against a grid."""

import time

import msgspec
import numpy as np
import pytest

from metalforge.campaign.steerers import posterior
from metalforge.campaign.steerers.gaussian_process import GaussianProcess
from metalforge.campaign.steerers.posterior import Curves, find_peaks, fit_processes
from metalforge.campaign.steerers.uniform import Gaps, Uniform
from metalforge.core.errors import SpecError
from metalforge.core.steering import Observation
from metalforge.core.threads import one_thread
from metalforge.lattice.campaign import Lattice
from reference.posterior_peaks import peak_of

REACH = 0.0156
"""Of 8^3 x 4."""


def lorentz(beta, center, width=0.038):
    """A susceptibility like that of 8^3 x 4: height 1.33 over a background of 0.05, the upper flank broader."""
    skewed = width * np.exp(0.15 * np.tanh((beta - center) / width))
    return 0.05 + 1.28 / (1 + ((beta - center) / skewed) ** 2)


def measure(curve, beta, center, relative, rng, name):
    """A mean of squares: gamma noise of this relative size, and an error that is itself uncertain by 15 %."""
    shape = 1 / relative**2
    value = float(curve(beta, center)) * rng.gamma(shape) / shape
    return Observation(coordinate=beta, value=value, error=value * relative * np.exp(0.15 * rng.normal()), id=name)


def told(betas, *, low=5.4, high=6.0, relative=0.1, seed=0, reach=REACH, **settings):
    rng = np.random.default_rng(seed)
    steerer = GaussianProcess(low, high, reach=reach, **settings)
    steerer.tell([measure(lorentz, b, 5.69, relative, rng, str(i)) for i, b in enumerate(betas)])
    return steerer


@pytest.fixture
def one_process(monkeypatch):
    """Only the likeliest (l, a), so that the closed form applies."""
    monkeypatch.setattr(posterior, "COMPONENTS", 1)


@pytest.fixture
def single_thread():
    with one_thread():
        yield


def closed_form(x, y, noise, length, amplitude, at):
    """Posterior mean and covariance by the textbook (Rasmussen and Williams, equations 2.23 and 2.24)."""

    def kernel(a, b):
        r = np.sqrt(5) * np.abs(a[:, None] - b[None, :]) / length
        return amplitude**2 * (1 + r + r**2 / 3) * np.exp(-r)

    inverse = np.linalg.inv(kernel(x, x) + np.diag(noise))
    cross = kernel(at, x)
    return cross @ inverse @ y, kernel(at, at) - cross @ inverse @ cross.T


def fitted(relative=0.2):
    rng = np.random.default_rng(4)
    x = np.array([0.05, 0.2, 0.35, 0.45, 0.5, 0.6, 0.8, 0.95])
    seen = [measure(lorentz, 5.4 + 0.6 * p, 5.69, relative, rng, str(i)) for i, p in enumerate(x)]
    processes = fit_processes(seen, x)
    y, noise, _ = posterior.logarithms(seen)
    best = processes.components[0]
    return processes, (x, y, noise, best.length, best.amplitude)


def test_paths_have_the_mean_and_covariance_of_the_closed_form(one_process):
    processes, process = fitted()
    at = np.linspace(0, 1, 15)
    curves = Curves(processes, at, 15, 20_000, np.random.default_rng(1))
    mean, covariance = closed_form(*process, at)
    scale = process[-1]
    # 20,000 paths: the mean to 0.7 % of their spread, the covariance to 1 %; 5 sigma each.
    assert np.abs(curves.paths.mean(axis=1) - mean).max() < 0.035 * scale
    assert np.abs(np.cov(curves.paths) - covariance).max() < 0.05 * scale**2


def test_a_believed_point_shrinks_the_paths_as_a_measured_one_would(one_process):
    processes, (x, y, noise, length, amplitude) = fitted()
    at = np.linspace(0, 1, 15)
    curves = Curves(processes, at, 15, 20_000, np.random.default_rng(1))
    before, _ = closed_form(x, y, noise, length, amplitude, at)
    for index in (4, 10):
        curves.believe(index, 0.03)
    x, y, noise = np.append(x, at[[4, 10]]), np.append(y, before[[4, 10]]), np.append(noise, [0.03, 0.03])
    mean, covariance = closed_form(x, y, noise, length, amplitude, at)
    assert mean == pytest.approx(before, abs=1e-9)
    assert np.abs(curves.paths.mean(axis=1) - mean).max() < 0.035 * amplitude
    assert np.abs(np.cov(curves.paths) - covariance).max() < 0.05 * amplitude**2


def test_points_that_are_believed_together_shrink_the_paths_as_one_after_another(one_process):
    steerer = told(np.linspace(5.45, 5.95, 6))
    one, other = (steerer._curves([]) for _ in range(2))
    places, noise = np.array([40, 90, 95]), np.array([0.02, 0.01, 0.03])
    one.believe_all(places, noise)
    for place, each in zip(places, noise, strict=True):
        other.believe(int(place), float(each))
    assert one._covariances[0] == pytest.approx(other._covariances[0], abs=1e-8)
    assert one.paths.std(axis=1) == pytest.approx(other.paths.std(axis=1), rel=0.2)


def test_the_maximum_of_a_parabola_is_found_between_grid_points_and_ends_count():
    grid = np.linspace(0, 1, 41)
    tops = np.array([0.31, 0.5, 0.777, 0.012])
    paths = np.column_stack([-((grid[:, None] - tops) ** 2), grid, -grid, -np.exp(grid), -np.exp(-grid)])
    assert find_peaks(grid, paths) == pytest.approx([*tops, 1, 0, 0, 1], abs=1e-9)


def test_the_logarithm_of_a_noisy_mean_is_not_biased():
    rng = np.random.default_rng(8)
    shape = 1 / 0.35**2
    values = 2.0 * rng.gamma(shape, size=4000) / shape
    seen = [Observation(coordinate=5.7, value=v, error=0.35 * v, id=str(i)) for i, v in enumerate(values)]
    noise = np.log1p(0.35**2)
    y = np.log(values) + noise / 2
    # 4000 logarithms scatter by 0.006; the plain one is off by ten times that.
    assert y.mean() == pytest.approx(np.log(2.0), abs=0.025)
    assert np.log(values).mean() < np.log(2.0) - 0.04
    shifted, variances, _ = posterior.logarithms(seen)
    assert shifted + y.mean() == pytest.approx(y, abs=1e-9)
    assert variances == pytest.approx(np.full(4000, noise))


def test_the_peak_of_an_exact_curve_is_found():
    grid = np.linspace(5.41, 5.99, 30)
    steerer = GaussianProcess(5.4, 6.0, reach=REACH)
    steerer.tell([Observation(coordinate=b, value=float(lorentz(b, 5.69)), error=0.0, id=str(b)) for b in grid])
    dense = np.linspace(5.6, 5.8, 20_001)
    truth = dense[lorentz(dense, 5.69).argmax()]
    peak = peak_of(steerer)
    assert peak.coordinate == pytest.approx(truth, abs=0.002)
    assert peak.error < 0.003


def test_a_point_with_a_large_error_hardly_moves_the_peak():
    steerer = told(np.linspace(5.45, 5.95, 12))
    before = peak_of(steerer).coordinate
    lucky = Observation(coordinate=5.9, value=3.0, error=0.1, id="lucky")
    steerer.tell([Observation(coordinate=5.9, value=3.0, error=9.0, id="lucky")])
    assert peak_of(steerer).coordinate == pytest.approx(before, abs=0.02)
    steerer.tell([lucky])
    assert peak_of(steerer).coordinate == pytest.approx(5.9, abs=0.03)


def test_warm_up_that_costs_sends_points_back_to_measured_beta():
    betas = np.linspace(5.42, 5.98, 15)
    dear = told(betas, fresh_cost=50.0).ask(2)
    assert all(np.abs(betas - s.coordinate).min() < 1e-9 for s in dear)
    cheap = told(betas).ask(2)
    assert any(np.abs(betas - s.coordinate).min() > 1e-3 for s in cheap)


def test_what_is_pending_is_not_asked_for_again_however_often():
    steerer = told(np.linspace(5.42, 5.98, 10), grid=61, paths=64)
    pending = []
    for _ in range(61):
        if not (new := steerer.ask(1, pending)):
            break
        assert not pending or np.abs(np.array(pending) - new[0].coordinate).min() > 0.004
        pending.append(new[0].coordinate)
    assert len(pending) >= 40


def test_exact_points_without_cost_do_not_break_the_choice():
    steerer = GaussianProcess(0.0, 1.0, reach=0.02, initial=3)
    steerer.tell(
        [Observation(coordinate=b, value=2 - abs(b - 0.5), error=0, cost=0, id=str(b)) for b in (0.1, 0.4, 0.5, 0.9)]
    )
    steerer.tell([Observation(coordinate=0.7, value=1.8, error=0.0, cost=8.0, id="dear")])
    assert len({s.coordinate for s in steerer.ask(3, [0.4, 0.1])}) == 3


def test_many_workers_start_spread_out_before_anything_is_known():
    betas = sorted(s.coordinate for s in GaussianProcess(0.0, 1.0, reach=0.02).ask(5))
    assert betas == pytest.approx((np.arange(5) + 0.5) / 5)
    many = sorted(s.coordinate for s in GaussianProcess(0.0, 1.0, reach=0.02).ask(9))
    assert len(set(many)) == 9
    assert np.diff([0.0, *many, 1.0]).max() < 0.25


def test_an_ask_with_forty_points_takes_less_than_fifty_milliseconds():
    steerer = told(np.linspace(5.41, 5.99, 40))
    seconds = []
    for i in range(5):
        steerer.tell([Observation(coordinate=5.7, value=1.2, error=0.1, id="again", cost=float(i))])
        start = time.process_time()
        steerer.ask(1, [5.65, 5.72])
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05


def test_a_crowd_of_chains_is_asked_for_in_time_and_stays_at_the_peak():
    """A thousand chains and as many under way: kept apart, those would fill the grid and leave nothing at the peak."""
    rng = np.random.default_rng(4)
    steerer = GaussianProcess(5.4, 6.0, reach=REACH, fresh_cost=1.3)
    betas = np.concatenate([np.linspace(5.42, 5.98, 14), 5.69 + np.linspace(-0.05, 0.05, 50)])
    steerer.tell([measure(lorentz, float(betas[i % 64]), 5.69, 0.1, rng, str(i)) for i in range(1000)])
    pending = [float(beta) for beta in rng.choice(betas, 1000)]
    steerer.ask(1, pending)
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        (found,) = steerer.ask(1, pending)
        best = min(best, time.thread_time() - began)
    assert best < 0.05
    assert abs(found.coordinate - 5.69) < 0.03
    assert abs(peak_of(steerer).coordinate - 5.69) < 0.005


def test_paths_that_are_kept_between_asks_give_what_paths_drawn_anew_give():
    rng = np.random.default_rng(7)
    chains = [measure(lorentz, float(beta), 5.69, 0.1, rng, str(i)) for i, beta in enumerate(rng.uniform(5.5, 5.9, 90))]
    kept = GaussianProcess(5.4, 6.0, reach=REACH, fresh_cost=1.3)
    kept.tell(chains)
    under_way: list[float] = []
    for turn in range(4):
        if turn == 2:
            chains[3] = msgspec.structs.replace(chains[3], value=2 * chains[3].value)
            kept.tell([chains[3]])
        anew = GaussianProcess(5.4, 6.0, reach=REACH, fresh_cost=1.3)
        anew.tell(chains)
        found = kept.ask(2, under_way)
        assert found == anew.ask(2, under_way)
        assert peak_of(kept) == peak_of(anew)
        under_way += [one.coordinate for one in found]
    assert len(set(under_way)) > 1


def test_a_crowd_that_knows_nothing_shares_its_first_points():
    steerer = GaussianProcess(5.4, 6.0, reach=REACH)
    asked: list[float] = []
    for _ in range(200):
        asked.append(steerer.ask(1, asked)[0].coordinate)
    counts = np.unique(asked, return_counts=True)[1]
    assert len(counts) == 64
    assert counts.max() - counts.min() <= 1


def test_values_and_settings_that_make_no_sense_are_refused():
    steerer = GaussianProcess(5.4, 6.0, reach=REACH)
    with pytest.raises(SpecError, match=r"Got 0\.0 .*`empty`"):
        steerer.tell([Observation(coordinate=5.5, value=0.0, error=0.1, id="empty")])
    assert len(steerer.history) == 0


def carried(make, seeds=6, blocks=30):
    """The samples that blocks placed by a steerer carry to the peak, on average."""
    found = []
    for seed in range(seeds):
        center = 5.69 + np.random.default_rng([seed, 5]).uniform(-0.03, 0.03)
        rng, steerer = np.random.default_rng([seed, 77]), make(seed)
        spent: dict[float, int] = {}
        for _ in range(blocks):
            beta = steerer.ask(1)[0].coordinate
            spent[beta] = spent.get(beta, 0) + 1
            seen = measure(lorentz, beta, center, 0.3 / np.sqrt(spent[beta]), rng, f"{beta}")
            steerer.tell([msgspec.structs.replace(seen, cost=float(spent[beta]))])
        found.append(sum(n * np.exp(-(((beta - center) / REACH) ** 2)) for beta, n in spent.items()))
    return np.mean(found)


def test_the_process_brings_more_samples_to_a_noisy_peak_than_an_even_grid_and_gaps():
    process = carried(lambda seed: GaussianProcess(5.0, 6.5, seed=seed, reach=REACH, grid=101, paths=64))
    uniform, gaps = carried(lambda seed: Uniform(5.0, 6.5, points=30)), carried(lambda seed: Gaps(5.0, 6.5))
    assert process > 4 * max(uniform, gaps)
    assert gaps > 0.5 * uniform  # the gate is not open to whatever spreads its points


def test_with_a_reach_the_samples_gather_within_it_of_the_peak_on_few_chains():
    """Thirty blocks: most are within two reaches of the peak, on chains that are already there."""
    rng = np.random.default_rng(6)
    steerer = GaussianProcess(5.4, 6.0, fresh_cost=1.6, reach=0.03)
    blocks: dict[float, int] = {}
    for _ in range(30):
        beta = steerer.ask(1)[0].coordinate
        blocks[beta] = blocks.get(beta, 0) + 1
        seen = measure(lorentz, beta, 5.69, 0.4 / np.sqrt(blocks[beta]), rng, f"{beta}")
        steerer.tell([msgspec.structs.replace(seen, cost=blocks[beta] + 0.6)])
    near = sum(n for beta, n in blocks.items() if abs(beta - 5.69) < 0.06)
    assert near > 15
    assert len(blocks) < 15
    # Both sides of the peak have their share: a maximum is one by what is beside it.
    assert sum(n for beta, n in blocks.items() if 5.62 < beta < 5.69) >= 4
    assert sum(n for beta, n in blocks.items() if 5.69 < beta < 5.76) >= 4
    assert "at the peak" in steerer.ask(1)[0].reason


def test_the_reach_of_a_lattice_is_its_energys_spread():
    assert Lattice().reach_of((8, 8, 8, 4)) == pytest.approx(1 / 64)
    with pytest.raises(SpecError, match="reach"):
        GaussianProcess(5.4, 6.0, reach=-1.0)
