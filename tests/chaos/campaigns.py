"""What is attacked: campaigns of every algorithm, ordering and kind of producer, and a run; each of a second or two."""

from collections.abc import Mapping
from typing import Any

import msgspec

from metalforge.campaign.spec import Budget, CampaignSpec, Steering, WarmUpPolicy
from metalforge.lattice import ChainSpec, HmcSpec
from metalforge.lattice.sea import FermionSpec
from reference.small_campaigns import PARTICLES, ROUNDS

SMALL = (4, 4, 4, 2)
HMC: Mapping[str, Any] = {"algorithm": "hmc", "integrator": "leapfrog", "n_steps": 6}
SEA: Mapping[str, Any] = {**HMC, "n_steps": 4, "flavors": 4, "mass": 0.3}
SHORT = {"warmup": WarmUpPolicy(longest=40, shortest=20), "steering": Steering(visit=40, initial=3)}
"""For chains of which an update takes long."""


def _spec(
    name: str, ordering: str = "C", *, updates: int = 700, running: Mapping[str, Any] | None = None,
    screening: Mapping[str, Any] | None = None, parts: Mapping[str, Any] | None = None, **lattice: Any,
) -> CampaignSpec:  # fmt: skip
    replace = msgspec.structs.replace
    return replace(
        ROUNDS,
        name=name,
        ordering=ordering,
        theory=replace(ROUNDS.theory, **lattice),
        budget=Budget(trajectories=updates),
        running=replace(ROUNDS.running, **(running or {})),
        screening=replace(ROUNDS.screening, **(screening or {})),
        **(parts or {}),
    )


PROCESS = {"isolation": "process"}
CAMPAIGNS: dict[str, CampaignSpec] = {
    spec.name: spec
    for spec in (
        _spec("heatbath"),
        _spec("check-flagged", "A", screening={"chi": 0.1}),
        _spec("scout", "B", volumes=(SMALL, (2, 2, 2, 2))),
        _spec("check-all", "D", updates=400),
        _spec("sleep", "E"),
        _spec("single", precision="f32"),
        _spec("chip", updates=400, screening={"device": "npu"}),
        _spec("hmc", updates=400, parts=SHORT, **HMC),
        _spec("hmc-check-all", "D", updates=300, parts=SHORT, **HMC),
        _spec("symanzik", updates=160, parts=SHORT, algorithm="hmc", action="symanzik", beta_min=3.0, beta_max=3.6),
        _spec("quarks", updates=160, parts={**SHORT, "warmup": WarmUpPolicy(longest=24, shortest=10, cheap=4)},
              beta_min=4.6, beta_max=5.0, **SEA),
        _spec("processes", running=PROCESS),
        _spec("hmc-processes", updates=300, running=PROCESS, parts=SHORT, **HMC),
        _spec("check-all-processes", "D", updates=300, running=PROCESS),
        PARTICLES,
        msgspec.structs.replace(
            PARTICLES, name="particles-processes", running=msgspec.structs.replace(PARTICLES.running, **PROCESS)
        ),
    )
}  # fmt: skip
"""All deterministic."""

RUNS: dict[str, tuple[ChainSpec, dict[str, int]]] = {
    "rhmc": (
        ChainSpec(
            dims=(4, 4, 2, 4),
            beta=5.2,
            seed=9,
            algorithm="rhmc",
            fermions=FermionSpec(flavors=(2,), masses=(0.3,), noise_vectors=2),
            hmc=HmcSpec(tau=0.5, n_steps=2),
        ),
        {"warmup": 12, "quenched": 3, "trajectories": 20},
    )
}
"""Runs of `lattice generate`, for what no campaign has: a chain and its job."""
