"""One chain through both doors: what a campaign shows its network is what a corpus would have taught it with."""

import msgspec
import numpy as np
import pytest

from experiments.heads.corpus import ChainEntry, record
from experiments.heads.labels import frames_of
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, Steering, WarmUpPolicy
from metalforge.conductor.features import SCHEMA, ChainContext, FrameMaker
from metalforge.lattice.campaign import Lattice
from reference.small_campaigns import ROUNDS

SWEEPS = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=500))
TRAJECTORIES = msgspec.structs.replace(
    ROUNDS,
    theory=Lattice(
        volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3, algorithm="hmc", integrator="omelyan2", n_steps=10
    ),
    budget=Budget(trajectories=100),
    warmup=WarmUpPolicy(longest=20, shortest=20),
    steering=Steering(visit=20, initial=2),
)
NAMES = [feature.name for feature in SCHEMA.features]
ROUNDING = 2e-3
"""Rows of a corpus are in single precision: a plaquette is off by 3e-8, and a deviation of it is 0.02 here."""


def of_corpus(spec, log):
    """Return the frames that the corpus's runner and door make of a campaign's chain."""
    entry = ChainEntry(
        part="train",
        beta=log.coordinate,
        dims=log.system,
        start=log.start,
        seed=spec.seed,
        stream=log.stream,
        updates=log.rows,
        mass=0.0,
        algorithm=spec.theory.algorithm,
        length=spec.theory.tau,
        warmup=log.warmup if spec.theory.algorithm == "hmc" else 0,
    )
    (made,) = record([entry])
    return frames_of(made)


@pytest.mark.parametrize("spec", [SWEEPS, TRAJECTORIES], ids=["sweeps", "trajectories"])
def test_a_chain_has_the_same_features_in_a_campaign_and_in_a_corpus(spec, tmp_path, monkeypatch):
    seen, push = {}, FrameMaker.push

    def heard(self, phase, columns):
        frames = push(self, phase, columns)
        seen.setdefault(self.context, []).append(frames.values)
        return frames

    monkeypatch.setattr(FrameMaker, "push", heard)
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    monkeypatch.undo()
    compared = set()
    for log in list(state.chains.values())[:3]:
        campaigns, (rows, corpus) = (
            np.concatenate(seen[spec.theory.head_context(log.coordinate, log.system, log.start)]),
            of_corpus(spec, log),
        )
        assert len(campaigns) == len(rows) > 5
        for name, ours, theirs in zip(NAMES, campaigns.T, corpus.T, strict=True):
            assert ours == pytest.approx(theirs, abs=ROUNDING), (log.id, name)
        compared |= {name for name, values in zip(NAMES, campaigns.T, strict=True) if np.ptp(values) > 0}
        # Another chain at another coupling is not alike: the test could fail.
        other = FrameMaker(ChainContext(beta=log.coordinate + 0.05, dims=log.system)).push("measure", log.columns)
        assert not np.allclose(other.values[: len(campaigns)][:1], campaigns[:1], atol=ROUNDING)
    assert len(compared) > 15
