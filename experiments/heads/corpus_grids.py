"""The grids of a corpus: couplings, starts and seeds, each chain with a stream of its own.

The grids that come with the package are in `corpus_grids.toml`, by name. Every chain is recorded from its first
update on. Couplings that train and couplings that test are disjoint on a lattice, and the two parts have seeds of
their own.
"""

from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from typing import Literal

import msgspec

from experiments.corpora import PARTS
from metalforge.core.errors import SpecError, find

from .corpus_file import ChainEntry, Dims, Start

STARTS: tuple[Start, ...] = ("hot", "cold")


class CorpusGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains on one lattice: every coupling with every start, length of a trajectory and seed."""

    dims: Dims
    train: tuple[float, ...]
    test: tuple[float, ...]
    updates: int
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    seeds: int = 2
    lengths: tuple[float, ...] = (1.0,)
    """Times of a trajectory; its steps are tuned in the warm-up, as in a campaign."""
    quenched: int = 0
    warmup: int = 0
    mass: float = 0.0
    flavors: Literal[0, 4] = 0
    faults: tuple[str, ...] = ()
    """One chain for each at every coupling, instead of sound ones; hot and cold in turn."""
    fault_length: int = 64

    def __post_init__(self) -> None:
        both = set(self.train) & set(self.test)
        if both or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {sorted(both)} in both")
        if (self.flavors > 0) != (self.mass > 0):
            raise SpecError(f"`mass` goes with `flavors`. Got {self.mass} and {self.flavors}")
        if self.algorithm == "heatbath" and (self.flavors or len(self.lengths) > 1 or self.quenched):
            raise SpecError("`flavors`, `lengths` and `quenched` are for trajectories: set `algorithm` to hmc")
        if not 0 <= self.quenched <= self.warmup < self.updates:
            raise SpecError(
                "a chain wants 0 <= quenched <= warmup < updates. "
                f"Got {self.quenched}, {self.warmup} and {self.updates}"
            )


class CorpusSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a corpus; training chains have `seed`, test chains the next one."""

    grids: tuple[CorpusGrid, ...]
    seed: int = 2026

    def entries(self, part: str = "all") -> Iterator[ChainEntry]:
        """Give every chain of a part, each with a stream of its own that does not depend on what is asked for."""
        stream = 0
        for grid, of in product(self.grids, PARTS):
            for beta in grid.train if of == "train" else grid.test:
                sound = [(start, length, "") for start, length, _ in product(STARTS, grid.lengths, range(grid.seeds))]
                spoiled = [(STARTS[i % 2], grid.lengths[0], fault) for i, fault in enumerate(grid.faults)]
                for start, length, fault in spoiled or sound:
                    # In the second half, where a chain is in equilibrium, and not at the same place in every chain.
                    room = max(grid.updates // 2 - 2 * grid.fault_length, 1)
                    if part in (of, "all"):
                        yield ChainEntry(
                            part=of,
                            beta=beta,
                            dims=grid.dims,
                            start=start,
                            seed=self.seed + PARTS.index(of),
                            stream=stream,
                            updates=grid.updates,
                            algorithm=grid.algorithm,
                            length=length,
                            quenched=grid.quenched,
                            warmup=grid.warmup,
                            mass=grid.mass,
                            flavors=grid.flavors,
                            fault=fault,
                            fault_from=grid.updates // 2 + (37 * stream) % room if fault else 0,
                            fault_length=grid.fault_length if fault else 0,
                        )
                    stream += 1


GRIDS = msgspec.toml.decode(
    files(__package__).joinpath("corpus_grids.toml").read_bytes(), type=dict[str, tuple[CorpusGrid, ...]]
)


def corpus_spec(grid: str, *, seed: int = 2026) -> CorpusSpec:
    """Return the specification of a grid by its name."""
    return CorpusSpec(grids=find("grid of chains", grid, GRIDS), seed=seed)
