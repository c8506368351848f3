"""Colour fields and the staggered operator on a GPU (staggered.cu)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metalforge.native.engine import Floats, Precision

from .card import CHAIN_ROW, LATTICE, LINK_THREADS, SUMS, DeviceBuffer, Launcher
from .solver import MOST_SHIFTS, CudaSolver, filled

if TYPE_CHECKING:
    from .grid import CudaGrid

COLOUR_THREADS = 64
"""Threads of a block of the kernels that have a thread per site of one parity."""
WORK = np.dtype(
    [
        *LATTICE,
        ("parity", "i4"),
        ("count", "i4"),
        ("one", CHAIN_ROW),
        ("draw", "u8"),
        *((name, "u8") for name in ("links", "hopping", "out", "source", "x", "middle", "momenta", "host")),
        *SUMS,
        ("keep", "2f8"),
        ("factor", "2f8"),
        ("diagonal", "f8"),
        ("first", f"{MOST_SHIFTS}u8"),
        ("second", f"{MOST_SHIFTS}u8"),
        ("numbers", f"{MOST_SHIFTS}f8"),
    ],
    align=True,
)
"""The record of staggered.cu."""


class ColourKernels(Launcher):
    """Kernels with a thread per site of one parity, or a thread per link."""

    def __init__(self, sites: "CudaGrid") -> None:
        super().__init__(sites, "staggered.cu", WORK)
        self.sites = sites
        self._colour_blocks = -(-sites.half // COLOUR_THREADS)

    def on_sites(self, kernel: str, **values: Any) -> None:
        """Launch a kernel with a thread per site."""
        self(kernel, self._colour_blocks, COLOUR_THREADS, **values)

    def on_links(self, kernel: str, **values: Any) -> None:
        """Launch a kernel with a thread per link."""
        self(kernel, 2 * self.sites.padded // (LINK_THREADS // 4), LINK_THREADS, **values)


class CudaStaggered:
    """The staggered operator of one grid; `hopping` is its copy of the links, of which it keeps two rows.

    H on one parity reads eight links of 12 reals, a vector that stays in the cache, and writes one: 108 reals per site.
    """

    def __init__(self, kernels: ColourKernels, hopping: DeviceBuffer) -> None:
        self._kernels, self._hopping = kernels, hopping

    def refresh(self, links: DeviceBuffer, precision: Precision) -> None:
        self._kernels.on_links(f"take_up_{precision}", links=links, hopping=self._hopping)

    def hop(self, out: DeviceBuffer, source: DeviceBuffer, parity: int) -> None:
        self._kernels.on_sites("hop_field", hopping=self._hopping, out=out, source=source, parity=parity)

    def normal(
        self,
        out: DeviceBuffer,
        source: DeviceBuffer | None,
        x: DeviceBuffer,
        scratch: DeviceBuffer,
        diagonal: float,
        parity: int,
    ) -> float:
        self.hop(scratch, x, 1 - parity)
        fields = {"hopping": self._hopping, "out": out, "x": x, "middle": scratch}
        given = {} if source is None else {"source": source}
        self._kernels.on_sites("normal_field", **fields, **given, diagonal=diagonal, parity=parity)
        return float(self._kernels.sites.summed(1)[0])

    def force(
        self,
        momenta: DeviceBuffer,
        fields: Sequence[DeviceBuffer],
        scratch: Sequence[DeviceBuffer],
        coefficients: Floats,
    ) -> None:
        together = [(x.address, y.address, float(c)) for x, y, c in zip(fields, scratch, coefficients, strict=False)]
        for start in range(0, len(together), MOST_SHIFTS):
            part = together[start : start + MOST_SHIFTS]
            first, second, numbers = (filled(column) for column in zip(*part, strict=True))
            values: dict[str, Any] = {"first": first, "second": second, "numbers": numbers, "count": len(part)}
            self._kernels.on_sites("hop_all_fields", hopping=self._hopping, **values)
            self._kernels.on_links("staggered_force", hopping=self._hopping, momenta=momenta, **values)

    def solver(self, shifts: int) -> CudaSolver:
        return CudaSolver(self._kernels.sites, self._hopping, shifts)
