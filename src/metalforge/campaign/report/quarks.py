"""The part of a report that only sea quarks have: what is known of their transition, and the condensate's figures."""

from collections.abc import Mapping

from metalforge.campaign.advice import known_of
from metalforge.campaign.spec import Lattice
from metalforge.statistics.estimate import Estimate

from .drawing import COLOURS, Drawn, axes_of
from .html import heading, note, paragraph, section, table
from .result import CampaignResult
from .words import estimate_text, lattice_math, lattice_text

COLUMNS = ("chain", "lattice", ">beta", ">measured", ">Re L", ">condensate", ">chi_disc", ">chi_con")
UNITS = (
    "Lattice units, one staggered field of four tastes, colours summed. condensate = tr D^-1 / V; chi_disc = "
    "(Nf/4)^2 V (<condensate^2> - <condensate>^2), with the square from products of different noise vectors, so that "
    "noise adds no bias (a value below zero is a fluctuation); chi_con = -(Nf/4) <tr D^-2> / V. Their sum is how the "
    "condensate changes with the mass. Gamma-method errors, every chain alone."
)


def quarks_section(lattice: Lattice, result: CampaignResult, figures: Mapping[str, str]) -> str:
    """Return the section about sea quarks; empty without them."""
    known = known_of(lattice)
    if not known:
        return ""
    rows = [
        (chain.id, lattice_text(chain.dims), f"{chain.beta:.5f}", chain.measured, *map(estimate_text, chain.quarks))
        for chain in result.chains
        if chain.quarks is not None
    ]
    said = [paragraph(f"{entry.text} [{entry.source}]" if entry.source else entry.text) for entry in known]
    none = "No chain of this campaign has measured its condensate for long enough."
    return section(
        "Sea quarks",
        figures.get("quarks", ""),
        table(COLUMNS, rows),
        note(UNITS if rows else none),
        heading("What is known of this transition", *said),
    )


def draw_quarks(result: CampaignResult) -> Drawn:
    """Return Re L, the condensate and its disconnected susceptibility against beta."""
    figure, axes = axes_of(3, 1, (7.4, 8.2), sharex=True)
    for volume, colour in zip(result.volumes, COLOURS, strict=False):
        chains = [(c.beta, c.quarks) for c in result.chains if c.dims == volume.dims and c.quarks is not None]
        name = lattice_math(volume.dims)
        betas = [beta for beta, _ in chains]
        for axis, field in zip(axes, ("re_loop", "condensate", "disconnected"), strict=True):
            values: list[Estimate] = [getattr(quarks, field) for _, quarks in chains]
            means, errors = [value.mean for value in values], [value.error for value in values]
            axis.errorbar(betas, means, errors, fmt="o", ms=4, color=colour, elinewidth=1, capsize=2, label=name)
        if (peak := volume.transition) is not None:
            for axis in axes:
                axis.axvline(peak.beta_c, color=colour, lw=1, ls="--")
    axes[0].set_ylabel(r"$\langle \mathrm{Re}\,L \rangle$")
    axes[1].set_ylabel(r"$\langle \bar\psi\psi \rangle$")
    axes[2].set(ylabel=r"$\chi_\mathrm{disc}$", xlabel=r"$\beta = 6/g^2$")
    axes[0].legend()
    return Drawn(
        "quarks",
        "Polyakov loop, condensate and disconnected chiral susceptibility",
        "Each chain alone, Gamma-method errors, lattice units. Dashed: where the susceptibility of the order parameter "
        "peaks. At a crossover the peak of chi_disc may lie elsewhere.",
        figure,
    )
