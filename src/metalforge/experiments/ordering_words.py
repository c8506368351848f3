"""What experiment 018 found: a table of all strategies, and in words beside what the design expected."""

from collections.abc import Iterator, Mapping

from metalforge.campaign.state import CampaignState

from .ordering_runs import SEQUENTIAL, SINGLE, StrategyOutcome, pull
from .protocol import Check

__all__ = ["checks", "lines", "words"]

PULL = 3.0
"""Combined errors within which two runs are called consistent."""
HEAD = (
    "strategy",
    "updates",
    "updates/s",
    "effective samples/s",
    "cores got",
    "updates per core second",
    "effective samples per core second",
    "beta_c",
    "pull",
    "utilisation",
    "checks",
    "largest drift",
)


def lines(outcomes: Mapping[str, StrategyOutcome]) -> tuple[tuple[str, ...], ...]:
    """Return the table: one line a strategy."""
    return (HEAD, *(_line(outcome, outcomes[SEQUENTIAL]) for outcome in outcomes.values()))


def words(outcomes: Mapping[str, StrategyOutcome]) -> tuple[str, ...]:
    """Return what the design expected, what came, and the energies by source."""
    return (*CLAIMS, *_findings(outcomes), *_energies(outcomes))


def _line(outcome: StrategyOutcome, base: StrategyOutcome) -> tuple[str, ...]:
    found, pulled, drift = outcome.found, pull(outcome, base), outcome.drift
    name = outcome.name if not outcome.chosen else f"{outcome.name} ({outcome.chosen[0]})"
    uses = outcome.utilisation
    return (
        name,
        str(outcome.state.trajectories),
        f"{outcome.rate[0]:.0f} +- {outcome.rate[1]:.0f}",
        f"{outcome.effective[0]:.1f} +- {outcome.effective[1]:.1f}",
        f"{outcome.cores:.2f}",
        f"{outcome.core_rate:.0f}",
        f"{outcome.effective_core_rate:.1f}",
        "not located" if found is None else f"{found.beta_c:.4f} +- {found.error:.4f}",
        "" if pulled is None or outcome is base else f"{pulled:+.1f}",
        ", ".join(f"{where} {uses[where]:.0%}" for where in sorted(uses)),
        str(len(outcome.state.checks)),
        "" if drift is None else f"{drift:.1e}",
    )


CLAIMS = (
    "the design gives no measurement of any ordering; it expects A to be limited by its producer, B to save hours by "
    "running the large volume at flagged beta only, C to have the largest throughput, E to draw the least power",
    "the design's substrates are two different GPUs and an NPU; here both are cores of one processor, equally fast and "
    "equally precise: a faster scout or a more precise checker is not what is compared, only how work is arranged",
)


def _findings(outcomes: Mapping[str, StrategyOutcome]) -> Iterator[str]:
    base, both = outcomes[SEQUENTIAL], outcomes["C"]
    yield (
        f"C makes {both.rate[0] / base.rate[0]:.2f} times the updates of the sequential run in the same time; its "
        f"producers got {both.cores:.2f} cores, the sequential one {base.cores:.2f}, and a core second gave "
        f"{both.core_rate / base.core_rate:.2f} times as many updates"
    )
    for name, what in (("A", "the second core checks flagged configurations"), ("D", "it checks every one")):
        here = outcomes[name]
        ratio = here.effective[0] / both.effective[0] if both.effective[0] else 0.0
        yield f"{name}: {what} ({len(here.state.checks)}), and {ratio:.2f} of C's effective samples per second are left"
    single, double = outcomes[SINGLE].drift, outcomes["D"].drift
    if single is not None and double is not None:
        yield (
            f"drift of P and |L| against the next higher precision: at most {double:.1e} in f64, {single:.1e} in f32; "
            "either is far below the statistical errors"
        )
    scout = outcomes["B"]
    first = scout.state.spec.lattice.volumes[0]
    large = [chain for chain in scout.state.chains.values() if chain.dims == first]
    betas = sorted({round(chain.beta, 4) for chain in large})
    yield (
        f"B: {sum(chain.rows for chain in large)} of {scout.state.trajectories} updates were on the large volume, at "
        f"{len(betas)} flagged beta ({', '.join(f'{beta:g}' for beta in betas[:8])}); so small a scout has its own, "
        "broad maximum elsewhere, and its flags say little of where the large volume has its peak"
    )
    ended = outcomes["E"].state.finished
    if ended is not None:
        slept = "went to sleep" if ended.stopped_by == "asleep" else "did not sleep"
        yield f"E {slept}: it ran {ended.seconds:.1f} s and {ended.trajectories} updates"
    yield f"auto took {outcomes['auto'].chosen or 'nothing: it was interrupted'}; B is no candidate of one volume"
    yield (
        "effective samples depend on where a run went: far from the transition every update is nearly one, so the "
        "error on beta_c is the fairer figure"
    )
    for outcome in outcomes.values():
        if outcome.found is None:
            yield f"{outcome.name}: beta_c is not located: {outcome.reason}"


def _energies(outcomes: Mapping[str, StrategyOutcome]) -> list[str]:
    """Return the ledgers in words: every source apart, never a sum of two."""
    said: dict[str, list[str]] = {}
    for outcome in outcomes.values():
        for (where, source), entry in sorted(outcome.state.energy.items()):
            if entry.energy is not None:
                said.setdefault(f"energy of {where}, {source}", []).append(f"{outcome.name} {entry.energy}")
            elif entry.emulation_s is not None:
                text = f"emulation on {where}, processor time in no ordering's cost"
                said.setdefault(text, []).append(f"{outcome.name} {entry.emulation_s:.2f} s")
            else:
                said.setdefault(f"energy of {where}: {source}, {entry.reason}", []).append(outcome.name)
    return [f"{text}: {', '.join(parts)}" for text, parts in said.items()]


def checks(outcomes: Mapping[str, StrategyOutcome]) -> Iterator[Check]:
    """Give what was asked, what came, and whether it holds."""
    base, both, every, flagged = (outcomes[name] for name in (SEQUENTIAL, "C", "D", "A"))
    pulls = {name: pull(o, base) for name, o in outcomes.items() if name != SEQUENTIAL}
    known = {name: value for name, value in pulls.items() if value is not None}
    yield (
        f"beta_c of every strategy within {PULL:g} errors of the sequential run's",
        ", ".join(f"{name} {value:+.1f}" for name, value in known.items()) or "not located",
        bool(known) and all(abs(value) <= PULL for value in known.values()),
    )
    faster = both.rate[0] / base.rate[0]
    came = f"{faster:.2f} times, on {both.cores:.2f} cores against {base.cores:.2f}"
    yield "two producers make more updates per second than one", came, faster > 1
    missed = sum(chain.rows for chain in every.state.chains.values()) - len(every.state.checks)
    yield "D checks every configuration", f"{missed} missed", missed == 0
    made = flagged.state.checks
    right = all(_was_flagged(flagged.state, check.chain, check.step) for check in made)
    yield "A checks flagged configurations only", f"{len(made)} checks", right


def _was_flagged(state: CampaignState, chain: str, step: int) -> bool:
    return any(seen.flagged and seen.step == step for seen in state.chains[chain].screened)
