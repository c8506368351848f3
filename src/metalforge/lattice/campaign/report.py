"""The report of a lattice campaign: the peak of the loop's susceptibility, and what only lattices have."""

from collections.abc import Iterator
from math import hypot
from typing import TYPE_CHECKING

from metalforge.campaign import (
    CampaignSpec,
    CampaignState,
    ChainHistory,
    ChainLog,
    Figures,
    PeakReport,
    PublishedPlace,
    Results,
    estimate_text,
    heading,
    note,
    paragraph,
    plane_of,
    section,
    system_name,
    system_text,
    table,
)
from metalforge.statistics import Value, with_error

from .published import INDEPENDENT, PUBLISHED, TEXTS, cautions, known_of, say
from .theory import Lattice, lattice_of

if TYPE_CHECKING:
    from metalforge.campaign import Drawn

QUARK_COLUMNS = ("chain", "lattice", ">beta", ">measured", ">Re L", ">condensate", ">chi_disc", ">chi_con")
PLAQUETTE = r"plaquette $\langle \mathrm{Re\,tr}\,U_p\rangle / 3$"
QUARK_LABELS = (r"$\langle \mathrm{Re}\,L \rangle$", r"$\langle \bar\psi\psi \rangle$", r"$\chi_\mathrm{disc}$")
HMC_LABELS = {"accepted": "share of accepted trajectories", "cg_iterations": "CG iterations per solve"}
ROWS = {"Polyakov loop": "loop", "susceptibility": "chi", "beta_c": "beta_c", "B4": "b4", "tau_int": "tau_int"}


