"""What was simulated and measured, in formulas: the action, one update, the observables."""

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.spec import CampaignSpec, Lattice

from .html import note, section, table
from .words import say

ROWS = {"Polyakov loop": "loop", "susceptibility": "chi", "beta_c": "beta_c", "B4": "b4", "tau_int": "tau_int"}


def definitions_section(spec: CampaignSpec) -> str:
    """Return the definitions that a reader needs to compare the numbers with others."""
    lattice, order = spec.gauge, ORDERS[spec.gauge.order].text
    energy = say("definitions.energy") if lattice.action == "wilson" else ""
    rows = [
        ("action", _action(lattice)),
        ("one update", _update(lattice)),
        ("plaquette", say("definitions.plaquette") + energy),
        *((name, say(f"definitions.{key}", order=order)) for name, key in ROWS.items()),
    ]
    return section("Definitions", table(("", ""), rows), note(say("definitions.note")))


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
