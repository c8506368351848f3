r"""Replica exchange: chains at neighbouring couplings that swap them, so that each passes through all phases.

K replicas, links with random numbers of their own, hold K couplings beta_1 < ... < beta_K. The weight of all is
prod_i exp(-beta_i E_i) times what does not depend on beta (the determinant of sea quarks of one mass), so that swapping
the couplings of two neighbours with probability

    min(1, exp((beta_i - beta_j) (E_i - E_j)))

leaves it as it is (K. Hukushima and K. Nemoto, J. Phys. Soc. Jpn. 65 (1996) 1604). Before an update the pairs (1, 2),
(3, 4), ... are tested, before the next one (2, 3), (4, 5), ... What moves is the coupling, with the trajectory that was
tuned for it; links stay where they are. Rows stay with their coupling; the observable `replica` of a row says which
replica made it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Row, SpecError
from metalforge.native import Stream

from .chain import Chain
from .observables import Columns
from .run import ChainRun

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
STREAMS = 1 << 31
"""Added to the first replica's stream for the numbers of swap tests: no chain has a stream so high."""


def swapped(betas: ArrayLike, energies: ArrayLike, uniforms: ArrayLike, first: int) -> Whole:
    """Return who holds each coupling after a round of tests of the pairs (first, first + 1), (first + 2, ...), ...

    Entry i is the place at which the replica was that now holds coupling i; `uniforms` has a number for each place, of
    which a pair uses that of its lower one.
    """
    beta, energy, uniform = (np.asarray(x, np.float64) for x in (betas, energies, uniforms))
    low = np.arange(first, beta.size - 1, 2)
    exponent = (beta[low] - beta[low + 1]) * (energy[low] - energy[low + 1])
    accepted = low[np.log(uniform[low]) < exponent]
    holder = np.arange(beta.size)
    holder[accepted], holder[accepted + 1] = accepted + 1, accepted
    return holder


class ReplicaLadder:
    """Runs of one lattice at ascending couplings, moved together; each logs the rows of its coupling."""

    def __init__(self, runs: Sequence[ChainRun]) -> None:
        specs = [run.chain.spec for run in runs]
        betas = [spec.beta for spec in specs]
        if len(runs) < 2 or any(a >= b for a, b in pairwise(betas)):
            raise SpecError(f"a ladder needs two or more couplings in ascending order. Got {betas}")
        alike = {(s.dims, s.algorithm, s.action, s.precision, s.seed, s.fermions, s.hmc.tau) for s in specs}
        if (
            len(alike) > 1
            or len({run.chain.step for run in runs}) > 1
            or len({spec.stream for spec in specs}) < len(runs)
        ):
            raise SpecError(
                "the chains of a ladder must differ in nothing but beta, stream and start, and stand at the same update"
                "\nhint: streams must all be different; begin all of them together"
            )
        self.runs = list(runs)
        self.first_stream = min(spec.stream for spec in specs)

    @property
    def betas(self) -> list[float]:
        """The couplings."""
        return [run.chain.spec.beta for run in self.runs]

    def step(self) -> list[Row]:
        """Test swaps, then make one update at every coupling; return the rows by coupling."""
        self.exchange()
        return [run.step() for run in self.runs]

    def energies(self) -> list[float]:
        """Return E of every replica by its last row, in order of couplings; none where there is no such row for all."""
        if not all(run.log.phases and run.log.phases[-1] != "quench" for run in self.runs):
            return []
        chain = self.runs[0].chain
        action, volume = chain.action, chain.field.volume
        return [action.energy_of(run.log.columns[action.variable][-1], volume) for run in self.runs]

    def sort(self, columns: Sequence[Columns], replicas: Sequence[Chain]) -> list[tuple[Columns, list[float]]]:
        """Return what a batch gave of the replicas by coupling, with who held it; from now on the last holder does."""
        betas, trajectories = self.betas, [run.chain.spec.hmc for run in self.runs]
        holder = np.argsort([one["beta"] for one in columns], axis=0)  # (couplings, updates)
        streams = np.array([float(chain.spec.stream) for chain in replicas])
        names = [name for name in columns[0] if name != "beta"]
        tables = {name: np.take_along_axis(np.array([one[name] for one in columns]), holder, axis=0) for name in names}
        for run, last, beta, hmc in zip(self.runs, holder[:, -1], betas, trajectories, strict=True):
            run.chain = replicas[last]
            run.chain.hold(beta, hmc)
        return [
            ({name: table[k].tolist() for name, table in tables.items()}, streams[holder[k]].tolist())
            for k in range(len(replicas))
        ]

    def exchange(self) -> None:
        """Swap couplings by the last rows; before the first update, and while there are no sea quarks yet, nothing is.

        It comes before an update and not after it, so that links always are those of their coupling's last row.
        """
        if not (energies := self.energies()):
            return
        chains = [run.chain for run in self.runs]
        at = chains[0].step
        address = Stream(chains[0].spec.seed, STREAMS + self.first_stream)
        uniforms = address.uniform(step=at, sites=len(chains), draws=2, threads=1)[:, 0]
        betas = self.betas
        trajectories = [c.spec.hmc for c in chains]
        for run, holder, beta, hmc in zip(
            self.runs, swapped(betas, energies, uniforms, at % 2), betas, trajectories, strict=True
        ):
            run.chain = chains[holder]
            run.chain.hold(beta, hmc)
        # Any replica may come to any coupling: the range of rational functions must hold for all.
        seas = [c.sea for c in chains if c.sea is not None]
        for sea in seas:
            sea.seen = max(other.seen for other in seas)
