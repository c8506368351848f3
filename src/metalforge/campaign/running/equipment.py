"""What a campaign works with: the steerer of a volume, and the heads that watch its chains."""

import itertools
import threading

from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.steerers import GaussianProcess, build_steerer, even_points, reweighting_reach
from metalforge.conductor.steerer import ConductorSteerer
from metalforge.conductor.trust import Trust, mark_scores, trust_of
from metalforge.core.steering import Steerer

from .heads import Heads, context_of, neighbours_of
from .pool import MakeWatch
from .watch import HeadWatch

__all__ = ["steerer_of", "watches_of"]


def steerer_of(spec: CampaignSpec, dims: Dims, heads: Heads) -> Steerer:
    """Return what places the visits of one volume, as the spec names it."""
    low, high = spec.lattice.beta_min, spec.lattice.beta_max
    steering = spec.steering
    # A new beta costs a warm-up over more statistics at one that is there: half of the longest, as it turns out.
    fresh = 1 + spec.warmup.longest / 2 / steering.visit
    reach = reweighting_reach(dims)
    process = GaussianProcess(low, high, initial=steering.initial, fresh_cost=fresh, reach=reach, seed=spec.seed)
    if steering.steerer == "gaussian-process":
        return process
    if steering.steerer == "conductor":
        conductor = heads.conductor()
        trust = trust_of(conductor.layout)
        mark_scores(trust, heads.scores)
        context = context_of(spec, low, dims)
        return ConductorSteerer(low, high, conductor=conductor, context=context, trust=trust, fallback=process)
    if steering.steerer == "uniform":
        return build_steerer("uniform", low, high, points=max(steering.initial, even_points(low, high, reach)))
    return build_steerer(steering.steerer, low, high)


def watches_of(spec: CampaignSpec, heads: Heads, trust: Trust) -> MakeWatch:
    """Return what makes a watch for a chain; sweeps have no trajectories to watch."""
    if spec.lattice.algorithm != "hmc":
        return lambda state, log: None
    local = threading.local()
    ids = itertools.count()

    def make(state: CampaignState, log: ChainLog) -> HeadWatch:
        # A conductor is for one thread, and every producer has its own.
        if not hasattr(local, "conductor"):
            local.conductor = heads.conductor()
        return HeadWatch(
            local.conductor,
            log.id,
            context_of(spec, log.beta, log.dims),
            start=0.0 if log.start == "hot" else 1.0,
            meta=neighbours_of(state, log),
            tau=spec.lattice.tau,
            rule=heads.stop,
            trust=trust,
            next_id=lambda: next(ids),
        )

    return make
