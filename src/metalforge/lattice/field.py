"""The gauge field: links in the kernels' own layout, with copies in and out in file order."""

import operator
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.native import kernels
from metalforge.native._threads import thread_count

__all__ = ["GaugeField", "Momenta", "Precision", "check_dims", "slow_extents"]

Precision = Literal["f64", "f32"]
ALL_LINKS = 255
DTYPES: dict[str, type[np.float64] | type[np.float32]] = {"f64": np.float64, "f32": np.float32}


def check_dims(dims: Sequence[int]) -> tuple[int, int, int, int]:
    """Return dims as a tuple; raises when they are not four even integers >= 2."""
    try:
        n_x, n_y, n_z, n_t = (operator.index(n) for n in dims)
        if any(n < 2 or n % 2 for n in (n_x, n_y, n_z, n_t)):
            raise ValueError
    except (TypeError, ValueError):
        raise SpecError(f"`dims` must be four even integers >= 2, (Nx, Ny, Nz, Nt). Got {dims!r}") from None
    return n_x, n_y, n_z, n_t


def slow_extents(dims: Sequence[int], precision: str = "f64") -> tuple[int, ...]:
    """Return the extents for which the kernels run this lattice one site at a time; none where they run it in vectors.

    A direction is cut in two, to fill the lanes of a vector, only when its extent is a multiple of four
    (`native/layout.hpp`): a vector of 2^n lanes wants n such directions. How wide vectors are is the build level's.
    """
    lanes = getattr(kernels(), f"layout_{precision}")((4, 4, 4, 4)).lanes
    slow = [n for n in check_dims(dims) if n % 4]
    return tuple(sorted(set(slow))) if 2 ** (4 - len(slow)) < lanes else ()


