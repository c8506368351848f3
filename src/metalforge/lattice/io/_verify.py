"""Plaquette, link trace and unitarity in NumPy, used only to hold a file's links against its header.

Small and slow on purpose: these are a second opinion about files, not the measurements of a run.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import ConfigurationFileError
from ._links import Links, Precision, checked_links

__all__ = [
    "LINK_TRACE_TOLERANCE",
    "PLAQUETTE_TOLERANCE",
    "UNITARITY_TOLERANCE",
    "check_close",
    "check_finite",
    "check_special_unitary",
    "link_trace",
    "plaquette",
    "ready_to_write",
    "third_row",
]

# What Grid allows between a NERSC header and its data: the header is printed text, often of a float.
# https://github.com/paboyle/Grid, Grid/parallelIO/NerscIO.h, readConfiguration.
PLAQUETTE_TOLERANCE = 1e-5
LINK_TRACE_TOLERANCE = 1e-6

# f32: what MILC allows (https://github.com/milc-qcd/milc_qcd, generic/check_unitarity.c, TOLERANCE).
# f64: above the rounding of a hundred thousand link updates without reunitarisation, below one of single precision.
UNITARITY_TOLERANCE: dict[Precision, float] = {"f32": 1e-4, "f64": 1e-10}

_SITE_AXIS = (3, 2, 1, 0)  # the array axis of direction mu


def plaquette(links: Links) -> float:
    """P = mean over sites and the six planes of Re tr U_p / 3; 1 for unit links."""
    total = 0.0
    for mu in range(4):
        for nu in range(mu):
            ahead = np.roll(links[..., nu, :, :], -1, axis=_SITE_AXIS[mu])
            aside = np.roll(links[..., mu, :, :], -1, axis=_SITE_AXIS[nu])
            first = links[..., mu, :, :] @ ahead
            second = links[..., nu, :, :] @ aside
            total += float(np.sum((first * second.conj()).real))  # Re tr (first second^dagger)
    return total / (6 * 3 * (links.size // 36))


def link_trace(links: Links) -> float:
    """Mean over sites and directions of Re tr U / 3."""
    return float(np.mean(np.trace(links, axis1=-2, axis2=-1).real)) / 3


def third_row(rows: Links) -> Links:
    """The third row of SU(3) matrices from the first two: conj(row 1 x row 2). `rows` has shape (..., >= 2, 3)."""
    with np.errstate(over="ignore", invalid="ignore"):  # foreign numbers may overflow; the SU(3) check finds them
        return np.cross(rows[..., 0, :], rows[..., 1, :]).conj()


def check_finite(values: NDArray[Any], what: str) -> None:
    """Raise if any of the stored numbers is a NaN or infinite."""
    if not np.isfinite(values).all():
        raise ConfigurationFileError(f"{what}: holds NaN or infinite numbers; the file is damaged")


def check_special_unitary(links: Links, precision: Precision, what: str) -> None:
    """Raise if a link is not in SU(3) within the tolerance of its precision.

    Rows 1 and 2 orthonormal and row 3 = conj(row 1 x row 2) together are U U^dagger = 1 and det U = 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow compares as too large
        first, second = links[..., 0, :], links[..., 1, :]
        off = np.abs(np.sum(first * second.conj(), axis=-1))
        for row in (first, second):
            off = np.maximum(off, np.abs(np.sum(np.abs(row) ** 2, axis=-1) - 1))
        off = np.maximum(off, np.max(np.abs(links[..., 2, :] - third_row(links)), axis=-1))
    tolerance = UNITARITY_TOLERANCE[precision]
    if not bool((off <= tolerance).all()):
        worst = np.argmax(np.where(np.isnan(off), np.inf, off))
        t, z, y, x, mu = (int(i) for i in np.unravel_index(worst, off.shape))
        raise ConfigurationFileError(
            f"{what}: the link at (x, y, z, t) = ({x}, {y}, {z}, {t}), mu = {mu} is not in SU(3): "
            f"off by {off.flat[worst]:.2g}, {tolerance:g} is allowed for {precision}\n"
            "hint: pass verify=False if the links are meant to be like this (smeared, open boundary)"
        )


def check_close(field: str, stored: float, found: float, tolerance: float) -> None:
    """Raise if a header value differs from what the links give."""
    if not abs(stored - found) <= tolerance:
        raise ConfigurationFileError(
            f"{field}: the header says {stored:.12g}, the links give {found:.12g}; "
            "the data are damaged or follow another convention"
        )


def ready_to_write(links: NDArray[Any], precision: Precision, verify: bool) -> NDArray[Any]:
    """`links` as a contiguous complex array of `precision`, refused if a reader would refuse them."""
    with np.errstate(over="ignore"):  # what does not fit in single precision is infinite and found below
        narrow = np.ascontiguousarray(checked_links(links), dtype=np.complex64 if precision == "f32" else np.complex128)
    check_finite(narrow, "links")
    if verify:
        check_special_unitary(narrow.astype(np.complex128, copy=False), precision, "links")
    return narrow
