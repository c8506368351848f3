"""What was simulated and measured, in formulas: the action, one update, the observables."""

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.spec import CampaignSpec, Lattice

from .html import note, section, table


def definitions_section(spec: CampaignSpec) -> str:
    """Return the definitions that a reader needs to compare the numbers with others."""
    order = ORDERS[spec.lattice.order].text
    rows = [
        ("action", _action(spec.lattice)),
        ("one update", _update(spec.lattice)),
        ("plaquette", "P = mean of Re tr U_p / 3 over all plaquettes p" + _energy(spec.lattice)),
        ("Polyakov loop", f"L = mean over space of tr prod_t U_t(x, t) / 3; {order} is taken of this mean, row by row"),
        ("susceptibility", f"chi = N_s^3 (<({order})^2> - <{order}>^2), N_s^3 the number of spatial sites"),
        ("beta_c", "the beta at which chi peaks on this lattice, by multi-histogram reweighting in E"),
        ("B4", f"<dL^4> / <dL^2>^2 of dL = {order} - <{order}>: 1 for two sharp phases, 3 for one Gaussian"),
        ("tau_int", f"1/2 + sum over t of rho(t), rho the autocorrelation of {order}, in updates"),
    ]
    return section(
        "Definitions",
        table(("", ""), rows),
        note("Links are in SU(3), and all directions are periodic. Every update is measured. Units are the lattice's."),
    )


def _energy(lattice: Lattice) -> str:
    return "; E = sum_p (1 - Re tr U_p / 3) = 6 V (1 - P)" if lattice.action == "wilson" else ""


def _action(lattice: Lattice) -> str:
    if lattice.action == "wilson":
        gauge = "S = beta sum_p (1 - Re tr U_p / 3), beta = 6 / g^2 (Wilson's action)"
    else:
        gauge = f"S = beta E, beta = 6 / g^2, E = {lattice.gauge.formula or lattice.action}"
    if not lattice.flavors:
        return f"{gauge}, without sea quarks"
    return (
        f"{gauge}, with {lattice.flavors} flavors of one-link staggered sea quarks of mass am = {lattice.mass:g}, "
        "antiperiodic in time"
    )


def _update(lattice: Lattice) -> str:
    if lattice.algorithm == "heatbath":
        return (
            f"{_sweeps(lattice.heatbath, 'heat bath')} (Cabibbo-Marinari subgroups, Kennedy-Pendleton), then "
            f"{_sweeps(lattice.overrelax, 'overrelaxation')}, each over all links"
        )
    return (
        f"one hybrid Monte Carlo trajectory of length tau = {lattice.tau:g} with an accept test; integrator "
        f"{lattice.integrator}, {lattice.n_steps} steps at first, tuned in warm-up and frozen before measurement"
    )


def _sweeps(count: int, what: str) -> str:
    return f"{count} {what} sweep{'' if count == 1 else 's'}"
