"""How a campaign is put into words: names of systems, durations, endings, and `text.toml` for whole sentences."""

from collections.abc import Iterable
from math import floor, log10
from pathlib import Path

from metalforge.campaign.analysis.evidence import Evidence
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import StoppedBy
from metalforge.campaign.theory import System
from metalforge.core import Paragraphs, Phase
from metalforge.statistics import Estimate, with_error

ENDINGS: dict[StoppedBy, str] = {
    "target": "the target error was reached",
    "trajectories": "the budget in trajectories was spent",
    "seconds": "the budget in seconds was spent",
    "joules": "the budget in joules was spent",
    "exhausted": "there was nothing left to measure",
    "asleep": "the predictive variance is below its threshold, and the evidence is complete",
}

PHASES: dict[Phase, str] = {"quench": "cheap warm-up", "warmup": "warm-up", "measure": "measuring"}

TEXTS = Paragraphs(Path(__file__).with_name("text.toml"))
say = TEXTS.say


def system_name(system: System) -> str:
    """Return what a system is called: 16^2 for (16, 16), 8^3x4 for (8, 8, 8, 4), N = 500 for one number."""
    return _system(system, "{0}^{1}", "x", "N = ")


def system_math(system: System) -> str:
    """Return its name for a figure, as mathematics."""
    times = r" \times "
    return f"${_system(system, '{0}^{1}', times, 'N = ')}$"


def system_text(system: System) -> str:
    """Return its name for a page: 8\u00b3\u00d74."""
    return _system(system, "{0}{2}", "\u00d7", "N = ")


SUPERSCRIPTS = str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def _system(system: System, power: str, times: str, single: str) -> str:
    """Return extents with those that are equal as a power: all of them, or all but the last."""
    if len(system) == 1:
        return f"{single}{system[0]}"
    for n in (len(system), len(system) - 1):
        if n > 1 and len(set(system[:n])) == 1:
            first = power.format(system[0], n, str(n).translate(SUPERSCRIPTS))
            return times.join([first, *map(str, system[n:])])
    return times.join(map(str, system))


def number_text(value: float | None, error: float | None) -> str:
    """Return ``5.6916(15)``, or a dash for what is not located."""
    if value is None:
        return "-"
    return f"{value:.5g}" if error is None else with_error(value, error)


def estimate_text(value: Estimate | None) -> str:
    """Return a mean with its error, or a dash where nothing was estimated."""
    return "-" if value is None else with_error(value.mean, value.error)


def chi2_text(chi2: float, dof: int) -> str:
    """Return how well something fits: ``chi2 = 1.20 for 1 degree of freedom``."""
    return f"chi2 = {chi2:.2f} for {dof} degree{'' if dof == 1 else 's'} of freedom"


def interval_text(value: float, error: float) -> str:
    """Return ``5.084 to 5.088``, one error to either side: what stands for a number that is not established."""
    digits = max(1 - floor(log10(error)), 0) if error > 0 else 5
    return f"{value - error:.{digits}f} to {value + error:.{digits}f}"


def item_text(item: Evidence) -> str:
    """Return an item of evidence as one line: what was found, what was needed, and what it means."""
    needed = f", needed {wanted}" if (wanted := needed_text(item)) else ""
    return f"{item.name}: {found_text(item)}{needed}" + (f" ({more})" if (more := remark_text(item)) else "")


def found_text(item: Evidence) -> str:
    """Return what was found of an item of evidence."""
    return item.value if isinstance(item.value, str) else f"{item.value:.3g}"


def needed_text(item: Evidence) -> str:
    """Return ``at least 20`` or ``at most 4``; nothing for an item that needs no number."""
    return "" if item.needed is None else f"{'at most' if item.at_most else 'at least'} {item.needed:.3g}"


def remark_text(item: Evidence) -> str:
    """Return what would help where something is lacking, and what was seen where no number says it; else nothing."""
    return one_line(item.text) if not item.holds or isinstance(item.value, str) else ""


def duration(seconds: float) -> str:
    """Return ``42 s``, ``3 min 5 s`` or ``2 h 40 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def budget_text(spec: CampaignSpec) -> str:
    """Return what ends a campaign: ``9000 updates or 150 s or an error of 0.002``."""
    budget = spec.budget
    limits = {
        "{} updates": budget.trajectories,
        "{:.10g} s": budget.seconds,
        "{:g} J": budget.joules,
        "an error of {:g}": budget.target_error,
    }
    return " or ".join(text.format(limit) for text, limit in limits.items() if limit is not None)


def one_line(text: str) -> str:
    """Return the text without its line breaks: reasons carry hints on lines of their own."""
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())


def substrate_text(name: str | None) -> str:
    """Return the name of a substrate."""
    return name or "host"


def substrates_text(names: Iterable[str]) -> str:
    """Return how many substrates there are, those that are emulated apart: ``2 substrates and 1 that is emulated``."""
    shown = {substrate_text(name) for name in names}
    emulated = sum("emulated" in name for name in shown)
    real = len(shown) - emulated
    text = f"{real} substrate{'s' * (real != 1)}"
    return f"{text} and {emulated} that {'is' if emulated == 1 else 'are'} emulated" if emulated else text
