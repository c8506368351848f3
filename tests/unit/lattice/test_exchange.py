"""Replica exchange: exact distributions with it, wrong ones with a wrong test, and what moves is the coupling."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.lattice import Chain, ChainSpec, HmcSpec
from metalforge.lattice.exchange import ReplicaLadder, swapped
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.statistics import gamma_method
from metalforge.statistics.exchange_traffic import traffic
from reference.one_plaquette import moments

NAMES = ("plaquette", "polyakov_re", "polyakov_im", "replica")


def ladder(betas, *, dims=(2, 2, 2, 2), warmup=20, names=NAMES, seed=5, **options):
    """A ladder of new chains, hot and cold in turn."""
    starts = ("hot", "cold")
    specs = [
        ChainSpec(dims=dims, beta=beta, seed=seed, stream=7 + k, start=starts[k % 2], **options)
        for k, beta in enumerate(betas)
    ]
    return ReplicaLadder([ChainRun(Chain(spec, threads=1), WarmUp(total=warmup), names) for spec in specs])


def columns(of, name):
    return np.array([run.log.columns[name] for run in of.runs]).T


# -- the test of a swap ---------------------------------------------------------------------------------------------


def test_pairs_are_tested_by_their_weights():
    # exponents of the pairs (0, 1), (2, 3): (-0.5)(-2) = 1 is always accepted, (-0.5)(2) = -1 with probability 0.37.
    energies, uniforms = [1.0, 3.0, 5.0, 3.0], [0.999, 0.1, 0.36, 0.1]
    betas = [1.0, 1.5, 2.0, 2.5]
    assert swapped(betas, energies, uniforms, 0).tolist() == [1, 0, 3, 2]
    assert swapped(betas, energies, [0.999, 0.1, 0.38, 0.1], 0).tolist() == [1, 0, 2, 3]
    assert swapped(betas, energies, uniforms, 1).tolist() == [0, 2, 1, 3]


def one_plaquette_means(betas, test, *, ladders=1000, sweeps=100, seed=3):
    """<p> of one-plaquette models at each beta: many ladders at once, Metropolis on eigenangles, then swaps."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (ladders, len(betas), 2))

    def of(x):
        full = np.concatenate([x, -x.sum(axis=-1, keepdims=True)], axis=-1)
        z = np.exp(1j * full)
        measure = np.abs((z[..., 0] - z[..., 1]) * (z[..., 0] - z[..., 2]) * (z[..., 1] - z[..., 2])) ** 2
        return np.cos(full).sum(axis=-1) / 3, np.log(np.maximum(measure, 1e-300))

    p, log_haar = of(angle)
    seen = []
    for sweep in range(sweeps):
        new = angle + rng.normal(scale=0.8, size=angle.shape)
        new_p, new_haar = of(new)
        accept = np.log(rng.random(p.shape)) < np.array(betas) * (new_p - p) + new_haar - log_haar
        angle = np.where(accept[..., None], new, angle)
        p, log_haar = np.where(accept, new_p, p), np.where(accept, new_haar, log_haar)
        if sweep >= 40:
            seen.append(p.mean(axis=0))
        uniform = rng.random(p.shape)
        holder = np.array([test(betas, 1 - e, u, sweep % 2) for e, u in zip(p, uniform, strict=True)])
        angle = np.take_along_axis(angle, holder[..., None], axis=1)
        p, log_haar = np.take_along_axis(p, holder, axis=1), np.take_along_axis(log_haar, holder, axis=1)
    return np.mean(seen, axis=0)


def test_one_plaquette_models_that_exchange_keep_their_exact_means():
    betas = [2.0, 5.0, 9.0]
    exact = np.array([moments(beta)[0] for beta in betas])
    assert one_plaquette_means(betas, swapped) == pytest.approx(exact, abs=4e-3)

    def wrong(betas, energies, uniforms, first):
        return swapped(betas, -np.asarray(energies), uniforms, first)

    assert np.max(np.abs(one_plaquette_means(betas, wrong, ladders=300) - exact)) > 0.02


