"""What is published of the transition, and what is said about a campaign before it runs.

Critical couplings are those of the quenched theory with the Wilson action, in infinite spatial volume, by N_t. They say
where to look and what to compare with; nothing is fitted to them. A value belongs to infinite volume: the peak of chi
on one lattice lies elsewhere, by about 0.1 (N_t / N_s)^3 (`finite_size`). What is known with sea quarks has citations;
it stands in the report, too.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from metalforge.campaign import system_name
from metalforge.core import Paragraphs

if TYPE_CHECKING:
    from .theory import Lattice

HALF_WIDTH = 0.1
"""Half of a derived range: eight times the shift of the peak at N_s = 2 N_t, and wide enough to see both phases."""
GRID = 20
"""Ends of a derived range are whole multiples of 1 / 20, so that people can read them."""


class Published(NamedTuple):
    """beta_c of infinite volume as it was printed, with its error in brackets; by whom, in short and in full."""

    n_t: int
    printed: str
    short: str
    source: str

    @property
    def beta_c(self) -> float:
        """The coupling."""
        return float(self.printed.partition("(")[0])

    @property
    def error(self) -> float:
        """Its error, in units of the last digit before the bracket."""
        value, _, last = self.printed.rstrip(")").partition("(")
        return float(last) * 10.0 ** -len(value.partition(".")[2])


_ALVES = "N. A. Alves, B. A. Berg and S. Sanielevici, Nucl. Phys. B 376 (1992) 218, hep-lat/9107002"
_BOYD = "G. Boyd et al., Nucl. Phys. B 469 (1996) 419, hep-lat/9602007"
_FRANCIS = "A. Francis, O. Kaczmarek, M. Laine, T. Neuhaus and H. Ohno, Phys. Rev. D 91 (2015) 096002, arXiv:1503.05652"
_LUCINI = "B. Lucini, M. Teper and U. Wenger, JHEP 01 (2004) 061, hep-lat/0307017"
_QCDPAX = "Y. Iwasaki et al. (QCDPAX), Phys. Rev. D 46 (1992) 4657"

PUBLISHED: dict[int, Published] = {
    entry.n_t: entry
    for entry in (
        Published(2, "5.0933(7)", "Alves et al. 1992", _ALVES),
        Published(3, "5.5420(3)", "Lucini et al. 2004", _LUCINI),
        Published(4, "5.69254(24)", "QCDPAX 1992", _QCDPAX),
        Published(5, "5.8000(5)", "Lucini et al. 2004", _LUCINI),
        Published(6, "5.89405(51)", "QCDPAX 1992", _QCDPAX),
        Published(8, "6.0624(10)", "Boyd et al. 1996", _BOYD),
        Published(10, "6.20873(43)", "Francis et al. 2015", _FRANCIS),
        Published(12, "6.33514(45)", "Francis et al. 2015", _FRANCIS),
    )
}
"""By N_t, in rising order."""


INDEPENDENT: dict[tuple[int, ...], tuple[float, float]] = {(8, 8, 8, 4): (5.6916, 0.0015)}
"""Peaks of chi on one lattice that were found without this package, with errors: four chains of another code, 14,500
measurements each, reweighted by MBAR."""


def derived_range(n_t: int) -> tuple[float, float] | None:
    """Return the ends of a scan around the published coupling, or None where there is none.

    beta_c -+ 0.1, each to the nearest 0.05: 5.0 to 5.2 for N_t = 2, 5.6 to 5.8 for 4, 5.8 to 6.0 for 6.
    """
    if (known := PUBLISHED.get(n_t)) is None:
        return None
    low, high = (round((known.beta_c + side * HALF_WIDTH) * GRID) / GRID for side in (-1, 1))
    return low, high


TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))
say = TEXTS.say
SELDOM = 16
"""Updates between two downloads of links beyond which they take little of a GPU's time."""
LEAST_ASPECT = 2
"""N_s / N_t below which finite-size effects are as large as what is looked for: at 2 the peak is shifted by about
0.1 (N_t / N_s)^3 = 0.013 in beta, and on smaller lattices it is hardly a peak."""


def cautions(lattice: "Lattice") -> tuple[str, ...]:
    """Return a sentence for every volume that is small against its N_t.

    Another follows where observables that no GPU kernel measures are measured after many updates.
    """
    aspects = {dims: min(dims[:3]) / dims[3] for dims in lattice.volumes}
    said = [
        say("cautions.small", name=system_name(dims), aspect=aspect, least=LEAST_ASPECT, wanted=LEAST_ASPECT * dims[3])
        for dims, aspect in aspects.items()
        if aspect < LEAST_ASPECT
    ]
    names, every = lattice.measured.names, lattice.observe_every
    if names and lattice.batches and every < SELDOM:
        said.append(say("cautions.spacing", names=", ".join(names), every=every, seldom=SELDOM))
    return tuple(said)


PUBLISHED_MASS = 0.05
"""The largest am for which a coupling is quoted here."""


def known_of(lattice: "Lattice") -> tuple[str, ...]:
    """Return what is known of the transition that a scan looks for, with its sources; nothing without sea quarks."""
    if not lattice.flavors:
        return ()
    facts = [say("known.symmetry")]
    times = sorted({dims[3] for dims in lattice.volumes})
    if times != [4]:
        return (*facts, say("known.no-coupling", times=", ".join(map(str, times))))
    facts += [f"{say(f'known.{name}')} [{say(f'known.{name}-source')}]" for name in ("light", "end")]
    if lattice.mass > PUBLISHED_MASS:
        facts.append(say("known.heavy", mass=lattice.mass))
    return tuple(facts)
