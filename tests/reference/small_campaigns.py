"""Campaigns of seconds, and a child process that runs one and dies where it is told to."""

import os
import signal
import sys
from pathlib import Path

import msgspec

from metalforge.campaign.spec import Budget, CampaignSpec, Lattice, Running, Screening, Steering, WarmUpPolicy

ROUNDS = CampaignSpec(
    name="rounds",
    seed=7,
    lattice=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
    budget=Budget(trajectories=1200),
    warmup=WarmUpPolicy(longest=60, shortest=20),
    steering=Steering(visit=80, initial=4),
    screening=Screening(chi=0.3, every=20, device="software"),
    running=Running(block=30, deterministic=True, producers=2, checkpoint_s=0.0),
)
"""Deterministic, eight visits or so, a second."""

QUICK = msgspec.structs.replace(
    ROUNDS, name="quick", budget=Budget(trajectories=1200), running=Running(block=30, producers=2, checkpoint_s=0.0)
)
"""The same as fast as it goes."""


def dying(site: str, count: int) -> None:
    """Make this process kill itself at the count-th visit of a site.

    `before`: before a journal line is written; `half`: after half of it; `update`: in the middle of a chain's work;
    `checkpoint`: when the temporary file is written and not yet renamed.
    """
    left = [count]

    def visit() -> bool:
        left[0] -= 1
        return left[0] == 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if site in ("before", "half"):
        from metalforge.campaign.store import journal

        write = os.write

        def dying_write(file: int, data: bytes) -> int:
            if visit():
                if site == "half":
                    write(file, bytes(data)[: len(data) // 2])
                die()
            return write(file, data)

        journal.Journal.open.__func__.__kwdefaults__["write"] = dying_write
    elif site == "update":
        from metalforge.lattice.chain import Chain

        update = Chain.update

        def dying_update(self, **options):
            if visit():
                die()
            return update(self, **options)

        Chain.update = dying_update
    else:
        replace = os.replace

        def dying_replace(source, target, **options):
            if str(target).endswith(".h5") and visit():
                die()
            return replace(source, target, **options)

        os.replace = dying_replace


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


def main(directory: Path, site: str, count: int) -> None:
    """Open or resume the campaign of a directory, run it, and print its digest."""
    from metalforge.campaign.running.campaign import JOURNAL, Campaign

    if site != "never":
        dying(site, count)
    there = (directory / JOURNAL).exists()
    with Campaign.resume(directory) if there else Campaign.open(ROUNDS, directory) as campaign:
        state = campaign.run()
    sys.stdout.write(state.digest())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