@pytest.mark.parametrize("algorithm", ["heatbath", "hmc"])
def test_chains_on_2_to_the_4_keep_their_plaquettes(algorithm, monkeypatch):
    """Couplings so near that most swaps are accepted, against chains of their own; a wrong test is found out."""
    betas = (4.0, 4.6, 5.2)
    hmc = HmcSpec(tau=1.0, n_steps=6)
    n = 1500 if algorithm == "heatbath" else 700

    def plaquettes(exchanging):
        found = ladder(betas, algorithm=algorithm, hmc=hmc)
        for _ in range(n):
            if exchanging:
                found.step()
            else:
                for run in found.runs:
                    run.step()
        return [gamma_method(column) for column in columns(found, "plaquette")[30:].T]

    alone, together = plaquettes(False), plaquettes(True)
    for a, b in zip(alone, together, strict=True):
        assert abs(a.mean - b.mean) < 4 * np.hypot(a.error, b.error)
    monkeypatch.setattr(
        "metalforge.lattice.exchange.swapped", lambda b, e, u, first: swapped(b, -np.asarray(e), u, first)
    )
    off = [abs(a.mean - b.mean) / np.hypot(a.error, b.error) for a, b in zip(alone, plaquettes(True), strict=True)]
    assert max(off) > 8


# -- what moves -----------------------------------------------------------------------------------------------------


def test_couplings_move_with_their_trajectories_and_links_stay():
    found = ladder((4.0, 4.3, 4.6), algorithm="hmc", hmc=HmcSpec(tau=1.0, n_steps=5))
    for _ in range(40):
        found.step()
    steps = [run.chain.spec.hmc.n_steps for run in found.runs]
    before = {run.chain.spec.stream: run.chain.field.to_links().tobytes() for run in found.runs}
    order = [run.chain.spec.stream for run in found.runs]
    for _ in range(20):
        found.exchange()
        if [run.chain.spec.stream for run in found.runs] != order:
            break
        found.step()
        before = {run.chain.spec.stream: run.chain.field.to_links().tobytes() for run in found.runs}
    assert [run.chain.spec.stream for run in found.runs] != order
    assert found.betas == [4.0, 4.3, 4.6]
    assert [run.chain.spec.hmc.n_steps for run in found.runs] == steps
    assert {run.chain.spec.stream: run.chain.field.to_links().tobytes() for run in found.runs} == before


def test_a_ladder_is_reproduced_by_its_addresses():
    one, other = (ladder((4.0, 4.3, 4.6, 4.9)) for _ in range(2))
    for _ in range(30):
        one.step()
        other.step()
    assert columns(one, "plaquette").tobytes() == columns(other, "plaquette").tobytes()
    assert len(set(columns(one, "replica")[-1])) == 4
    assert set(columns(one, "replica").ravel()) == {7.0, 8.0, 9.0, 10.0}


def test_round_trips_are_counted_from_end_to_end_and_back():
    up = [[0, 1, 2], [1, 0, 2], [1, 2, 0], [1, 0, 2], [0, 1, 2]]
    seen = traffic(np.array(up))
    # Replica 0 goes up and comes back; replica 2 goes from the top to the middle, and 1 to the bottom and back.
    assert seen.round_trips == 1.0
    assert seen.rates.tolist() == [1.0, 1.0]
    assert seen.per_work == pytest.approx(1 / 15)


@pytest.mark.parametrize("betas", [(4.0,), (4.0, 4.0), (4.3, 4.0)])
def test_couplings_must_ascend(betas):
    with pytest.raises(SpecError, match="ascending"):
        ladder(betas)


def test_chains_that_share_random_numbers_are_refused():
    specs = [ChainSpec(dims=(2, 2, 2, 2), beta=beta, seed=5, stream=1) for beta in (4.0, 4.3)]
    runs = [ChainRun(Chain(spec, threads=1), WarmUp(total=5), NAMES) for spec in specs]
    with pytest.raises(SpecError, match="streams"):
        ReplicaLadder(runs)
