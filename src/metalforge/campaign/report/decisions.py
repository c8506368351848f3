"""What was decided and by whom, which heads were trusted, and whether warm-ups were long enough.

The check afterwards uses what nobody had when the decision was taken: the whole measurement. With m1 and m2 the means
of the energy E over its first fifth (n1 rows) and its last half (n2 rows), and e2 the error of m2,

    z = (m1 - m2) / (e2 sqrt(1 + n2 / n1))

is of the order of one for a chain that had forgotten its start (after J. Geweke 1992). The error of m1 is that of as
many rows in equilibrium, not its own: a drift would look like a long memory and hide itself.
"""

from collections import Counter

import msgspec
import numpy as np

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.campaign.theory import Theory
from metalforge.statistics import gamma_method

FEWEST_ROWS = 100
"""Measured updates below which a warm-up is not judged: a fifth must hold several independent ones."""
LARGEST_Z = 4.0
"""Autoregressive chains in equilibrium exceed it in 0.4 % of cases when they are 40 tau_int long, in 3 % at 16 tau_int:
e2 itself is not known well then, and the tails are wider than a Gaussian's. Measured over 800 chains each."""


class ResultPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the result."""


class DecisionCount(ResultPart, frozen=True, kw_only=True):
    """How often something was decided by somebody; `by_heads` counts those that a head decided (`heads`)."""

    what: str
    by: str
    count: int
    by_heads: int


class WarmUpCheck(ResultPart, frozen=True, kw_only=True):
    """Warm-ups ended by one decider: how long they were, and how many were over by the test afterwards."""

    by: str
    chains: int
    judged: int
    over: int
    mean_updates: float
    largest_z: float


class Decisions(ResultPart, frozen=True, kw_only=True):
    """Everything that was decided, counted."""

    counts: tuple[DecisionCount, ...]
    warmups: tuple[WarmUpCheck, ...]
    fresh_chains: int
    continued: int


def decisions_of(state: CampaignState) -> Decisions:
    """Return the decisions of a campaign."""
    taken = state.other_decisions
    counts = Counter((d.what, d.by) for d in taken)
    by_heads = Counter(
        (d.what, d.by) for d in taken if d.what == "cheap-length" and d.trusted and d.value != d.baseline
    )
    by_heads.update(("visit", visit.by) for visit in state.visits if visit.by_head)
    counts.update(("visit", visit.by) for visit in state.visits)
    fresh = sum(visit.fresh for visit in state.visits)
    return Decisions(
        counts=tuple(
            DecisionCount(what=what, by=by, count=count, by_heads=by_heads[what, by])
            for (what, by), count in sorted(counts.items())
        ),
        warmups=_warmups(state),
        fresh_chains=fresh,
        continued=len(state.visits) - fresh,
    )


def faults_of(state: CampaignState) -> tuple[Decided, ...]:
    """Return what was decided of blocks that were not as a chain should give them, each with what was done."""
    return tuple(decision for decision in state.decisions if decision.what == "fault")


def _warmups(state: CampaignState) -> tuple[WarmUpCheck, ...]:
    by: dict[str, list[ChainLog]] = {}
    for decision in state.decisions:
        if decision.what == "warmup-ends" and decision.chain in state.chains:
            by.setdefault(decision.by, []).append(state.chains[decision.chain])
    checks = []
    for name, chains in sorted(by.items()):
        z = [abs(shift) for chain in chains if (shift := _shift(state.spec.theory, chain)) is not None]
        checks.append(
            WarmUpCheck(
                by=name,
                chains=len(chains),
                judged=len(z),
                over=sum(value <= LARGEST_Z for value in z),
                mean_updates=float(np.mean([chain.warmup for chain in chains])),
                largest_z=max(z, default=0.0),
            )
        )
    return tuple(checks)


def _shift(theory: Theory, chain: ChainLog) -> float | None:
    """Return z of one chain; None where it is too short or does not move."""
    x = theory.energy_of(chain)
    if x.size < FEWEST_ROWS:
        return None
    first, last = x[: x.size // 5], x[x.size // 2 :]
    later = gamma_method(last)
    error = later.error * float(np.sqrt(1 + last.size / first.size))
    return (float(first.mean()) - later.mean) / error if error > 0 else None
