"""How trajectories in double precision use a card: in doubles, in pairs of floats, or some blocks in each.

Links, momenta, sums and the accept test are doubles whatever the strategy: pairs (double-floats, native/df64.hpp) are
in the force, in the exponential and in the links between them. Which is faster is a matter of the card: it is measured.
"""

import time
import timeit
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from metalforge.core import SpecError

SHARES = 64
"""Blocks are counted by so many (pairs.cu)."""
TRIED = (1, 2, 4, 8, 16, 32, 48, 56, 60, 62, 63)
"""Shares of blocks in double-floats that are measured."""


class Fp64Strategy(StrEnum):
    """How trajectories in double precision are computed."""

    NATIVE = "native"
    """In doubles: links have the bits of CPUs."""
    HYBRID = "hybrid"
    """Force, exponential and the links between them in pairs of floats; sums and the accept test in double."""
    CONCURRENT = "concurrent"
    """A measured share of the blocks in pairs of floats, the others in doubles."""
    AUTO = "auto"
    """The fastest of the three on the card at hand, by a measurement of seconds."""


class Fp64Choice(NamedTuple):
    """A strategy as an engine has it."""

    strategy: Fp64Strategy = Fp64Strategy.NATIVE
    """Never `auto`: what that became."""
    pair_share: int = 0
    """Of 64 blocks, those in double-floats."""
    asked: Fp64Strategy = Fp64Strategy.NATIVE
    measured: Mapping[int, float] = {}
    """Seconds of a walk by the blocks of 64 in double-floats, where a measurement was made."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of a walk by each strategy, `concurrent` by its best share."""
        best: dict[str, float] = {}
        for share, took in self.measured.items():
            name = str(_choice(share, self.asked).strategy)
            best[name] = min(took, best.get(name, took))
        return best

    @classmethod
    def of(cls, strategy: str, pair_share: int | None = None) -> "Fp64Choice | None":
        """Return the choice that needs no measurement, or None; raises when there is no such strategy or share."""
        if strategy not in list(Fp64Strategy):
            raise SpecError(f"`strategy` must be one of {', '.join(Fp64Strategy)}. Got {strategy!r}")
        asked = Fp64Strategy(strategy)
        if pair_share is not None and (asked != Fp64Strategy.CONCURRENT or not 0 < pair_share < SHARES):
            raise SpecError(
                f"`pair_share` is the blocks of {SHARES} in double-floats, from 1 to {SHARES - 1}, of the strategy "
                f"concurrent. Got {pair_share} for {asked}"
            )
        fixed = {Fp64Strategy.NATIVE: 0, Fp64Strategy.HYBRID: SHARES, Fp64Strategy.CONCURRENT: pair_share}.get(asked)
        return None if fixed is None else cls(asked, fixed, asked)

    @property
    def suffix(self) -> str:
        """What an engine's name says of it: nothing where links have the bits of CPUs."""
        share = f"-{self.pair_share}" if self.strategy == Fp64Strategy.CONCURRENT else ""
        return "" if self.strategy == Fp64Strategy.NATIVE else f":{self.strategy}{share}"

    @property
    def line(self) -> str:
        """The strategy and what it rests on, for a person."""
        share = f" ({self.pair_share}/{SHARES} of the blocks in double-floats)" if self.suffix.count("-") else ""
        figures = ", ".join(f"{name} {took * 1e3:.3g} ms" for name, took in self.seconds.items())
        return f"{self.strategy}{share}, " + (f"measured: {figures}" if figures else "as asked")


def choose(asked: str, walk_with: Callable[[Fp64Choice], Callable[[], None]]) -> Fp64Choice:
    """Measure strategies and return the fastest that `asked` allows.

    `walk_with` returns what walks a trajectory by a choice and waits for it; its first call is not counted.
    """
    wanted, took = Fp64Strategy(asked), {}
    for share in (0, *TRIED, SHARES):
        walk = walk_with(_choice(share, wanted))
        walk()
        took[share] = min(timeit.repeat(walk, timer=time.perf_counter, number=1, repeat=3))
    allowed = [share for share in took if wanted in (Fp64Strategy.AUTO, _choice(share, wanted).strategy)]
    return _choice(min(allowed, key=took.__getitem__), wanted)._replace(measured=took)


def _choice(share: int, asked: Fp64Strategy) -> Fp64Choice:
    ends = {0: Fp64Strategy.NATIVE, SHARES: Fp64Strategy.HYBRID}
    return Fp64Choice(ends.get(share, Fp64Strategy.CONCURRENT), share, asked)
