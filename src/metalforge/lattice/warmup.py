"""Warm-up of a chain: thermalise, tune the trajectory, then freeze it.

Everything that looks at results happens here and stops before measurement. From a cold or hot start the energy
violation of a trajectory is far larger than at equilibrium, so the first third of an HMC warm-up runs without the
accept test; the rest runs with it, and the number of steps is chosen so that the acceptance comes out near its target.
A chain with fermions may be thermalised without them at first (quenched), which costs next to nothing.
"""

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from metalforge.core import CountedWarmUp, Phase

from .chain import Chain, UpdateInfo

if TYPE_CHECKING:
    from .hmc import EnergyProbe

TARGET_ACCEPTANCE = (0.75, 0.92)
"""Between these the cost of an independent configuration is flat (Takaishi and de Forcrand, hep-lat/0505020)."""

TUNE_EVERY = 6
"""Trajectories between two looks at the step size."""


class WarmUp(CountedWarmUp, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a warm-up of `total` updates has come, the first `quenched` of them heat bath sweeps without fermions.

    `window` holds dH since the last look.
    """

    window: tuple[float, ...] = ()
    quenched: int = 0

    @property
    def phase(self) -> Phase:
        """What the next of its updates belongs to."""
        return "quench" if self.done < self.quenched else "warmup"

    @property
    def first_tested(self) -> int:
        """The first of its updates that has an accept test, where these are trajectories."""
        return self.quenched + (self.total - self.quenched) // 3


def warm_up_step(chain: Chain, state: WarmUp, probe: "EnergyProbe | None" = None) -> tuple[WarmUp, UpdateInfo]:
    """Move `chain` by one warm-up update and return how far the warm-up has come."""
    if state.phase == "quench":
        return msgspec.structs.replace(state, done=state.done + 1), chain.quenched_update()
    info = chain.update(accept_always=state.done < state.first_tested, adapting=True, probe=probe)
    done, total = state.done - state.quenched, state.total - state.quenched
    window = () if info.delta_h is None else (*state.window, info.delta_h)
    if len(window) == TUNE_EVERY:
        # While the chain relaxes dH drifts; only its spread over a few trajectories says something of the step size.
        if done >= total // 3 // 2:
            # Towards the end a lucky window must not make the steps coarser: only the acceptance is protected.
            _adjust(chain, predicted_acceptance(window), may_coarsen=3 * done < 2 * total)
        window = ()
    return msgspec.structs.replace(state, done=state.done + 1, window=window), info


def warm_up(chain: Chain, n: int, *, quenched: int = 0) -> None:
    """Move `chain` by `quenched` updates without fermions and `n` with them; for HMC, tune the number of steps."""
    state = WarmUp(total=quenched + n, quenched=quenched)
    while not state.finished:
        state, _ = warm_up_step(chain, state)


def predicted_acceptance(delta_h: tuple[float, ...]) -> float:
    """Return erfc(sqrt(<dH>) / 2) with <dH> = var(dH) / 2, as it is at equilibrium (Creutz, PRD 38 (1988) 1228).

    The variance is steadier than the mean and than counting the acceptances of a handful of trajectories.
    """
    return math.erfc(math.sqrt(0.5 * float(np.var(delta_h, ddof=1))) / 2)


def _adjust(chain: Chain, acceptance: float, *, may_coarsen: bool) -> None:
    hmc = chain.spec.hmc
    low, high = TARGET_ACCEPTANCE
    if acceptance < low or math.isnan(acceptance):
        n_steps = min(math.ceil(hmc.n_steps * (1.2 if acceptance > 0.3 else 1.5)), 10_000)
    elif acceptance > high and hmc.n_steps > 2 and may_coarsen:
        n_steps = max(math.floor(hmc.n_steps * 0.9), 2)
    else:
        return
    chain.spec = msgspec.structs.replace(chain.spec, hmc=msgspec.structs.replace(hmc, n_steps=n_steps))
