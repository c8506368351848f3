"""What is said about a campaign before it runs: lattices whose answer is blurred or that run slowly, and what is known.

What is known of the transition with sea quarks has citations, and stands in the report, too. It says what to expect and
what to compare with; nothing is fitted to it, and no range is derived from it.
"""

from typing import NamedTuple

from metalforge.native.cpu_engine import slow_extents

from .report.words import lattice_name
from .spec import CampaignSpec, Dims, Lattice

LEAST_ASPECT = 2
"""N_s / N_t below which finite-size effects are as large as what is looked for: at 2 the peak is shifted by about
0.1 (N_t / N_s)^3 = 0.013 in beta, and on smaller lattices it is hardly a peak."""


def size_cautions(spec: CampaignSpec) -> tuple[str, ...]:
    """Return a sentence for every volume that is small against its N_t."""
    said = []
    for dims in spec.lattice.volumes:
        aspect = min(dims[:3]) / dims[3]
        if aspect < LEAST_ASPECT:
            said.append(
                f"{lattice_name(dims)} has N_s / N_t = {aspect:.3g}, below {LEAST_ASPECT}: its beta_c has large "
                f"finite-size effects; spatial extents of {LEAST_ASPECT * dims[3]} or more have smaller ones"
            )
    return tuple(said)


def speed_cautions(spec: CampaignSpec) -> tuple[str, ...]:
    """Return a sentence for every volume that this machine's kernels run one site at a time."""
    said = []
    for dims in spec.lattice.volumes:
        if not slow_extents(dims, spec.lattice.precision):
            continue
        better = [lattice_name(other) for other in _fast(dims, spec.lattice.precision)]
        instead = f": {' or '.join(better)} would not" if better else ""
        said.append(
            f"{lattice_name(dims)} runs slowly, at three to five times the cost per site, since too few of its extents "
            f"are multiples of four{instead}"
        )
    return tuple(said)


def _fast(dims: Dims, precision: str) -> list[Dims]:
    """Return the nearest lattices, smaller and larger in space, whose extents the kernels take in vectors."""
    t = dims[3]
    found = []
    for up in (0, 1):
        x, y, z = (n if n % 4 == 0 else n // 4 * 4 + 4 * up for n in dims[:3])
        if min(x, y, z) >= 4 and not slow_extents((x, y, z, t), precision):
            found.append((x, y, z, t))
    return found


class KnownFact(NamedTuple):
    """A sentence or two, and who published it; no source where it is a remark of ours."""

    text: str
    source: str = ""


SYMMETRY = KnownFact(
    "Sea quarks break Z3, so there may be no phase transition at all but a crossover, and where it is one, peaks of "
    "different observables need not lie at the same beta. Re L, not |L|, is the observable that is located."
)
LIGHT = KnownFact(
    "Four flavours of one-link staggered quarks on N_t = 4: the transition of light quarks is of first order, at a "
    "beta_c of about 5.04 for am = 0.05. It moves to larger beta with the mass, towards 5.6925 without quarks.",
    "M. D'Elia and M.-P. Lombardo, Phys. Rev. D 67 (2003) 014505, hep-lat/0209146; "
    "S. Kratochvila and P. de Forcrand, Phys. Rev. D 73 (2006) 114512, hep-lat/0602005",
)
END = KnownFact(
    "The first-order transition of light quarks ends at a critical mass, above which there is a crossover. That mass "
    "has been located on N_t = 4 to 10 and shrinks with the lattice spacing.",
    "P. de Forcrand and M. D'Elia, PoS LATTICE2016 (2017) 081, arXiv:1702.00330; "
    "F. Cuteri, O. Philipsen and A. Sciarra, JHEP 11 (2021) 141, arXiv:2107.12739",
)
PUBLISHED_MASS = 0.05
"""The largest am for which a coupling is quoted here."""


def known_of(lattice: Lattice) -> tuple[KnownFact, ...]:
    """Return what is known of the transition that a scan looks for; nothing without sea quarks."""
    if not lattice.flavors:
        return ()
    times = {dims[3] for dims in lattice.volumes}
    if times != {4}:
        found = ", ".join(str(n) for n in sorted(times))
        return (
            SYMMETRY,
            KnownFact(f"No published coupling of four staggered flavours on N_t = {found} is recorded here."),
        )
    notes: tuple[KnownFact, ...] = (SYMMETRY, LIGHT, END)
    if lattice.mass > PUBLISHED_MASS:
        notes += (
            KnownFact(
                f"For am = {lattice.mass:g} no published coupling is recorded here, nor on which side of the critical "
                "mass it lies. B4 of the peak and its growth with the volume say which kind of transition it looks "
                "like."
            ),
        )
    return notes
