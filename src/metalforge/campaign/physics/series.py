"""`PointSeries`, what one chain measured at one beta, and what reweighting needs of it."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

Dims = tuple[int, ...]


COLUMNS = ("plaquette", "polyakov", "observable", "action_density", "replica")
"""The fields of a series that have a number for every row."""


class PointSeries(NamedTuple):
    """The measured rows of one chain, after its warm-up: the plaquette and the Polyakov loop averaged over space.

    `observable` is the order parameter whose fluctuations are looked at, where that is not |L|.
    """

    beta: float
    dims: Dims
    plaquette: NDArray[np.float64]
    polyakov: NDArray[np.complex128]
    start: str = ""
    """`hot` or `cold`, where it is known."""
    observable: NDArray[np.float64] | None = None
    action_density: NDArray[np.float64] | None = None
    """S / (beta V), where the action is not a function of the plaquette."""
    chain: str = ""
    """What the chain is called, where it has a name."""
    ladder: str = ""
    """The ladder with whose chains it exchanges couplings: rows of one ladder stand beside each other in time."""
    replica: NDArray[np.float64] | None = None
    """Which replica of the ladder made each row."""
    superseded: bool = False
    """Whether its volume has exchanged couplings since, because chains such as this one did not tunnel."""

    def up_to(self, rows: int | None) -> "PointSeries":
        """Return the first rows of it; None is all."""
        cut: dict[str, Any] = {name: None if (x := getattr(self, name)) is None else x[:rows] for name in COLUMNS}
        return self._replace(**cut)

    @property
    def spatial_volume(self) -> int:
        """N_s^3 = Nx Ny Nz."""
        return self.dims[0] * self.dims[1] * self.dims[2]

    @property
    def energy(self) -> NDArray[np.float64]:
        """E, the gauge action divided by beta; for Wilson's sum_p (1 - Re tr U_p / 3) = 6 V (1 - P).

        Reweighting in beta by exp(-dbeta E) is exact with sea quarks, too: their determinant does not depend on beta.
        """
        if self.action_density is not None:
            return float(self.spatial_volume * self.dims[3]) * self.action_density
        return 6.0 * self.spatial_volume * self.dims[3] * (1.0 - self.plaquette)

    @property
    def abs_loop(self) -> NDArray[np.float64]:
        """|L|, the order parameter whose sign and sector do not matter."""
        return np.abs(self.polyakov)

    @property
    def order(self) -> NDArray[np.float64]:
        """The order parameter of the scan: `observable` where there is one, else |L|."""
        return self.abs_loop if self.observable is None else self.observable

    @property
    def order_name(self) -> str:
        """How `order` is called in sentences."""
        return "|L|" if self.observable is None else "the order parameter"


def as_point(point: PointSeries) -> PointSeries:
    """Return the series with its arrays as doubles, if it is one."""
    plaquette = np.asarray(point.plaquette, dtype=np.float64)
    polyakov = np.asarray(point.polyakov, dtype=np.complex128)
    name = f"the series at beta = {point.beta:g}"
    if plaquette.ndim != 1 or plaquette.shape != polyakov.shape:
        raise SpecError(
            f"{name} must hold one plaquette and one Polyakov loop per row. Got {plaquette.shape} and {polyakov.shape}"
        )
    if not np.isfinite(point.beta) or not (np.all(np.isfinite(plaquette)) and np.all(np.isfinite(polyakov))):
        raise SpecError(f"{name} must be finite. Got NaN or infinity\nhint: find out why the run diverged")
    return point._replace(
        beta=float(point.beta),
        plaquette=plaquette,
        polyakov=polyakov,
        observable=_as_column(point.observable, plaquette.size, f"{name} must hold one finite order parameter"),
        action_density=_as_column(point.action_density, plaquette.size, f"{name} must hold one finite action density"),
    )


def _as_column(column: NDArray[np.float64] | None, rows: int, wanted: str) -> NDArray[np.float64] | None:
    if column is None:
        return None
    values = np.asarray(column, dtype=np.float64)
    if values.shape != (rows,) or not np.all(np.isfinite(values)):
        raise SpecError(f"{wanted} per row. Got {values.shape} of them")
    return values
