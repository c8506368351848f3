"""What is known of the transition with sea quarks, with citations: said before a scan and in its report.

It says what to expect and what to compare with; nothing is fitted to it, and no range is derived from it.
"""

from typing import NamedTuple

from .spec import Lattice

__all__ = ["KnownFact", "known_of"]


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
