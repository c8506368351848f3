"""Campaigns whose chains run in batches of CUDA kernels: on the host as a GPU (`make check-cuda`), and on a GPU."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.rows import load_benchmark
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Running, Steering
from metalforge.lattice import Chain
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.native.cuda.engine import cuda_engine
from reference.cuda_host import host_engine
from reference.small_campaigns import QUICK, run_until
from reference.wide_engine import with_cards

ROOT = Path(__file__).parents[3]
SPEC = msgspec.structs.replace(
    QUICK,
    running=Running(block=30, checkpoint_s=0.0, substrate="cuda:0"),
    budget=Budget(trajectories=900),
    steering=Steering(visit=20, initial=4),
)
NAMES = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")


@pytest.fixture(params=[pytest.param("host", marks=pytest.mark.long), pytest.param("card", marks=pytest.mark.cuda)])
def engine(request, tmp_path_factory, monkeypatch):
    """An engine that campaigns find as `cuda:0`."""
    if request.param == "card":
        return cuda_engine(0)
    made = host_engine(tmp_path_factory.mktemp("cuda"))
    made.card.cache_bytes = 1 << 20
    monkeypatch.setattr(type(made), "busy_sites", 3 * 128)  # three lattices of 4^3x2
    with_cards(monkeypatch, made)
    return made


def test_a_campaign_that_is_stopped_and_resumed_has_the_rows_of_undisturbed_chains(tmp_path, engine, monkeypatch):
    """Stopped three times: chains go on from checkpoints, in batches of other sizes and alone."""
    with Campaign.open(SPEC, tmp_path / "run") as campaign:
        run_until(campaign, 150)
    for updates in (300, 450):
        with Campaign.resume(tmp_path / "run") as campaign:
            run_until(campaign, updates)
    with Campaign.resume(tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished is not None
    assert not [d for d in state.decisions if d.what in ("fault", "abandoned")]
    for log in state.chains.values():
        wanted = SPEC.theory.chain(log.system, log.coordinate, seed=SPEC.seed, stream=log.stream, start=log.start)
        alone = ChainRun(Chain(wanted, engine=engine), WarmUp(total=0), NAMES)
        for _ in range(log.rows):
            alone.step()
        assert {name: list(log.columns[name][:]) for name in NAMES} == alone.log.columns
    compared = load_benchmark(ROOT / "benchmarks" / "gpu" / "campaigns.py")
    monkeypatch.setattr(compared, "cuda_engine", lambda number: engine)
    assert compared.differing(tmp_path / "run") == (sum(log.rows for log in state.chains.values()), 0)
