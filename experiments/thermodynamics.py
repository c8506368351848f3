r"""Experiment thermodynamics: beta_c of the quenched theory in infinite volume, from campaigns on growing lattices.

Each lattice is a campaign of its own, on the devices of this machine, with a budget in seconds; its peak counts where
the evidence list holds. Peaks with one N_t are joined by

    beta_c(N_s) = beta_c - h (N_t / N_s)^3

(`campaign.analysis.finite_size`), and the limit is held against published values. The budgets are those of a GPU and
add up to eight minutes; the table marks lattices that are not established within theirs. Lines of lattices that were
run are in a file, and a lattice that is in it is not run again.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from metalforge import __version__
from metalforge.campaign.analysis.finite_size import SystemPeak, extrapolate
from metalforge.campaign.findings import finding
from metalforge.campaign.report.words import system_name
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.published import PUBLISHED, derived_range
from metalforge.lattice.campaign.theory import FirstOrderLaw
from metalforge.native.engine import Dims
from metalforge.statistics.estimate import with_error

from .campaigns import run_campaign
from .lines import Job, OutcomeFile
from .protocol import Cell, Check, Progress, Result, Settings, experiment, words

REPLICAS = 200
WIDTH = 0.8
"""Half of a campaign's range, in (N_t / N_s)^3: several times the shift of the peak, and its width, which falls alike.
On 8^3x4 it is the range that is derived for a scan."""


class Volume(NamedTuple):
    """A lattice, the seconds and the error that it is run for, and how many chains it may have at most.

    Near a transition of first order a few long chains say more than many short ones.
    """

    dims: Dims
    seconds: float
    target: float
    chains: int


VOLUMES = (
    Volume((8, 8, 8, 4), 12.0, 0.0005, 40),
    Volume((12, 12, 12, 4), 22.0, 0.0003, 24),
    Volume((16, 16, 16, 4), 45.0, 0.0002, 12),
    Volume((14, 14, 14, 6), 30.0, 0.0008, 16),
    Volume((18, 18, 18, 6), 60.0, 0.0005, 10),
    Volume((24, 24, 24, 6), 180.0, 0.0004, 8),
    Volume((24, 24, 24, 4), 150.0, 0.0001, 8),
)
QUICK = (Volume((4, 4, 4, 2), 4.0, 0.02, 10), Volume((6, 6, 6, 2), 4.0, 0.01, 10))


class VolumeFound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a campaign on one lattice gave: a line of the experiment's file."""

    dims: Dims
    seed: int
    rules: str
    silicon: str
    updates: int
    seconds: float
    beta_c: float | None
    error: float | None
    established: bool
    lacking: str
    chains: int


def spec_of(volume: Volume, seed: int) -> CampaignSpec:
    """Return the campaign of a lattice: a range about the published coupling that narrows as the peak does."""
    n_s, n_t = volume.dims[0], volume.dims[3]
    low, high = derived_range(n_t) or (0.0, 0.0)
    centre, half = PUBLISHED[n_t].beta_c, min((high - low) / 2, WIDTH * (n_t / n_s) ** 3)
    return CampaignSpec(
        name=f"thermodynamics {system_name(volume.dims)}",
        seed=seed,
        theory=Lattice(volumes=(volume.dims,), beta_min=round(centre - half, 4), beta_max=round(centre + half, 4)),
        budget=Budget(seconds=volume.seconds, target_error=volume.target),
        warmup=WarmUpPolicy(longest=1000, shortest=100),
        steering=Steering(most=volume.chains, initial=min(5, volume.chains)),
        screening=Screening(device="software"),
        running=Running(checkpoint_s=1e9),
    )


def run_volume(volume: Volume, seed: int) -> VolumeFound:
    """Run the campaign of a lattice, and return what it found."""
    began = time.monotonic()
    state, _ = run_campaign(spec_of(volume, seed))
    found = finding(state, volume.dims, n_bootstrap=REPLICAS)
    peak = found.transition
    return VolumeFound(
        dims=volume.dims,
        seed=state.spec.seed,
        rules=__version__,
        silicon=", ".join(dict.fromkeys(s.model for s in state.opened.silicon if s.role == "produces")),
        updates=state.trajectories,
        seconds=time.monotonic() - began,
        beta_c=None if peak is None else peak.result,
        error=None if peak is None else peak.error,
        established=found.established,
        lacking=", ".join(item.name for item in found.evidence if not item.holds) or found.said or "",
        chains=len(state.chains),
    )


@experiment("thermodynamics", "Where is the transition of the quenched theory in infinite volume, at N_t = 4 and 6?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run the campaigns that are not in the file, and return the table of all that are."""
    volumes = QUICK if settings.quick else VOLUMES
    jobs = [Job(f"{system_name(volume.dims)}, {volume.seconds:g} s", [volume.dims], volume) for volume in volumes]
    file = OutcomeFile(settings, "thermodynamics.jsonl", VolumeFound, lambda one: one.dims)
    known = file.run(jobs, lambda volume: [run_volume(volume, settings.seed)], progress)
    left = [volume.dims for volume in volumes if volume.dims not in known]
    return _result([known[volume.dims] for volume in volumes if volume.dims in known], left)


def _result(found: Sequence[VolumeFound], left: Sequence[Dims]) -> Result:
    table: list[dict[str, Cell]] = []
    checks: list[Check] = []
    said = [f"not run yet: {', '.join(map(system_name, left))}"] if left else []
    for one in found:
        quoted = "none found" if one.beta_c is None or one.error is None else with_error(one.beta_c, one.error)
        verdict = "yes" if one.established else f"no: {one.lacking}"
        cost = {"updates": f"{one.updates:,}", "seconds": f"{one.seconds:.0f}", "on": one.silicon}
        table.append({"lattice": system_name(one.dims), "beta_c": quoted, "established": verdict, **cost})
    for n_t in sorted({one.dims[3] for one in found}):
        known, mine = PUBLISHED[n_t], [one for one in found if one.dims[3] == n_t]
        peaks = [SystemPeak(one.dims, one.beta_c, one.error) for one in mine if one.beta_c is not None and one.error]
        fit, cautions = extrapolate(peaks, FirstOrderLaw()) if peaks else (None, ())
        said += [f"N_t = {n_t}: {caution}" for caution in cautions]
        if fit is None:
            continue
        apart = abs(fit.result - known.beta_c) / (fit.error**2 + known.error**2) ** 0.5
        whole = fit.consistent and all(one.established for one in mine) and n_t not in {dims[3] for dims in left}
        limit, slope = with_error(fit.result, fit.error), with_error(fit.h, fit.h_error)
        text = f"{limit}, h = {slope}, chi2 {fit.chi2:.1f} / {fit.dof}"
        verdict = "yes" if whole else "no: not all lattices"
        line = {"lattice": f"infinite, N_t = {n_t}", "beta_c": text, "established": verdict}
        table.append({**line, "updates": "", "seconds": "", "on": ""})
        asked = f"N_t = {n_t}: within two errors of {known.printed} ({known.short}), every lattice established"
        checks.append((asked, f"{apart:.1f} errors, established: {'yes' if whole else 'no'}", apart <= 2 and whole))
    seconds = sum(one.seconds for one in found)
    return Result(table, [*words("thermodynamics.all", seconds=seconds), *said], checks)