class GaugeField:
    """SU(3) links on a periodic lattice of `dims` = (Nx, Ny, Nz, Nt), in single or double precision.

    `threads` is what every kernel call on this field uses; None means the package default.
    """

    def __init__(self, dims: Sequence[int], *, precision: Precision = "f64", threads: int | None = None) -> None:
        if precision not in DTYPES:
            raise SpecError(f"`precision` must be f64 or f32. Got `{precision}`")
        self.dims = check_dims(dims)
        self.precision: Precision = precision
        self.threads = thread_count(threads)
        self.layout = self.kernel("layout")(self.dims)
        self.links = aligned_zeros((self.layout.vectors, 4, 18, self.layout.lanes), DTYPES[precision])
        self.links[:, :, [0, 8, 16], :] = 1  # the real parts of the diagonal: a cold start

    @property
    def volume(self) -> int:
        """Number of sites."""
        return int(np.prod(self.dims))

    @property
    def spatial_volume(self) -> int:
        """Nx Ny Nz."""
        return self.volume // self.dims[3]

    def kernel(self, name: str) -> Any:
        """Return a kernel for this field's precision."""
        return getattr(kernels(), f"{name}_{self.precision}")

    @classmethod
    def hot(cls, dims: Sequence[int], *, seed: int, stream: int = 0, **options: Any) -> Self:
        """Return links drawn from the Haar measure."""
        field = cls(dims, **options)
        field.kernel("set_hot")(field.layout, field.links, seed, stream, 0, field.threads)
        return field

    @classmethod
    def from_links(cls, links: NDArray[np.complexfloating[Any, Any]], **options: Any) -> Self:
        """Return a field from host links of shape (Nt, Nz, Ny, Nx, 4, 3, 3)."""
        links = np.asarray(links)
        if links.ndim != 7 or links.shape[4:] != (4, 3, 3):
            raise SpecError(f"`links` must have shape (Nt, Nz, Ny, Nx, 4, 3, 3). Got {links.shape}")
        field = cls(links.shape[3::-1], **options)
        host = np.ascontiguousarray(links, dtype=np.complex128)
        field.kernel("pack")(field.layout, host.view(np.float64).reshape(*host.shape, 2), field.links, field.threads)
        return field

    def to_links(self) -> NDArray[np.complex128]:
        """Return the links in file order, shape (Nt, Nz, Ny, Nx, 4, 3, 3)."""
        host = np.empty((*self.dims[::-1], 4, 3, 3), np.complex128)
        self.kernel("unpack")(self.layout, self.links, host.view(np.float64).reshape(*host.shape, 2), self.threads)
        return host

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)(self.dims, precision=self.precision, threads=self.threads)
        other.links[...] = self.links
        return other

    def plaquette_sums(self) -> tuple[float, float]:
        """Return sum_p Re tr U_p / 3 over spatial and over temporal plaquettes, in double precision."""
        spatial, temporal = self.kernel("plaquette_sums")(self.layout, self.links, self.threads)
        return float(spatial), float(temporal)

    def action(self, beta: float) -> float:
        """Return the Wilson action S = beta sum_p (1 - Re tr U_p / 3)."""
        return beta * (6 * self.volume - sum(self.plaquette_sums()))

    def polyakov(self) -> complex:
        """Return the Polyakov loop tr / 3, averaged over space."""
        return complex(self.kernel("polyakov")(self.layout, self.links, self.threads)) / self.spatial_volume

    def clover(self) -> tuple[float, float]:
        """Return the energy density E (mean over sites) and the topological charge Q from the clover field strength."""
        energy, charge = self.kernel("clover_sums")(self.layout, self.links, self.threads)
        return float(energy) / self.volume, float(charge)

    def reunitarise(self) -> None:
        """Project every link back to SU(3); for links that are off by rounding."""
        self.kernel("reunitarise")(self.layout, self.links, self.threads)

    def heatbath(self, beta: float, *, seed: int, stream: int, step: int, selection: int = ALL_LINKS) -> None:
        """Update every link once by the SU(2) subgroup heat bath.

        `selection` restricts it: bit 2 mu + parity stands for the links in direction mu at sites of that parity.
        """
        if not (np.isfinite(beta) and beta >= 0):
            raise SpecError(f"`beta` must be a finite number >= 0. Got {beta}")
        self.kernel("heatbath")(self.layout, self.links, beta, seed, stream, step, selection, self.threads)

    def overrelax(self, *, selection: int = ALL_LINKS) -> None:
        """Update every link once by microcanonical overrelaxation; the action does not change."""
        self.kernel("overrelax")(self.layout, self.links, selection, self.threads)


class Momenta:
    """Eight reals a link, conjugate to the links of one field."""

    def __init__(self, field: GaugeField) -> None:
        self._field = field
        self.values = aligned_zeros((field.layout.vectors, 4, 8, field.layout.lanes), DTYPES[field.precision])

    def refresh(self, *, seed: int, stream: int, step: int) -> None:
        """Draw every component from the standard normal distribution."""
        field = self._field
        field.kernel("refresh_momenta")(field.layout, self.values, seed, stream, step, field.threads)

    def kinetic(self) -> float:
        """Return sum pi_a^2 / 2 in double precision."""
        field = self._field
        return float(field.kernel("kinetic")(field.layout, self.values, field.threads))

    def evolve(self, beta: float, stages: NDArray[np.float64]) -> None:
        """Walk the stages of an integrator: links and momenta move together."""
        field = self._field
        field.kernel("evolve")(field.layout, field.links, self.values, beta, stages, field.threads)

    def kick(self, coefficient: float, *, keep: float = 1.0) -> None:
        """Set pi = keep * pi - coefficient * dS/dw, with S at beta = 1."""
        field = self._field
        field.kernel("kick_momenta")(field.layout, field.links, self.values, keep, coefficient, field.threads)

    def move_links(self, eps: float) -> None:
        """Move the links by exp(i eps pi_a T_a)."""
        field = self._field
        field.kernel("move_links")(field.layout, field.links, self.values, eps, field.threads)


def aligned_zeros(shape: tuple[int, ...], dtype: type[np.float64] | type[np.float32]) -> NDArray[Any]:
    """Return zeros that start on a cache line, so that no vector straddles two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