class LatticeReport(PeakReport):
    """Shows the transition of a lattice."""

    def comparison(self, shown: Results) -> str:
        """Return one sentence that compares with the published coupling; nothing with sea quarks or an unknown N_t.

        What is published is for infinite volume. One lattice has another beta_c, and the sentence says so.
        """
        first = shown.systems[0].system
        known = PUBLISHED.get(first[3])
        if known is None or lattice_of(shown.spec).has_other_theory:
            return ""
        there = f"published for infinite volume, N_t = {first[3]}: {known.printed} ({known.short})"
        if (fit := shown.extrapolation) is not None:
            apart = abs(fit.result - known.beta_c) / hypot(fit.error, known.error)
            return f"{there}; the extrapolation is {apart:.1f} standard errors from it"
        elsewhere = INDEPENDENT.get(first)
        found = "" if elsewhere is None else f" ({with_error(*elsewhere)} was found independently)"
        return f"{there}; beta_c of {system_name(first)} alone is another number{found}"

    def cautions(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return a sentence for every volume that is small against its N_t, and for observables that GPUs lack."""
        return cautions(lattice_of(spec))

    def known(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return what is known of the transition with sea quarks."""
        return known_of(lattice_of(spec))

    def published(self, state: CampaignState) -> tuple[PublishedPlace, ...]:
        """Return the published couplings that lie in the range of a quenched campaign."""
        lattice = lattice_of(state.spec)
        if lattice.has_other_theory:
            return ()
        found = (PUBLISHED.get(n_t) for n_t in sorted({dims[3] for dims in lattice.volumes}))
        return tuple(
            PublishedPlace(
                at=k.beta_c, text=f"infinite volume, N_t = {k.n_t}: {k.printed}", short=k.short, source=k.source
            )
            for k in found
            if k is not None and lattice.beta_min <= k.beta_c <= lattice.beta_max
        )

    def labels(self, state: CampaignState) -> tuple[str, str]:
        """Return what the two series of a history are."""
        return "plaquette", "|L|"

    def history(self, state: CampaignState, chain: ChainLog) -> ChainHistory:
        """Return the plaquette and |L|, and the loop in the complex plane."""
        from .figures import loop_of

        return super().history(state, chain)._replace(plane=plane_of(loop_of(chain.column), "L"))

    def draw(self, shown: Results) -> "Iterator[Drawn]":
        """Give the figures of a peak with those of links."""
        from metalforge.campaign import draw_evidence, draw_histories, draw_means, draw_systems, draw_transition

        from .figures import loop_planes
        from .quarks import quarks_of

        def column(name: str) -> dict[str, Value]:
            return {chain.id: chain.values[name] for chain in shown.chains if name in chain.values}

        for transition in draw_transition(shown):
            yield transition
            yield draw_means("plaquette", shown, {PLAQUETTE: column("plaquette")}, TEXTS, section="transition")
        yield from draw_systems(shown)
        yield from draw_histories(shown)
        if lattice_of(shown.spec).flavors and (quarks := quarks_of(shown.state)):
            means = {label: {name: one[i] for name, one in quarks.items()} for i, label in enumerate(QUARK_LABELS)}
            yield draw_means("quarks", shown, means, TEXTS)
        if hmc := {label: found for name, label in HMC_LABELS.items() if (found := column(name))}:
            solves = say("captions.solves") if len(hmc) > 1 else ""
            yield draw_means("hmc", shown, hmc, TEXTS, section="histories", solves=solves)
        yield from draw_evidence(shown, {"loop-plane": loop_planes(shown.state)}, TEXTS)

    def theory(self, spec: CampaignSpec) -> str:
        """Return the physics in a few words."""
        lattice = lattice_of(spec)
        if not lattice.flavors:
            return "quenched SU(3)"
        return f"SU(3) with {lattice.flavors} staggered quarks, am = {lattice.mass:g}"

    def more_sections(self, shown: Results, figures: Figures) -> list[str]:
        """Return what only sea quarks have."""
        return [quarks_section(shown, figures)]

    def said_of_points(self, shown: Results) -> str:
        """Return what is to be known of trajectories and solves."""
        names = {name for chain in shown.chains for name in chain.values}
        return "".join(say(f"sections.{name}") for name in ("delta_h", "cg_iterations") if name in names)

    def definitions(self, spec: CampaignSpec) -> dict[str, str]:
        """Return the action, one update, the observables."""
        lattice = lattice_of(spec)
        energy = say("definitions.energy") if lattice.action == "wilson" else ""
        return {
            "action": _action(lattice),
            "one update": _update(lattice),
            "plaquette": say("definitions.plaquette") + energy,
            **{name: say(f"definitions.{key}", order=lattice.order.text) for name, key in ROWS.items()},
            "conventions": say("definitions.note"),
        }


def quarks_section(shown: Results, figures: Figures) -> str:
    """Return what only sea quarks have, and what is known of their transition; empty without them."""
    known = known_of(lattice_of(shown.spec))
    if not known:
        return ""
    from .quarks import quarks_of

    quarks = quarks_of(shown.state)
    rows = [
        (
            chain.id,
            system_text(chain.system),
            f"{chain.coordinate:.5f}",
            chain.measured,
            *map(estimate_text, quarks[chain.id]),
        )
        for chain in shown.chains
        if chain.id in quarks
    ]
    return section(
        "Sea quarks",
        figures.get("quarks", ""),
        table(QUARK_COLUMNS, rows),
        note(say("sections.quarks" if rows else "sections.no-quarks")),
        heading("What is known of this transition", *map(paragraph, known)),
    )


def _action(lattice: Lattice) -> str:
    formula = lattice.gauge.formula or lattice.action
    gauge = say("definitions.wilson" if lattice.action == "wilson" else "definitions.other-action", formula=formula)
    sea = "definitions.sea" if lattice.flavors else "definitions.quenched"
    return f"{gauge}, {say(sea, flavors=lattice.flavors, mass=lattice.mass)}"


def _update(lattice: Lattice) -> str:
    if lattice.algorithm != "heatbath":
        return say("definitions.hmc", lattice=lattice)
    sweeps = {"heatbath": (lattice.heatbath, "heat bath"), "overrelax": (lattice.overrelax, "overrelaxation")}
    named = {key: f"{count} {what} sweep{'' if count == 1 else 's'}" for key, (count, what) in sweeps.items()}
    return say("definitions.heatbath", **named)
