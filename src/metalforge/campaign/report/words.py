"""How a campaign is put into words: the names of lattices, durations and endings, said once for view and report."""

from metalforge.campaign.spec import Dims
from metalforge.campaign.store.records import Phase, StoppedBy
from metalforge.lattice.analysis.estimate import with_error

__all__ = ["ENDINGS", "PHASES", "beta_text", "duration", "lattice_math", "lattice_name", "lattice_text", "one_line"]

ENDINGS: dict[StoppedBy, str] = {
    "target": "the target error was reached",
    "trajectories": "the budget in trajectories was spent",
    "seconds": "the budget in seconds was spent",
    "joules": "the budget in joules was spent",
    "exhausted": "there was nothing left to measure",
    "asleep": "the producer slept: the predictive variance stayed below its threshold",
}

PHASES: dict[Phase, str] = {"quench": "quenched warm-up", "warmup": "warm-up", "measure": "measuring"}


def lattice_name(dims: Dims) -> str:
    """Return ``8^3x4`` for (8, 8, 8, 4), and all four extents where the spatial ones differ."""
    x, y, z, t = dims
    return f"{x}^3x{t}" if x == y == z else f"{x}x{y}x{z}x{t}"


def lattice_math(dims: Dims) -> str:
    """Return the name of a lattice for a figure, as mathematics."""
    x, y, z, t = dims
    return rf"${x}^3 \times {t}$" if x == y == z else rf"${x} \times {y} \times {z} \times {t}$"


def lattice_text(dims: Dims) -> str:
    """Return the name of a lattice for a page: 8\u00b3\u00d74."""
    x, y, z, t = dims
    return f"{x}\u00b3\u00d7{t}" if x == y == z else "\u00d7".join(map(str, dims))


def beta_text(value: float | None, error: float | None) -> str:
    """Return ``5.6916(15)``, or a dash for a beta_c that is not located."""
    if value is None:
        return "-"
    return f"{value:.5g}" if error is None else with_error(value, error)


def duration(seconds: float) -> str:
    """Return ``42 s``, ``3 min 5 s`` or ``2 h 40 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def one_line(text: str) -> str:
    """Return the text without its line breaks: reasons carry hints on lines of their own."""
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())
