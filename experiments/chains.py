"""Chains of the pure gauge theory for studies that record every update."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.lattice.chain import Chain, ChainSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp

Start: TypeAlias = Literal["hot", "cold"]
LOOP = ("plaquette", "polyakov_re", "polyakov_im")
"""Columns of a row that holds the plaquette and the Polyakov loop."""


def sweeping(spec: ChainSpec, *, warmup: int = 0, observed: tuple[str, ...] = LOOP) -> ChainRun:
    """Return a chain on one core, with a row of the observables `observed` after every update."""
    return ChainRun(Chain(spec, threads=1), WarmUp(total=warmup), observed)


def measured(run: ChainRun, updates: int) -> NDArray[np.float64]:
    """Return the rows of so many measured updates, after the rest of the warm-up; the run keeps none."""
    while run.phase != "measure":
        run.step()
    begin = run.log.end
    for _ in range(updates):
        run.step()
    rows = np.array([column[begin - run.log.first :] for column in run.log.columns.values()]).T
    run.log.forget(run.log.end)
    return rows
