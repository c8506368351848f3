"""Random numbers by address: the same draw on every machine, for any number of threads."""

from typing import NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ._level import kernels, thread_count


class Fill(TypedDict, total=False):
    """How an array is filled; neither choice changes what is in it."""

    threads: int | None
    out: NDArray[np.float64] | None


class Stream(NamedTuple):
    """A stream of Philox4x32-10 draws, identified by a seed (64 bits) and a stream number (32 bits).

    A draw is a pure function of (seed, stream, step, site, draw): `step` counts updates (trajectories), `site` lattice
    sites or items, `draw` what is drawn at one site within one step. One counter gives two doubles, so draws come in
    pairs: column ``2 d + k`` of a row is number k of counter ``first_draw + d``.

    >>> Stream(seed=7).uniform(step=0, sites=2, draws=2).shape
    (2, 2)
    """

    seed: int
    stream: int = 0

    def uniform(
        self, *, step: int, sites: int, draws: int, first_site: int = 0, first_draw: int = 0, **options: Unpack[Fill]
    ) -> NDArray[np.float64]:
        """Return uniforms in the open interval (0, 1), shape (sites, draws); `draws` is even."""
        return self._fill("uniform", (sites, draws), (step, first_site, first_draw), **options)

    def normal(
        self, *, step: int, sites: int, draws: int, first_site: int = 0, first_draw: int = 0, **options: Unpack[Fill]
    ) -> NDArray[np.float64]:
        """Return standard normals, shape (sites, draws); `draws` is even."""
        return self._fill("normal", (sites, draws), (step, first_site, first_draw), **options)

    def _fill(
        self,
        kind: str,
        shape: tuple[int, int],
        address: tuple[int, int, int],
        threads: int | None = None,
        out: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        out = np.empty(shape) if out is None else out
        getattr(kernels(), kind)(out, self.seed, self.stream, *address, thread_count(threads))
        return out
