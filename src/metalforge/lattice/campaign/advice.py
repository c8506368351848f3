"""The words that only lattices have (`text.toml`), and what is said about a campaign before it runs.

A caution is given for a lattice whose answer is blurred, and what is known of a transition is cited.

What is known of the transition with sea quarks has citations, and stands in the report, too. It says what to expect and
what to compare with; nothing is fitted to it, and no range is derived from it.
"""

from pathlib import Path
from typing import Any

from metalforge.campaign import system_name
from metalforge.core import Paragraphs

from .theory import Lattice

TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))
SELDOM = 16
"""Updates between two downloads of links beyond which they take little of a GPU's time."""
LEAST_ASPECT = 2
"""N_s / N_t below which finite-size effects are as large as what is looked for: at 2 the peak is shifted by about
0.1 (N_t / N_s)^3 = 0.013 in beta, and on smaller lattices it is hardly a peak."""


def say(group: str, **figures: Any) -> str:
    """Return the sentences that `text.toml` has for `table.key`, with these figures in them."""
    return " ".join(TEXTS(group, **figures))


def cautions(lattice: Lattice) -> tuple[str, ...]:
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


def known_of(lattice: Lattice) -> tuple[str, ...]:
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
