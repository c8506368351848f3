"""What a corpus is made of: grids of couplings, starts, step sizes and seeds, each chain with a stream of its own.

The grids of the default corpus and of the quick one are in `data/corpora.toml`.

Every chain is recorded from its first trajectory on, with fixed parameters. Couplings that train and couplings that
test share nothing, on any lattice. Some chains have a fault that goes on for some trajectories: `bad_links` puts random
matrices on some links before each trajectory, `wrong_step` integrates with steps `coarser` times as long as it says,
`cg_stall` solves for a lighter quark than it says, so that its solves take longer.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import product
from typing import Literal

import msgspec

from metalforge.core.errors import SpecError

from .chains import ChainEntry, Dims, Fault, Part
from .features import ChainContext

STARTS: tuple[Literal["hot", "cold"], ...] = ("hot", "cold")


class CorpusGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains on one lattice: every coupling with every start, trajectory and seed; the faults beside them.

    `far` are two couplings deep in either phase, for the cut between the phases.
    """

    dims: Dims
    train: tuple[float, ...]
    test: tuple[float, ...]
    far: tuple[float, float]
    steps: tuple[tuple[float, int], ...] = ((1.0, 5), (1.0, 7), (1.0, 10), (0.6, 4))
    """Length and number of steps of a trajectory; the first are too coarse on purpose, faults run with the last."""
    seeds: int = 1
    trajectories: int = 120
    faults: tuple[Fault, ...] = ("bad_links", "wrong_step")
    mass: float = 0.0
    flavors: Literal[0, 4] = 0

    def __post_init__(self) -> None:
        both = set(self.train) & set(self.test)
        if both or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {sorted(both)} in both")
        if (self.flavors > 0) != (self.mass > 0):
            raise SpecError(f"`mass` goes with `flavors`. Got {self.mass} and {self.flavors}")
        if "cg_stall" in self.faults and not self.flavors:
            raise SpecError("`cg_stall` needs `flavors`: a quenched chain solves nothing")


_GRIDS = msgspec.toml.decode(
    files(__package__).joinpath("data/corpora.toml").read_bytes(), type=dict[str, tuple[CorpusGrid, ...]]
)


class CorpusSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a corpus, but for the seconds it took."""

    grids: tuple[CorpusGrid, ...] = _GRIDS["default"]
    untested: int = 6
    reference: int = 800
    """Trajectories of a long run that are kept; a quarter as many were dropped before them."""
    bad_share: float = 0.03
    """Share of links that `bad_links` spoils."""
    coarser: float = 1.7
    lighter: float = 0.3
    fault_length: int = 8
    seed: int = 2026

    def __post_init__(self) -> None:
        both = {b for grid in self.grids for b in grid.train} & {b for grid in self.grids for b in grid.test}
        if both or not self.grids:
            raise SpecError(f"no coupling may train on one lattice and test on another. Got {sorted(both)} in both")


QUICK_CORPUS = CorpusSpec(grids=_GRIDS["quick"], reference=200)
"""A corpus of the same kind that is made in seconds."""


def chain_entries(spec: CorpusSpec) -> Iterator[ChainEntry]:
    """Return every chain of a specification, each with a stream of its own."""
    stream = 0
    parts: tuple[Part, ...] = ("train", "test")
    for grid, part in product(spec.grids, parts):
        for beta in grid.train if part == "train" else grid.test:
            sound = [(start, step, None) for start, step, _ in product(STARTS, grid.steps, range(grid.seeds))]
            spoiled = [
                (STARTS[i % 2], grid.steps[-1], fault) for i, fault in enumerate(grid.faults) for _ in range(grid.seeds)
            ]
            for start, (tau, n_steps), fault in (*sound, *spoiled):
                # In the second half, where a chain is in equilibrium, and not at the same place in every chain.
                room = max(grid.trajectories // 2 - spec.fault_length, 1)
                yield ChainEntry(
                    part=part,
                    beta=beta,
                    dims=grid.dims,
                    start=start,
                    tau=tau,
                    n_steps=n_steps,
                    stream=stream,
                    trajectories=grid.trajectories,
                    untested=spec.untested,
                    mass=grid.mass,
                    flavors=grid.flavors,
                    fault=fault,
                    fault_from=grid.trajectories // 2 + (7 * stream) % room if fault else 0,
                    fault_length=spec.fault_length if fault else 0,
                )
                stream += 1


def equilibria(spec: CorpusSpec, entries: Sequence[ChainEntry]) -> Iterator[ChainContext]:
    """Return every equilibrium that has chains, and the two far ones of every grid."""
    far = [
        ChainContext(beta=beta, dims=grid.dims, mass=grid.mass, flavors=grid.flavors)
        for grid in spec.grids
        for beta in grid.far
    ]
    yield from dict.fromkeys([*far, *(entry.place for entry in entries)])
