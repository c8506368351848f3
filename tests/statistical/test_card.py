"""Physics on a CUDA card, held against independent codes: what a batch, a chain with quarks and a campaign give."""

import numpy as np
import pytest

from metalforge.campaign import CampaignSpec, run
from metalforge.campaign.spec import Budget, Running, Screening
from metalforge.lattice import Chain, ChainBatch, ChainSpec, FermionSpec, HmcSpec
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.published import INDEPENDENT
from metalforge.native.cuda.engine import cuda_engine
from reference.measured import CONDENSATE, PLAQUETTE, TABLE, TRANSITION
from reference.statistics import Mean, agrees

pytestmark = pytest.mark.cuda
CHAINS = 8
"""At each coupling: their scatter is the error."""


@pytest.fixture(scope="module")
def engine():
    return cuda_engine(0)


def batch_of(engine, dims, betas, warmup, updates, **options):
    """P and |L| of every update, (updates, chains), by coupling."""
    specs = [
        ChainSpec(dims=dims, beta=beta, seed=61, stream=CHAINS * k + n, start=("hot", "cold")[n % 2], **options)
        for k, beta in enumerate(betas)
        for n in range(CHAINS)
    ]
    batch = ChainBatch([Chain(spec, engine=engine) for spec in specs])
    rows = []
    for begin in range(0, warmup + updates, 64):
        # From a cold start no trajectory would be accepted: energies are far from those of equilibrium.
        batch.start(min(64, warmup + updates - begin), accept_always=begin == 0)
        found = batch.collect()
        rows.append(np.array([[c["plaquette"], c["polyakov_re"], c["polyakov_im"]] for c in found]))
    p, re, im = np.concatenate(rows, axis=2).transpose(1, 2, 0)[:, warmup:]
    loop = np.hypot(re, im)
    return {
        beta: (p[:, own], loop[:, own])
        for k, beta in enumerate(betas)
        for own in [slice(CHAINS * k, CHAINS * k + CHAINS)]
    }


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_plaquette_and_polyakov_loop_on_8_4(engine, precision):
    for beta, (p, loop) in batch_of(engine, (8, 8, 8, 8), list(TABLE), 200, 1000, precision=precision).items():
        plaquette, error, absolute, loop_error = TABLE[beta]
        assert agrees(Mean(p.mean(axis=0)), plaquette, error, precision=3e-4)
        assert agrees(Mean(loop.mean(axis=0)), absolute, loop_error)


def test_trajectories_on_8_4(engine):
    hmc = {"algorithm": "hmc", "hmc": HmcSpec(n_steps=12)}
    for beta, (p, _) in batch_of(engine, (8, 8, 8, 8), [5.5, 6.0], 300, 1200, **hmc).items():
        assert agrees(Mean(p.mean(axis=0)), *TABLE[beta][:2], precision=3e-4)


def test_deconfinement_on_8_3_x_4(engine):
    for beta, (p, loop) in batch_of(engine, (8, 8, 8, 4), list(TRANSITION), 500, 4000).items():
        plaquette, error, absolute, loop_error, chi, chi_error = TRANSITION[beta]
        assert agrees(Mean(p.mean(axis=0)), plaquette, error)
        assert agrees(Mean(loop.mean(axis=0)), absolute, loop_error)
        mean = loop.mean()  # of all chains: each alone is short
        assert agrees(Mean(512 * ((loop - mean) ** 2).mean(axis=0)), chi, chi_error)


def test_four_flavours_are_those_of_an_independent_code(engine):
    fermions = FermionSpec(flavors=(4,), masses=(0.1,), noise_vectors=1, n_inner=3)
    found = []
    for stream in range(4):
        spec = ChainSpec(
            dims=(4, 4, 4, 4), beta=5.2, seed=89, stream=stream, start=("cold", "hot")[stream % 2], algorithm="hmc",
            fermions=fermions, hmc=HmcSpec(n_steps=10),
        )  # fmt: skip
        chain = Chain(spec, engine=engine)
        for n in range(60):
            chain.update(accept_always=n < 20, adapting=True)
        rows = []
        chain.run(150, lambda _, seen, rows=rows: rows.append((seen.plaquette, seen.condensate)))
        found.append(np.mean(rows, axis=0))
    p, condensate = np.array(found).T
    assert agrees(Mean(p), *PLAQUETTE)
    assert agrees(Mean(condensate), *CONDENSATE)


def test_a_campaign_finds_the_peak_that_an_independent_code_found():
    dims = (8, 8, 8, 4)
    spec = CampaignSpec(
        seed=71,
        theory=Lattice(volumes=(dims,)),
        budget=Budget(seconds=60.0, target_error=0.001),
        screening=Screening(device="software"),
        running=Running(substrate="cuda:0"),
    )
    found = run(spec)
    assert found.established
    value, error = INDEPENDENT[dims]
    assert abs(found.value - value) < 3 * np.hypot(found.error, error)
    assert {lane for log in found.state.chains.values() for lane in log.made_on} == {"cuda:0"}
