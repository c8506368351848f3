"""Campaigns of seconds."""

import msgspec

from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.core.quantities import Measured
from metalforge.lattice.campaign import Lattice
from metalforge.plasma.campaign import Plasma

ROUNDS = CampaignSpec(
    name="rounds",
    seed=7,
    theory=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
    budget=Budget(trajectories=1200),
    warmup=WarmUpPolicy(longest=60, shortest=20),
    steering=Steering(visit=80, initial=4, prior="off"),
    screening=Screening(chi=0.3, device="software"),
    running=Running(block=30, deterministic=True, producers=2, checkpoint_s=0.0),
)
"""Deterministic, eight visits or so, a second."""

PARTICLES = CampaignSpec(
    name="particles",
    seed=7,
    theory=Plasma(kappa=4.0, particles=(104,), gamma_min=100.0, gamma_max=900.0, segment=10.0),
    budget=Budget(trajectories=100),
    warmup=WarmUpPolicy(longest=3, shortest=2),
    steering=Steering(visit=10, initial=3),
    running=Running(block=4, deterministic=True, producers=2, checkpoint_s=0.0),
)
"""The same of a plasma: eight visits or so. Segments are far too short for physics, and long enough for bits."""

FREEZES = msgspec.structs.replace(
    PARTICLES,
    name="freezes",
    theory=Plasma(kappa=4.0, particles=(128,), gamma_min=1500.0, gamma_max=6000.0, segment=10.0, look_for="freezing"),
    budget=Budget(trajectories=150),
    warmup=WarmUpPolicy(longest=4, shortest=4),
    steering=Steering(visit=30, initial=2),
)
"""Half a crystal in each box, and whether it grows."""

PHYSICS = {"links": ROUNDS, "particles": PARTICLES}
"""What has to hold of any physics is tested with each of these."""

QUICK = msgspec.structs.replace(
    ROUNDS, name="quick", budget=Budget(trajectories=1200), running=Running(block=30, producers=2, checkpoint_s=0.0)
)
"""The same as fast as it goes."""

WITH_QUARKS = Lattice(
    volumes=((4, 4, 4, 2),),
    beta_min=4.6,
    beta_max=5.0,
    algorithm="hmc",
    integrator="leapfrog",
    n_steps=4,
    flavors=4,
    mass=0.3,
)
"""Four flavours on the lattice of these."""


class _After:
    """Lets a chain move by so many updates."""

    def __init__(self, campaign, updates):
        self._campaign, self._left, self._is_set = campaign, updates, False

    def set(self):
        self._is_set = True

    def clear(self):
        pass

    def __call__(self):
        self._left -= 1
        if self._left < 0:
            self._campaign.interrupt("test")
        return self._is_set


def one_update(campaign, updates=1):
    """Run a campaign until its chain has moved by one update, or by as many as it is told."""
    campaign._stop = _After(campaign, updates)
    return campaign.run()


def run_until(campaign, updates):
    """Run a campaign until its journal has so many updates, or to its end."""
    write = campaign.book.write

    def writing(*records):
        write(*records)
        if campaign.state.trajectories >= updates:
            campaign.interrupt("test")

    campaign.book.write = writing
    return campaign.run()


class GrowingMeter:
    """A counter that gains a joule at every reading."""

    name = "test"

    def __init__(self):
        self.joules = 0.0

    def unavailable(self):
        return None

    def total(self):
        self.joules += 1.0
        return Measured(value=self.joules, unit="J", how="test")
